"""Reads a large List in JSON or YAML item by item: neither its text nor its items are in memory as a whole.

A List is what `kubectl get -o json` and `-o yaml` write, also one whose kind comes after its items. Items of one shape
share what is equal, see `TextShape`. A file that is anything else, or has a mistake, is left to `read_documents`, which
reads all of YAML and knows where mistakes are.
"""

from __future__ import annotations

import codecs
import json
import os
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final

import yaml

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import Count, no_count
from dra_sdk.tools.scheduling.cluster.text_shapes import TextShape
from dra_sdk.wire.documents import (
    CONTROL_CHARACTERS,
    BadTokenError,
    Document,
    has_surrogates,
    is_deep,
    json_hooks,
    list_head,
    text_document,
)
from dra_sdk.wire.yaml_values import AnchorError, values

MIN_SIZE: Final = 1_000_000
"""A smaller file is read as a whole."""
_CHUNK: Final = 4_000_000
_MAX_SHAPES: Final = 256
"""After so many shapes, those of further items are not worth remembering."""
_MAX_HEAD: Final = 100_000
_ITEM_DEPTH: Final = 2
_ASCII: Final = bytes([9, 10, 13, *range(32, 127)])
_SPACE: Final = re.compile(r"[ \t\r\n]*")
_KEY: Final = re.compile(r'[ \t\r\n]*"([A-Za-z]+)"[ \t\r\n]*:[ \t\r\n]*')
_HEAD_OF_YAML: Final = re.compile(r"(?:[A-Za-z][^\n]*\n(?:[ \n][^\n]*\n)*?)*?items:[ ]*\n", re.ASCII)
_NEXT_LINE: Final = re.compile(r"\n(?=[^\s#])")
_MARKER: Final = re.compile(r"^(?:---|\.\.\.)", re.MULTILINE)
_DECODER: Final = json.JSONDecoder(**json_hooks())


class _OtherFileError(Exception):
    """The file is no such List, or has a mistake."""


class ListItem(Document):
    """One item of a List. An item of a shape is made from its free strings each time.

    path: the file.
    head: what the List says of its items: apiVersion and kind of those that have none themselves.
    index: its index among the items.
    place: where it begins and ends in the file, in characters, and how many lines are before it.
    value: its value, if it has no shape.
    shape: its shape, if it has one.
    strings: its free strings.
    """

    __slots__ = ("_end", "_head", "_index", "_line", "_path", "_raw", "_start", "shape", "strings")

    def __init__(
        self,
        path: Path,
        head: Mapping[str, Any],
        index: int,
        place: tuple[int, int, int],
        *,
        value: Any = None,
        shape: TextShape | None = None,
        strings: tuple[str, ...] = (),
    ) -> None:
        self._path, self._head, self._index, self._raw = path, head, index, value
        self._start, self._end, self._line = place
        self.shape, self.strings = shape, strings

    @property
    def value(self) -> Any:
        """Its JSON value."""
        value = self._raw if self.shape is None else self.shape.fill(self.strings)
        takes_kind = self._head and isinstance(value, dict) and not value.get("kind")
        return {**self._head, **value} if takes_kind else value

    @property
    def place(self) -> tuple[str | int, ...]:
        """Its path in the document."""
        return ("items", self._index)

    @property
    def has_lines(self) -> bool:
        """It comes from a file."""
        return True

    def line(self, tokens: Sequence[str | int] = ()) -> int:
        """Return the line (from 1) of the value at a path in the document."""
        with self._path.open(encoding="utf-8-sig", newline="") as file:
            left = self._start
            while left and (skipped := len(file.read(min(left, _CHUNK)))):
                left -= skipped
            text = file.read(self._end - self._start)
        document, inner = text_document(text), tuple(tokens)[2:]
        return self._line + document.line((0, *inner) if text.startswith("- ") else inner)


def read_list(path: Path, min_size: int = MIN_SIZE, count: Count = no_count) -> list[Document] | None:
    """Return the items of a List as documents; None if the file has to be read as a whole.

    count: called with how many bytes are read, and of how many.
    """
    try:
        if not path.is_file() or path.stat().st_size < min_size:
            return None
        with path.open("rb") as file:
            window = _Window(file, count)
            window.more(0)
            first = _SPACE.match(window.text)
            is_json = first is not None and window.text[first.end() : first.end() + 1] == "{"
            reader = _JSONItems(path, window) if is_json else _YAMLItems(path, window)
            reader.read()
            return reader.items
    except (_OtherFileError, ValueError, yaml.YAMLError, AnchorError, BadTokenError, RecursionError):
        return None


class _Window:
    """A part of the text of a file, which moves on.

    text: the part.
    is_last: whether it reaches to the end of the file.
    """

    def __init__(self, file: BinaryIO, count: Count) -> None:
        self._file, self._count = file, count
        self._size = os.fstat(file.fileno()).st_size
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")()
        self.text = ""
        self.is_last = False
        self._offset = self._lines = self._counted = 0

    def more(self, start: int) -> int:
        """Drop the text before `start` and read on; return the new position of `start`, which is 0."""
        self._count_lines(start)
        self._offset += start
        self._counted = 0
        chunk = self._file.read(max(_CHUNK, len(self.text) - start))
        self.is_last = not chunk
        self._count(self._file.tell(), self._size)
        added = self._decoder.decode(chunk, final=self.is_last)
        if chunk.translate(None, _ASCII) and CONTROL_CHARACTERS.search(added):
            raise _OtherFileError
        self.text = self.text[start:] + added
        return 0

    def place(self, start: int, end: int) -> tuple[int, int, int]:
        """Return the position of a part of the text in the file, in characters, and how many lines are before it."""
        self._count_lines(start)
        return self._offset + start, self._offset + end, self._lines

    def _count_lines(self, end: int) -> None:
        """Count the lines up to a position, which never goes back."""
        self._lines += self.text.count("\n", self._counted, end)
        self._counted = end


class _Items(ABC):
    """What readers of both formats have in common."""

    def __init__(self, path: Path, window: _Window) -> None:
        self._path, self._window = path, window
        self._shapes: list[TextShape] = []
        self._head: dict[str, Any] = {}
        self.items: list[Document] = []

    @abstractmethod
    def read(self) -> None:
        """Read the whole file."""

    def _append(self, start: int, end: int, **content: Any) -> None:
        place = self._window.place(start, end)
        self.items.append(ListItem(self._path, self._head, len(self.items), place, **content))

    def _known_item(self, start: int) -> int | None:
        """Add the item at a position and return its end, if it has a known shape. Recent shapes come first."""
        for index, shape in enumerate(self._shapes):
            if (match := shape.match(self._window.text, start)) and self._may_end(match[0]):
                if index:
                    self._shapes.insert(0, self._shapes.pop(index))
                self._append(start, match[0], shape=shape, strings=match[1])
                return match[0]
        return None

    def _may_end(self, _at: int) -> bool:
        """Return whether an item may end here."""
        return True

    def _add(self, start: int, end: int, value: Any, make: Callable[[str, JSON], TextShape | None]) -> None:
        """Add an item that was parsed, and remember its shape."""
        worth = isinstance(value, dict) and len(self._shapes) < _MAX_SHAPES
        shape = make(self._window.text[start:end], value) if worth else None
        if shape is None:
            self._append(start, end, value=value)
        else:
            self._shapes.insert(0, shape)
            self._append(start, end, shape=shape, strings=shape.strings)

    def _finish(self, fields: Mapping[str, Any]) -> None:
        kind = fields.get("kind")
        if not isinstance(kind, str) or not kind.endswith("List") or any(is_deep(part, 1) for part in fields.values()):
            raise _OtherFileError
        self._head.update(head if "kind" in (head := list_head(fields)) else {})


class _JSONItems(_Items):
    """Reads `{"apiVersion": "v1", "kind": "List", "items": […]}`."""

    def read(self) -> None:
        """Read the whole file."""
        window, at = self._window, self._after(0, "{")
        fields: dict[str, Any] = {}
        while True:
            key = _KEY.match(window.text, at)
            if key is None or key[1] in fields or key.end() > _MAX_HEAD + at:
                raise _OtherFileError
            if key[1] == "items":
                at = self._items(key.end())
                fields["items"] = None
            else:
                fields[key[1]], at = self._value(key.end())
                if has_surrogates(json.dumps(fields[key[1]])):
                    raise _OtherFileError
            at = self._skip(at)
            if not window.text.startswith(",", at):
                break
            at = self._skip(at + 1)
        at = self._skip(self._after(at, "}"))
        if at < len(window.text) or "items" not in fields:
            raise _OtherFileError
        del fields["items"]
        self._finish(fields)

    def _items(self, at: int) -> int:
        at = self._skip(self._after(at, "["))
        if self._window.text.startswith("]", at):
            return at + 1
        while True:
            at = self._read_item(at)
            at = self._skip(at)
            if self._window.text.startswith("]", at):
                return at + 1
            at = self._skip(self._after(at, ","))

    def _read_item(self, at: int) -> int:
        window = self._window
        while True:
            if (end := self._known_item(at)) is not None:
                return end
            if window.is_last or len(window.text) - at > _CHUNK // 2:
                break
            at = window.more(at)
        before = len(window.text) - at
        value, end = self._value(at)
        at = at if len(window.text) - at == before and at <= end else 0
        if is_deep(value, _ITEM_DEPTH) or has_surrogates(window.text[at:end]):
            raise _OtherFileError
        self._add(at, end, value, TextShape.of_json)
        return end

    def _value(self, at: int) -> tuple[Any, int]:
        """Return the value at a position, and its end, in a window that then begins with it if it had to move."""
        window = self._window
        while True:
            try:
                value, end = _DECODER.raw_decode(window.text, at)
            except ValueError:
                end = len(window.text)
                if window.is_last:
                    raise
            if end < len(window.text):
                return value, end
            if window.is_last:
                raise _OtherFileError
            at = window.more(at)

    def _after(self, at: int, character: str) -> int:
        at = self._skip(at)
        if not self._window.text.startswith(character, at):
            raise _OtherFileError
        return at + 1

    def _skip(self, at: int) -> int:
        """Return the position after white space; in a window that has something behind it, except at the end."""
        while True:
            space = _SPACE.match(self._window.text, at)
            end = at if space is None else space.end()
            if self._window.is_last or len(self._window.text) - end > _MAX_HEAD:
                return end
            at = self._window.more(end)


class _YAMLItems(_Items):
    """Reads `apiVersion: v1`, `items:` and items that begin with `- ` in the first column."""

    def read(self) -> None:
        """Read the whole file."""
        window = self._window
        head = _HEAD_OF_YAML.match(window.text, 0, _MAX_HEAD)
        if head is None:
            raise _OtherFileError
        before = head[0][: head[0].rindex("items:")]
        at = head.end()
        while True:
            at = self._ensured(at)
            if not window.text.startswith("- ", at):
                break
            at = self._read_item(at)
        while not window.is_last:
            at = window.more(at)
        after = window.text[at:]
        if _MARKER.search(before) or _MARKER.search(after) or len(after) > _MAX_HEAD:
            raise _OtherFileError
        if after and not after[0].isalpha():
            raise _OtherFileError
        fields = [value for text in (before, after) if text.strip() for value in values(text, anchors=False)]
        if not all(isinstance(value, dict) for value in fields):
            raise _OtherFileError
        merged = {key: value for mapping in fields for key, value in mapping.items()}
        if len(merged) != sum(map(len, fields)) or "items" in merged:
            raise _OtherFileError
        self._finish(merged)

    def _ensured(self, at: int) -> int:
        """Return the position in a window that has some text behind it, except at the end."""
        window = self._window
        while not window.is_last and len(window.text) - at < _CHUNK // 2:
            at = window.more(at)
        return at

    def _read_item(self, at: int) -> int:
        """Read the item at a position; it ends where the next line begins that is not indented."""
        window = self._window
        while True:
            if (known_end := self._known_item(at)) is not None:
                return known_end
            if line := _NEXT_LINE.search(window.text, at):
                end = line.end()
                break
            if window.is_last:
                end = len(window.text)
                break
            at = window.more(at)
        parsed = list(values(window.text[at:end], anchors=False))
        if len(parsed) != 1 or not isinstance(parsed[0], list) or len(parsed[0]) != 1:
            raise _OtherFileError
        value = parsed[0][0]
        if is_deep(value, _ITEM_DEPTH):
            raise _OtherFileError
        self._add(at, end, value, TextShape.of_yaml)
        return end

    def _may_end(self, at: int) -> bool:
        """Return whether a line begins here that is not indented, or the file ends."""
        text = self._window.text
        if at == len(text):
            return self._window.is_last and text.endswith("\n")
        return text[at - 1] == "\n" and not text[at].isspace() and text[at] != "#"
