"""Docstrings and tables as Markdown that a forge and the site show alike."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from textwrap import dedent
from typing import Final

ROOT: Final = Path(__file__).parents[2]
REFERENCE: Final = ROOT / "docs/reference"
_FIELD: Final = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): (.*)$")
"""The line of a docstring that describes a field, or several."""
_BLOCK: Final = re.compile(r"(^```.*?^```$|(?<=\n\n) {4}\S[^\n]*(?:\n+ {4}[^\n]*)*)", re.MULTILINE | re.DOTALL)
"""Lines between fences, or lines after an empty one that are indented."""
_CODE: Final = re.compile(r"(``.+?``|`[^`]*`)", re.DOTALL)
_PAGE: Final = re.compile(r"`((?:docs|drivers)/[\w./-]+\.md)`")


def prose(docstring: str | None) -> str:
    """Return a docstring as Markdown: its lines `name: …` as a table, its indented lines as a block of code."""
    return "\n\n".join(_converted(inspect.cleandoc(docstring or ""))) + "\n"


def _converted(text: str) -> Iterator[str]:
    """Yield the parts of a text: blocks of code, tables of fields, and paragraphs."""
    for part in _BLOCK.split(text):
        if part.startswith("```"):
            yield part
        elif part.startswith("    "):
            yield f"```python\n{dedent(part).strip()}\n```"
        else:
            yield from map(_paragraph, filter(None, re.split(r"\n{2,}", part.strip("\n"))))


def _paragraph(text: str) -> str:
    lines = text.splitlines()
    return table(("name", "what"), _fields(lines)).rstrip() if _FIELD.match(lines[0]) else escaped(text)


def _fields(lines: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield names and descriptions of fields, which may go on in further lines."""
    name = text = ""
    for line in lines:
        if field := _FIELD.match(line):
            if name:
                yield name, text
            name, text = ", ".join(f"`{word}`" for word in field[1].split(", ")), field[2]
        else:
            text += f" {line.strip()}"
    yield name, text


def table(titles: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table; its cells are prose."""
    titles = list(titles)
    lines = ["| " + " | ".join(_cell(cell) for cell in row) + " |" for row in rows]
    return "\n".join([f"| {' | '.join(titles)} |", f"|{'---|' * len(titles)}", *lines]) + "\n"


def _cell(text: str) -> str:
    """Return the text of a cell: a bar within code would end it, by one rule or another of Markdown."""
    parts = _CODE.split(" ".join(escaped(text).split()))
    return "".join(
        f"<code>{_as_html(part.strip('`').strip())}</code>" if part.startswith("`") and "|" in part else part
        for part in parts
    )


def _as_html(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace("|", "&#124;")


def escaped(text: str) -> str:
    """Return text whose characters stand for themselves, with code and with links to pages that it names."""
    parts = _CODE.split(text)
    return "".join(_link(part) if part.startswith("`") else _plain(part) for part in parts)


def _plain(text: str) -> str:
    """Escape what would be a tag, emphasis or a cell."""
    text = re.sub(r"&(?=\w+;)", "&amp;", text).replace("<", "&lt;")
    return re.sub(r"\*|(?<!\w)_|_(?!\w)", r"\\\g<0>", text).replace("|", "&#124;")


def _link(code: str) -> str:
    """Return code, as a link if it is the path of a page."""
    page = _PAGE.fullmatch(code)
    if page is None or not (ROOT / page[1]).is_file():
        return code
    return f"[{code}]({os.path.relpath(ROOT / page[1], REFERENCE)})"


def sentence(docstring: str | None) -> str:
    """Return the first sentence of a docstring, in one line."""
    first = " ".join(re.split(r"\n{2,}", inspect.cleandoc(docstring or ""))[0].split())
    return re.split(r"(?<=[.!?])\s+(?=[A-Z`])", first)[0]


def anchor(heading: str) -> str:
    """Return the anchor that a forge gives a heading."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
