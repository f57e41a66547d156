"""Sources of objects, and where an object was found in one."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.tools.scheduling.cluster.snapshot import DEFAULT_NAMESPACE, value_at
from dra_sdk.wire.conversion import original_path
from dra_sdk.wire.documents import Document
from dra_sdk.wire.validation import Problem, title
from dra_sdk.wire.validation.problems import split_path

_MAX_NAME_SHOWN: Final = 100
_MAX_PROBLEM_SHOWN: Final = 2000
_COLUMN = re.compile(r"line (\d+), column (\d+)")


@dataclass(frozen=True, slots=True)
class ObjectSource:
    """A file or another source of objects.

    name: the name to show in messages.
    documents: the documents.
    stored: whether they come from an API server, so that they need no validation.
    namespace: the namespace of objects that name none.
    """

    name: str
    documents: Sequence[Document]
    stored: bool = False
    namespace: str = DEFAULT_NAMESPACE


@dataclass(frozen=True, slots=True)
class LocatedObject:
    """An object and where it was found; `version` is the older version that it was converted from."""

    source: ObjectSource
    document: Document
    path: tuple[str | int, ...]
    obj: Any
    version: str = ""

    @property
    def is_whole(self) -> bool:
        """Whether it is a document, or an item of a List that is read item by item, as it was read."""
        return self.path == self.document.place and not self.version

    def location(self, field: str = "") -> str:
        """Return `file:line: Kind/name`; without line for objects that were not read from a file."""
        where = self.source.name
        if self.document.has_lines:
            where += f":{self.document.line([*self.path, *original_path(self.version, split_path(field))])}"
        return f"{where}: {_one_line(title(self.obj).replace(' ', '/', 1))}"

    def second_definition(self, first: LocatedObject) -> str:
        """Return the problem that an object with the same name was read before."""
        where = first.location("metadata.name").partition(": ")[0]
        return f"{self.location('metadata.name')}: is also defined at {where}"

    def problem_line(self, problem: Problem) -> str:
        """Return a problem as a line of text; for a CEL expression, with its line and a pointer to the column."""
        return f"{self.location(problem.field)}: {_one_line(str(problem), _MAX_PROBLEM_SHOWN)}{self._pointer(problem)}"

    def _pointer(self, problem: Problem) -> str:
        match = _COLUMN.match(problem.detail)
        text = value_at(self.obj, split_path(problem.field))
        if not match or not isinstance(text, str):
            return ""
        line, column = text.split("\n")[int(match[1]) - 1], int(match[2]) - 1
        start = max(0, column - _MAX_NAME_SHOWN)
        shown = line[start : column + _MAX_NAME_SHOWN].replace("\t", " ")
        return f"\n    {shown}\n    {' ' * (column - start)}^"


def _one_line(text: str, limit: int = _MAX_NAME_SHOWN) -> str:
    """Shorten text from a file to one line for messages."""
    text = text.replace("\n", "\\n")
    return text if len(text) <= limit else f"{text[:limit]}…"
