"""The recordings in README and site show what their commands print."""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from docs.site.recordings import COLUMNS, DIRECTORY, RECORDINGS, Recording, machine, run, shown

TEXT = re.compile(r'<text class="rec-\w+-r\d+" x="[^"]*" y="([^"]*)"[^>]*>(.*?)</text>', re.DOTALL)


@pytest.fixture(scope="module")
def directory() -> Iterator[Path]:
    with machine() as made:
        yield made


def lines(text: list[str]) -> list[str]:
    """The lines as far as the picture is wide."""
    return [(line if len(line) <= COLUMNS else f"{line[: COLUMNS - 1]}…").rstrip() for line in text]


def picture(recording: Recording) -> list[str]:
    """The lines of a picture."""
    rows: dict[float, str] = {}
    for y, text in TEXT.findall((DIRECTORY / f"{recording.name}.svg").read_text()):
        rows[float(y)] = rows.get(float(y), "") + html.unescape(text).replace("\N{NO-BREAK SPACE}", " ")
    found = [rows[y].rstrip() for y in sorted(rows)]
    assert found, recording.name
    return found


@pytest.mark.timeout(300)
@pytest.mark.parametrize("recording", RECORDINGS, ids=lambda each: each.name)
def test_a_picture_shows_what_its_command_prints(recording: Recording, directory: Path) -> None:
    status, output = run(recording, directory)
    assert status == recording.status, output
    expected = [line for line in lines(shown(recording, output)) if line]
    assert [line for line in picture(recording) if line] == expected, "`make recordings` draws it again"


def test_a_picture_does_not_show_what_a_slow_machine_adds() -> None:
    slow = "\r\x1b[Kreading objects: 2 s\r\x1b[Kreading objects: 3 s\r\x1b[KPOD\nnote: still waiting for slices\nweb\n"
    assert shown(RECORDINGS[0], slow) == [f"$ {RECORDINGS[0].command}", "POD", "web"]


def test_every_picture_is_of_a_command() -> None:
    assert {path.stem for path in DIRECTORY.glob("*.svg")} == {each.name for each in RECORDINGS}
    for path in DIRECTORY.glob("*.svg"):
        assert "url(http" not in path.read_text(), path.name
