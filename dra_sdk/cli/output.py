"""What commands print: errors in lines, tables and YAML."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import StrEnum
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final, TextIO

import yaml

from dra_sdk.errors import DraError, InvalidObjectError, SettingsError
from dra_sdk.model import JSON
from dra_sdk.texts import limited, printable

MAX_PROBLEMS: Final = 25
"""The most problems of one object that are printed; a driver may have thousands of devices with the same problem."""
CLEAR: Final = "\033[H\033[2J"
"""Clears a terminal, for output that is repeated."""
_NOT_PRINTABLE: Final = re.compile(r"[^\x20-\x7e\n]")  # or beyond ASCII, where Unicode knows which
_ASTRAL: Final = 0x10000  # YAML writes what is below with four digits
_GAP: Final = "  "
_MIN_WIDTH: Final = 4
_ELLIPSIS: Final = "…"


# -- errors


def error_lines(error: DraError) -> list[str]:
    """Return an error as lines for stderr: one for each problem of an object, and for each wrong setting."""
    if isinstance(error, SettingsError):
        return [printable(f"dra-sdk: {problem}") for problem in error.problems]
    if isinstance(error, InvalidObjectError):
        problems = limited(list(dict.fromkeys(error.problems)), MAX_PROBLEMS, "problem")
        return [printable(f"dra-sdk: {error.subject}: {problem}") for problem in problems]
    if texts := getattr(error, "problems", ()):  # a SnapshotReadError, which commands without snapshots do not import
        return [printable(line) for text in texts for line in text.split("\n")]
    return [printable(f"dra-sdk: {error}")]


def print_error(error: DraError) -> None:
    """Print an error on stderr."""
    print_lines(error_lines(error), sys.stderr)


def print_lines(lines: Iterable[str], stream: TextIO | None = None) -> None:
    """Print each line with control characters escaped, on stdout unless another stream is given."""
    for line in lines:
        print(printable(line), file=stream)


def print_notes(notes: Iterable[str]) -> None:
    """Print notes on stderr."""
    print_lines((f"note: {note}" for note in notes), sys.stderr)


# -- JSON and YAML


def print_json(value: object) -> None:
    """Print a value as JSON."""
    print(json.dumps(value, indent=2), flush=True)


def print_value(value: object, output: str) -> None:
    """Print a value as JSON or YAML, as `output` says."""
    print_json(value) if output == "json" else print(yaml_text([value]), end="", flush=True)


def print_objects(objects: Sequence[JSON], output: str, **more: object) -> None:
    """Print API objects as one JSON List, which has `more` beside its items, or as YAML documents."""
    if output == "json":
        print_json({"apiVersion": "v1", "kind": "List", "items": objects, **more})
    else:
        print(yaml_text(objects), end="")


def yaml_text(documents: Iterable[Any]) -> str:
    """Return YAML documents without anchors and references.

    What is not printable, such as marks that reverse the direction of writing, is escaped and means the same to a
    reader of YAML. A scalar that has any is in double quotes, so only there escapes are put in.
    """
    text = yaml.dump_all(documents, Dumper=_PlainDumper, sort_keys=False, allow_unicode=True, width=1000)
    return _NOT_PRINTABLE.sub(_yaml_escape, text)


def _yaml_escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    return found[0] if found[0].isprintable() else f"\\u{code:04X}" if code < _ASTRAL else f"\\U{code:08X}"


class Octal(int):
    """A number that YAML shows as permission bits are written: `0660`, which readers of YAML 1.1 read as the number."""


class _PlainDumper(yaml.SafeDumper):
    """Repeats objects that occur more than once."""

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 (signature of the base class)
        """Return True."""
        return True

    def represent_str(self, data: str) -> yaml.ScalarNode:
        """Return a scalar, in double quotes if it has what is escaped."""
        style = '"' if _NOT_PRINTABLE.search(data) and not data.replace("\n", "").isprintable() else None
        return self.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_PlainDumper.add_representer(str, _PlainDumper.represent_str)
_PlainDumper.add_representer(
    Octal, lambda dumper, value: dumper.represent_scalar("tag:yaml.org,2002:int", f"0{int(value):o}")
)


# -- files


def write_file(path: Path, content: str) -> None:
    """Write a text; SettingsError if the file cannot be written."""
    try:
        path.write_text(content, encoding="utf-8")
    except OSError as error:
        raise SettingsError(f"cannot write {path}: {error.strerror}") from error


# -- tables


class Color(StrEnum):
    """Colours of a terminal, as SGR parameters (ECMA-48)."""

    RED = "31"
    GREEN = "32"
    YELLOW = "33"
    BLUE = "34"


def has_colors() -> bool:
    """Return whether stdout is a terminal that takes colours; not if NO_COLOR is set to anything (no-color.org)."""
    return sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def print_table(
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    width: int | None = None,
    color: Callable[[str, str], Color | None] | None = None,
) -> None:
    """Print columns as wide as their widest cell, with two spaces between them and control characters escaped.

    If the table is wider than `width`, the widest columns are shortened in the middle of their cells, because the ends
    of names differ. No column becomes narrower than its heading. `color` chooses the colour of a cell by its heading.
    """
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    if width is not None:
        widths = _fitted(widths, headings, width)
    for row in (headings, *rows):
        cells = [_cell(cell, size) for cell, size in zip(row, widths, strict=True)]
        cells[-1] = cells[-1].rstrip()
        if color is not None and row is not headings:
            colors = [color(*pair) for pair in zip(headings, row, strict=True)]
            cells = [_colored(*pair) for pair in zip(cells, colors, strict=True)]
        print(_GAP.join(cells).rstrip())


def _colored(text: str, color: Color | None) -> str:
    return text if color is None else f"\033[{color}m{text}\033[0m"


def wrapped(row: Sequence[str | Sequence[str]], widths: Sequence[int]) -> list[list[str]]:
    """Return one row as several: cells that are lists of words get as many lines as their words need, other cells one.

    widths: the width of each cell; a word that is longer has a line of its own.
    """
    columns = [[cell] if isinstance(cell, str) else _filled(cell, size) for cell, size in zip(row, widths, strict=True)]
    return [list(cells) for cells in zip_longest(*columns, fillvalue="")]


def _filled(words: Sequence[str], width: int) -> list[str]:
    lines: list[str] = []
    for word in words:
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines or ["-"]


def terminal_width() -> int | None:
    """Return the number of columns of the terminal; None if stdout is not a terminal."""
    return shutil.get_terminal_size().columns if sys.stdout.isatty() else None


def _fitted(widths: Sequence[int], headings: Sequence[str], width: int) -> list[int]:
    fitted, minimum = list(widths), [max(_MIN_WIDTH, len(heading)) for heading in headings]
    while sum(fitted) + len(_GAP) * (len(fitted) - 1) > width:
        widest, column = max((size, column) for column, size in enumerate(fitted) if size >= minimum[column])
        if widest <= minimum[column]:
            break
        fitted[column] -= 1
    return fitted


def _cell(text: str, width: int) -> str:
    if len(text) <= width:
        return text.ljust(width)
    tail = (width - len(_ELLIPSIS)) // 2
    return text[: width - len(_ELLIPSIS) - tail] + _ELLIPSIS + text[len(text) - tail :]
