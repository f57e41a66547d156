"""The image of the drivers is built again when a file of it has changed, and only then."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.harness.driver_image import content_key

IGNORED = "# a comment\n*\n!pyproject.toml\n!dra_sdk\n!drivers\ndrivers/*/tests\n**/__pycache__\n"
INSIDE = ("deploy/Containerfile", "pyproject.toml", "dra_sdk/a.py", "drivers/cpu/b.py")
OUTSIDE = ("dra_sdk/__pycache__/a.pyc", "drivers/cpu/tests/test_b.py", "tests/test_a.py")


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.mark.parametrize("name", [*INSIDE, *OUTSIDE, "dra_sdk/new.py"])
def test_the_name_of_the_archive_follows_the_files_of_the_image(tmp_path: Path, name: str) -> None:
    write(tmp_path / ".dockerignore", IGNORED)
    for path in (*INSIDE, *OUTSIDE):
        write(tmp_path / path, "as it was")
    before = content_key(tmp_path)
    assert content_key(tmp_path) == before
    write(tmp_path / name, "changed")
    assert (content_key(tmp_path) != before) is (name not in OUTSIDE)
