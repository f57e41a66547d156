"""Files that a user names, up to a limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk.cli.input import read_content
from dra_sdk.errors import InvalidObjectError, SettingsError
from dra_sdk.input_files import MIB, read_limited
from dra_sdk.node.metadata.reading import read_file
from dra_sdk.node.overlay import load
from dra_sdk.tools.conformance.claim_template import read_claim_template


@pytest.mark.parametrize(("limit", "size"), [(1024, "1 KiB"), (2 * MIB, "2 MiB")])
def test_a_file_is_read_up_to_the_limit(tmp_path: Path, limit: int, size: str) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"x" * limit)
    assert read_limited(file, limit) == b"x" * limit
    file.write_bytes(b"x" * (limit + 1))
    with pytest.raises(OSError, match=f"it has more than {size}, the most that is read"):
        read_limited(file, limit)


def test_a_file_without_an_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dra_sdk.cli.input.FILE_LIMIT", 4 * MIB)  # in place of 1 GiB, which takes a second
    endless = Path("/dev/zero")
    for read in (load, read_file, read_claim_template, lambda path: read_content(str(path))):
        with pytest.raises((SettingsError, InvalidObjectError), match=r"/dev/zero.* it has more than \d+ MiB"):
            read(endless)


def test_a_metadata_file_that_is_nested_too_deeply(tmp_path: Path) -> None:
    file = tmp_path / "metadata.json"
    file.write_text("[" * 100_000)
    with pytest.raises(InvalidObjectError, match="is nested too deeply"):
        read_file(file)
