"""Plain text tables."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import Final

_GAP: Final = "  "
_LEAST: Final = 4  # what a column keeps in any case
_CUT: Final = "…"


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, width: int | None = None) -> None:
    """Print columns as wide as their widest cell, two spaces apart.

    Where that is more than `width`, the widest columns lose the middle of their cells, because names differ in their
    ends; no column becomes narrower than its heading.
    """
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    if width is not None:
        widths = _fitted(widths, headings, width)
    for row in (headings, *rows):
        print(_GAP.join(_cell(cell, most) for cell, most in zip(row, widths, strict=True)).rstrip())


def terminal_width() -> int | None:
    """How many columns the terminal has; None where stdout is none, so that what reads on gets all."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _fitted(widths: Sequence[int], headings: Sequence[str], room: int) -> list[int]:
    found, least = list(widths), [max(_LEAST, len(each)) for each in headings]
    while sum(found) + len(_GAP) * (len(found) - 1) > room:
        most, column = max((each, column) for column, each in enumerate(found) if each >= least[column])
        if most <= least[column]:
            break
        found[column] -= 1
    return found


def _cell(text: str, width: int) -> str:
    if len(text) <= width:
        return text.ljust(width)
    tail = (width - len(_CUT)) // 2
    return text[: width - len(_CUT) - tail] + _CUT + text[len(text) - tail :]
