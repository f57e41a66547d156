"""The how-to pages are true: their files, commands and output, as they stand there."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.template.pages import ROOT, blocks, here, run_page

PAGES = [*sorted((ROOT / "docs/how-to").glob("*.md")), ROOT / "docs/overlay.md"]
FILES_AT_MOST = 45
"""Lines of Python in one file of a page."""


@pytest.mark.timeout(1200)  # conformance, on a machine with other work
@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_does_what_it_shows(page: Path, tmp_path: Path) -> None:
    (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\naddopts = -p no:cacheprovider\n")
    assert run_page(page, tmp_path, here)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_a_page_is_short(page: Path) -> None:
    for kind, text in blocks(page):
        if kind == "python":
            assert len(text.splitlines()) <= FILES_AT_MOST, text.partition("\n")[0]


@pytest.mark.timeout(600)  # mypy reads all of dra_sdk
def test_the_files_of_the_pages_are_strictly_typed_and_clean(tmp_path: Path) -> None:
    files = []
    for page in PAGES:
        for kind, text in blocks(page):
            if kind == "python":
                name, _, content = text.removeprefix("# ").partition("\n")
                assert tmp_path / name not in files, f"two pages have {name}"
                files.append(tmp_path / name)
                files[-1].write_text(content)
    style = ["ruff", "check", "--config", str(ROOT / "pyproject.toml"), "--ignore", "ARG002,D,I,INP,S101,PLR2004"]
    environment = {**os.environ, "MYPYPATH": str(ROOT / "drivers/cpu")}
    for command in (["mypy", "--strict", "--config-file="], style, ["ruff", "format", "--check", "--line-length=120"]):
        done = subprocess.run(
            [sys.executable, "-m", *command, *map(str, files)],
            capture_output=True,
            text=True,
            cwd=tmp_path,
            env=environment,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
