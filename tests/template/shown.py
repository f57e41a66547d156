"""The blocks of README, docs and drivers that no test runs with its whole page."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from tests.template.pages import ROOT, blocks
from tests.template.test_how_to import PAGES as HOW_TO

PAGES: Final = sorted([ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "drivers").glob("*/*.md")])
MADE: Final = {*(ROOT / "docs/reference").glob("*.md")}
"""Made of docstrings and help texts."""
RUN_WHOLE: Final = {*HOW_TO, *(ROOT / "docs/tutorial").glob("*.md")}


def listed() -> list[tuple[str, str, str]]:
    """Page, first line and text of each."""
    return [
        (page.relative_to(ROOT).as_posix(), text.partition("\n")[0], text)
        for page in PAGES
        if page not in RUN_WHOLE | MADE
        for _, text in blocks(page)
    ]


def block(page: str, start: str) -> str:
    """The text of the one block of a page that begins so."""
    (text,) = [text for each, line, text in listed() if each == page and line.startswith(start)]
    return text


def commands(text: str, folder: Path) -> tuple[list[str], list[str]]:
    """The commands of a block and the lines that it shows. In the folder, paths of the repository lead there."""
    if not (folder / "docs").exists():
        (folder / "docs").symlink_to(ROOT / "docs")
    lines = text.splitlines()
    typed = [line.removeprefix("$ ") for line in lines if line.startswith("$ ")]
    return (typed, [line for line in lines if not line.startswith("$ ")]) if typed else (lines[:1], lines[1:])
