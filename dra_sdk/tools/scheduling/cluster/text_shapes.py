"""Objects of one shape in the text of a file: equal except for names, UIDs and other strings that say which one it is.

Most of the text of a large cluster is repeated: the slices of nodes of one model differ in the names of the nodes and
in the UUIDs of the devices. So the first object of a shape is parsed, and of the others, only these strings are read.
Where the rest of the text is the same, character by character, and each of the strings needs no escape and no rule of
YAML to be read, parsing the whole text would give the same value. What is equal in all objects of a shape is one object
in memory, so it must not be changed. `dra-sdk simulate` of 500 nodes with 104 000 devices in 105 MB of JSON takes 6 s
of processor time and 140 MB; with every item parsed and validated by itself it takes 97 s and 1.7 GB.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.snapshot import value_at
from dra_sdk.wire.yaml_values import PARSER, is_plain_string

Path = tuple[str | int, ...]
"""Where a value is in an object."""
Slot = tuple[Path, int]
"""The path of a free string, and its index among the free strings that differ."""
MAX_STRING: Final = 300
"""The longest free string, in characters."""
_TOKEN: Final = re.compile(r'"((?:[^"\\]|\\.)*)"|[{}\[\]:,]|[^\s{}\[\]:,"]+')
_PLAIN: Final = re.compile(r"[A-Za-z0-9][-A-Za-z0-9._]*")
_QUOTED: Final = {'"': re.compile(r"[ !#-\[\]-~]*"), "'": re.compile(r"[ -&(-~]*")}
ANY: Final = "*"
Place = tuple[str, ...]
"""A path with ANY in place of each index, and of each name of a label or an attribute."""
ATTRIBUTE: Final[Place] = ("spec", "devices", ANY, "attributes", ANY, "string")
_FREE: Final[frozenset[Place]] = frozenset(
    {
        ("metadata", "name"),
        ("metadata", "generateName"),
        ("metadata", "uid"),
        ("metadata", "resourceVersion"),
        ("metadata", "creationTimestamp"),
        ("metadata", "labels", ANY),
        ("metadata", "ownerReferences", ANY, "name"),
        ("metadata", "ownerReferences", ANY, "uid"),
        ("metadata", "managedFields", ANY, "time"),
        ("spec", "nodeName"),
        ("spec", "pool", "name"),
        ("spec", "resourceClaims", ANY, "resourceClaimName"),
        ("spec", "resourceClaims", ANY, "resourceClaimTemplateName"),
        ("status", "resourceClaimStatuses", ANY, "resourceClaimName"),
    }
)
_NAMED: Final = frozenset({"labels", "attributes"})
_MIN_IDENTITY: Final = 12
"""An attribute that identifies a device, such as a UUID or a PCI address, has digits and at least this length."""


def place_of(path: Path) -> Place:
    """Return the place of a path."""
    named = [False, *(part in _NAMED for part in path)]
    return tuple(ANY if isinstance(part, int) or named[index] else part for index, part in enumerate(path))


def is_free(path: Path, text: str) -> bool:
    """Return whether a string may differ between objects of one shape. Any choice is right; a good one is fast."""
    place = place_of(path)
    return place in _FREE or (
        place == ATTRIBUTE and len(text) >= _MIN_IDENTITY and any(character.isdigit() for character in text)
    )


@dataclass(frozen=True, slots=True)
class _FreeText:
    """A free string in a text.

    start, end: its position, without quotes.
    quote: what it is quoted with; empty for plain text in YAML.
    path: its path in the object.
    """

    start: int
    end: int
    quote: str
    path: Path


class TextShape:
    """The shape of an object in JSON or YAML, made from the first of them.

    slots: the free strings of an object, by path.
    strings: those of the first object, each once.
    """

    def __init__(self, text: str, value: JSON, free: Sequence[_FreeText]) -> None:
        groups: dict[str, int] = {}
        self.slots: tuple[Slot, ...] = tuple(
            (string.path, groups.setdefault(text[string.start : string.end], len(groups))) for string in free
        )
        self.strings = tuple(groups)
        ends = [0, *(string.end for string in free)]
        starts = [*(string.start for string in free), len(text)]
        self._first, *literals = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        self._parts = [(group, literal) for (_, group), literal in zip(self.slots, literals, strict=True)]
        quotes: list[set[str]] = [set() for _ in groups]
        for string, (_, group) in zip(free, self.slots, strict=True):
            quotes[group].add(string.quote)
        self._quotes = [tuple(sorted(group)) for group in quotes]
        self._filler = Filler(value, self.slots)

    @classmethod
    def of_json(cls, text: str, value: JSON) -> TextShape | None:
        """Return the shape of an object whose text in JSON this is; None if it has no free string."""
        return _shape(text, value, _json_strings(text))

    @classmethod
    def of_yaml(cls, text: str, value: JSON) -> TextShape | None:
        """Return the shape of an object, the only item of a list whose text in YAML this is, with the line's end."""
        return _shape(text, value, _yaml_strings(text))

    def match(self, text: str, start: int) -> tuple[int, tuple[str, ...]] | None:
        """Return the end and the free strings of an object of this shape that begins at `start`, None for another."""
        if not text.startswith(self._first, start):
            return None
        at = start + len(self._first)
        strings: list[str] = [""] * len(self.strings)
        known = [False] * len(self.strings)
        for group, literal in self._parts:
            if known[group]:
                if not text.startswith(strings[group], at):
                    return None
                at += len(strings[group])
            else:
                end = text.find(literal[0], at, at + MAX_STRING)
                if end < 0 or not self._is_readable(group, text[at:end]):
                    return None
                strings[group], known[group] = text[at:end], True
                at = end
            if not text.startswith(literal, at):
                return None
            at += len(literal)
        return at, tuple(strings)

    def _is_readable(self, group: int, string: str) -> bool:
        """Return whether a string stands for itself where it is."""
        return all(_stands_for_itself(string, quote) for quote in self._quotes[group])

    def fill(self, strings: Sequence[str]) -> JSON:
        """Return the object with these free strings."""
        return self._filler.fill(strings)


def _stands_for_itself(string: str, quote: str) -> bool:
    if quote:
        return _QUOTED[quote].fullmatch(string) is not None
    return _PLAIN.fullmatch(string) is not None and is_plain_string(string)


def _shape(text: str, value: JSON, strings: Iterator[_FreeText]) -> TextShape | None:
    """Return the shape with those free strings that stand for themselves and are where they seem to be."""
    if not text.isascii():
        return None
    free = []
    for free_text in strings:
        string = text[free_text.start : free_text.end]
        ends_line = free_text.quote or text[free_text.end : free_text.end + 1] == "\n"
        if (
            len(string) < MAX_STRING
            and ends_line
            and _stands_for_itself(string, free_text.quote)
            and is_free(free_text.path, string)
            and value_at(value, free_text.path) == string
        ):
            free.append(free_text)
    return TextShape(text, value, free) if free else None


def _json_strings(text: str) -> Iterator[_FreeText]:
    """Yield the strings that are values in valid JSON, with their paths."""
    path: list[str | int] = []
    expects_key = False
    for token in _TOKEN.finditer(text):
        first = token[0][0]
        if first in "{[":
            path.append("" if first == "{" else 0)
            expects_key = first == "{"
        elif first in "}]":
            path.pop()
            expects_key = False
        elif first == ",":
            last = path[-1]
            expects_key = isinstance(last, str)
            path[-1] = "" if isinstance(last, str) else last + 1
        elif first == ":":
            expects_key = False
        elif first == '"' and expects_key:
            path[-1] = token[1]
        elif first == '"':
            yield _FreeText(token.start(1), token.end(1), '"', tuple(path))


def _yaml_strings(text: str) -> Iterator[_FreeText]:
    """Yield the strings that are values in the only item of a list in valid YAML, with their paths in the item."""
    path: list[str | int] = []
    keys: list[bool] = []
    events: Iterator[Any] = yaml.parse(text, Loader=PARSER)
    for event in events:
        kind = type(event)
        if kind in {yaml.MappingEndEvent, yaml.SequenceEndEvent}:
            path.pop()
            keys.pop()
        if kind is yaml.ScalarEvent and keys and keys[-1]:
            path[-1], keys[-1] = event.value, False
            continue
        if kind is yaml.ScalarEvent:
            quote = event.style if event.style in {'"', "'"} else ""
            start, end = event.start_mark.index + len(quote), event.end_mark.index - len(quote)
            if text[start:end] == event.value and event.style not in {"|", ">"}:
                yield _FreeText(start, end, quote, tuple(path[1:]))
        if kind in {yaml.ScalarEvent, yaml.MappingEndEvent, yaml.SequenceEndEvent} and path:
            last = path[-1]
            path[-1] = last + 1 if isinstance(last, int) else last
            keys[-1] = isinstance(last, str)
        if kind in {yaml.MappingStartEvent, yaml.SequenceStartEvent}:
            path.append("" if kind is yaml.MappingStartEvent else 0)
            keys.append(kind is yaml.MappingStartEvent)


class _ShapePart:
    """A part of an object with free strings in it, and what stands in them: a part, or the index of a free string."""

    __slots__ = ("items", "repeated", "value")

    def __init__(self, value: Any, items: tuple[tuple[Any, _ShapePart | int], ...]) -> None:
        self.value, self.items = value, items
        self.repeated = False


class Filler:
    """Makes objects that are equal except for their free strings, and share what is equal.

    slots: the paths of the free strings, and their indices.
    """

    def __init__(self, value: JSON, slots: Sequence[Slot]) -> None:
        self._values: dict[Any, tuple[int, Any]] = {}
        self._parts: dict[Any, _ShapePart] = {}
        tree: dict[Any, Any] = {}
        for path, index in slots:
            inner = tree
            for part in path[:-1]:
                inner = inner.setdefault(part, {})
            inner[path[-1]] = index
        self._root = self._part(self._shared(value)[1], tree)

    def _shared(self, value: Any) -> tuple[Any, Any]:
        """Return a key that equal values have, and the first of these values, whose parts are shared likewise."""
        if isinstance(value, dict):
            items = [(name, self._shared(item)) for name, item in value.items()]
            key: Any = ("{", *((name, item[0]) for name, item in items))
            made: Any = {name: item[1] for name, item in items}
        elif isinstance(value, list):
            listed = [self._shared(item) for item in value]
            key, made = ("[", *(item[0] for item in listed)), [item[1] for item in listed]
        else:
            return (type(value), value), value
        return self._values.setdefault(key, (len(self._values), made))

    def _part(self, value: Any, tree: Mapping[Any, Any]) -> _ShapePart:
        items = tuple(
            (name, inner if isinstance(inner, int) else self._part(value[name], inner)) for name, inner in tree.items()
        )
        key = (id(value), tuple((name, item if isinstance(item, int) else id(item)) for name, item in items))
        part = self._parts.get(key)
        if part is None:
            part = self._parts[key] = _ShapePart(value, items)
        else:
            part.repeated = True
        return part

    def fill(self, strings: Sequence[str]) -> JSON:
        """Return the object with these free strings."""
        made: JSON = _filled(self._root, strings, {})
        return made


def _filled(part: _ShapePart, strings: Sequence[str], known: dict[_ShapePart, Any]) -> Any:
    """Return a copy of a part with these free strings; parts that occur several times are made once."""
    if part.repeated and part in known:
        return known[part]
    made = part.value.copy()
    for name, item in part.items:
        made[name] = strings[item] if type(item) is int else _filled(item, strings, known)  # type: ignore[arg-type]
    if part.repeated:
        known[part] = made
    return made
