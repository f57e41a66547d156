"""Read YAML as JSON values, as Kubernetes reads it (sigs.k8s.io/yaml: YAML 1.1 by the rules of go-yaml v2).

The reader works on the parser's events. That is faster than going through YAML nodes, and nothing here recurses, so no
file can exhaust the stack or, by references to references, memory. What has no JSON form is refused with its position:
a key that is given twice, a reference to itself, an infinite number, a custom tag.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

#: libyaml if PyYAML was built with it. It reads several times faster.
PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH: Final = 100
MAX_REPEATED: Final = 10_000
MAX_DIGITS: Final = 1000
_TAG: Final = "tag:yaml.org,2002:"
_MAP, _SEQ = (_TAG + name for name in ("map", "seq"))
_OPEN: Final = object()


class _Merge:
    """The key `<<`."""


_CONSTANTS: Final[dict[str, Any]] = {
    **dict.fromkeys(("y", "Y", "yes", "Yes", "YES", "true", "True", "TRUE", "on", "On", "ON"), True),
    **dict.fromkeys(("n", "N", "no", "No", "NO", "false", "False", "FALSE", "off", "Off", "OFF"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL")),
    "<<": _Merge,
}
_NOT_FINITE: Final = {sign + name for sign in ("", "+", "-") for name in (".inf", ".Inf", ".INF")} | {
    ".nan", ".NaN", ".NAN",
}  # fmt: skip
#: Plain text that begins with another character is a string.
_HINTS: Final = frozenset(text[:1] for text in (*_CONSTANTS, *"+-.0123456789"))
_INT: Final = re.compile(r"([-+]?)(?:0[xX]([0-9a-fA-F]+)|0[bB]([01]+)|0[oO]?([0-7]+)|(0|[1-9][0-9]*))")
_BASES: Final = (16, 2, 8, 10)
_FLOAT: Final = re.compile(r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?")
#: After a leading dot, underscores must separate digits. Elsewhere they may be anywhere.
_UNDERSCORES: Final = re.compile(r"[^_]+(?:(?<=[0-9])_(?=[0-9])[^_]+)*")
#: Go writes whole floats below this limit without an exponent, so that they can be read as integers.
_MAX_WHOLE: Final = 1e21
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,), "int": (int,), "float": (int, float), "bool": (bool,), "null": (type(None),),
}  # fmt: skip


class AnchorError(Exception):
    """Text has an anchor or a reference, so its parts cannot be read one by one."""


def values(text: str, parser: Any = PARSER, *, anchors: bool = True) -> Iterator[Any]:
    """Yield the value of each document. yaml.MarkedYAMLError has line and column of what cannot be read.

    anchors: False for a part of a text; AnchorError if it has anchors or references.
    """
    builder = _Builder()
    for event in yaml.parse(text, Loader=parser):
        if not anchors and getattr(event, "anchor", None) is not None:
            raise AnchorError
        if builder.take(event):
            yield builder.root.value
            builder = _Builder(known=builder.known)


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is being read, or the document.

    value: what was read so far.
    start: number of values before it.
    key: key whose value comes next. None: a key comes next.
    anchor: its anchor, if any.
    merged: mappings that `<<` brings in, in their order.
    """

    value: Any
    start: int = 0
    key: Any = None
    anchor: str | None = None
    merged: list[Any] = field(default_factory=list)


@dataclass(slots=True)
class _Builder:
    """One document that is being read.

    known: values of plain texts, so that a text that occurs again is not parsed again.
    root: the document.
    stack: lists and mappings around the current position, outermost first.
    anchors: value and size of each anchor.
    count: values read so far.
    repeated: values that references repeat, to limit them.
    """

    known: dict[str, Any] = field(default_factory=dict)
    root: _Frame = field(default_factory=lambda: _Frame(None))
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    count: int = 0
    repeated: int = 0

    def take(self, event: Any) -> bool:
        """Read one event. Return whether the document is complete."""
        kind = type(event)
        if kind is yaml.ScalarEvent:
            value = self._scalar(event)
            if event.anchor is not None:
                self._anchor(event, (value, 1))
            self._put(value, event)
        elif kind in _STARTS:
            self._start(event, _STARTS[kind])
        elif kind in _ENDS:
            self._end(event)
        elif kind is yaml.AliasEvent:
            self._put(self._alias(event), event)
        return kind is yaml.DocumentEndEvent

    def _put(self, value: Any, event: yaml.Event) -> None:
        """Add a complete value to the list, mapping or document around it."""
        self.count += 1
        frame = self.stack[-1] if self.stack else self.root
        into = frame.value
        if type(into) is dict and frame.key is None:
            frame.key = _key(value, into, event)
            return
        if value is _Merge:
            value = "<<"
        if type(into) is list:
            into.append(value)
        elif type(into) is not dict:
            frame.value = value
        else:
            if frame.key is _Merge:
                frame.merged += _merged(value, event)
            else:
                into[frame.key] = value
            frame.key = None

    def _start(self, event: Any, tag: str) -> None:
        if event.tag not in {None, "!", tag}:
            raise problem(f"{shown_tag(event.tag)} has no JSON form", event)
        if len(self.stack) >= MAX_DEPTH:
            raise problem(f"nested deeper than {MAX_DEPTH} levels", event)
        above = self.stack[-1] if self.stack else None
        if above is not None and type(above.value) is dict and above.key is None:
            raise problem("a key must be a string", event)
        if event.anchor is not None:
            self._anchor(event, (_OPEN, 0))
        self.stack.append(_Frame({} if tag == _MAP else [], self.count, None, event.anchor))

    def _end(self, event: yaml.Event) -> None:
        frame = self.stack.pop()
        value = frame.value
        if frame.merged:
            value = {key: item for mapping in (*reversed(frame.merged), value) for key, item in mapping.items()}
        if frame.anchor is not None:
            self.anchors[frame.anchor] = (value, self.count - frame.start + 1)
        self._put(value, event)

    def _anchor(self, event: Any, entry: tuple[Any, int]) -> None:
        if event.anchor in self.anchors:
            raise problem(f"anchor {event.anchor!r} is given twice", event)
        self.anchors[event.anchor] = entry

    def _alias(self, event: Any) -> Any:
        value, size = self.anchors.get(event.anchor, (_OPEN, -1))
        if value is _OPEN:
            raise problem("refers to itself" if size == 0 else f"found undefined alias {event.anchor!r}", event)
        self.repeated += size
        self.count += size - 1
        if self.repeated > MAX_REPEATED:
            raise problem(f"references repeat more than {MAX_REPEATED} values", event)
        return value

    def _scalar(self, event: Any) -> Any:
        text = event.value
        if event.tag not in {None, "!"}:
            return _tagged(event.tag, text, event)
        if not event.implicit[0] or text[:1] not in _HINTS:
            return text
        if text not in self.known:
            self.known[text] = _plain(text, event)
        return self.known[text]


_STARTS: Final[dict[type[yaml.Event], str]] = {yaml.MappingStartEvent: _MAP, yaml.SequenceStartEvent: _SEQ}
_ENDS: Final = {yaml.MappingEndEvent, yaml.SequenceEndEvent}


def problem(text: str, event: Any) -> yaml.MarkedYAMLError:
    """Return an error with the position of an event or a node."""
    return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)


def shown_tag(tag: str) -> str:
    """Return the short form of a tag, such as `!!binary`."""
    return tag.replace(_TAG, "!!")


def _plain(text: str, event: yaml.Event) -> Any:
    """Return the value of text without quotes and tag. Times are strings, and so is 10:20:30."""
    if text in _CONSTANTS:
        return _CONSTANTS[text]
    if text in _NOT_FINITE:
        raise problem(f"{text} is not a JSON number", event)
    return _number(text) if text[0] in "+-.0123456789" else text


def is_plain_string(text: str) -> bool:
    """Return whether text without quotes and tag is a string; for text that is not empty."""
    return text[:1] not in _HINTS or (text not in _CONSTANTS and text not in _NOT_FINITE and _is_no_number(text))


def _is_no_number(text: str) -> bool:
    return text[0] not in "+-.0123456789" or isinstance(_number(text), str)


def _number(text: str) -> int | float | str:
    """Return the number of a text, or the text if it is not a number of at most 64 bits."""
    plain = text.replace("_", "")
    if text[0] == "." and plain != text and not _UNDERSCORES.fullmatch(text):
        return text
    if len(plain) > MAX_DIGITS:
        return text
    if match := _INT.fullmatch(plain):
        sign, *digits = match.groups()
        whole = next(int(part, base) for part, base in zip(digits, _BASES, strict=True) if part is not None)
        number = -whole if sign == "-" else whole
        if -(2**63) <= number < (2**63 if sign else 2**64):
            return number
    if _FLOAT.fullmatch(plain):
        value = float(plain)
        if abs(value) < _MAX_WHOLE and value.is_integer():
            return int(value)
        if abs(value) != float("inf"):
            return value
    return text


def _tagged(tag: str, text: str, event: yaml.Event) -> Any:
    """Return the value of text with a tag such as `!!int`."""
    name = tag.removeprefix(_TAG)
    if name == "merge":
        return _Merge
    if name not in _TYPES or name == tag:
        raise problem(f"{shown_tag(tag)} has no JSON form", event)
    value = text if name == "str" else _plain(text, event)
    if not isinstance(value, _TYPES[name]) or (name != "bool" and isinstance(value, bool)):
        raise problem(f"{text!r:.80} is not of type {name}", event)
    return value


def _key(key: Any, known: dict[str, Any], event: yaml.Event) -> Any:
    """Return a key as text. It must be new."""
    if key is _Merge:
        return key
    if isinstance(key, (dict, list)):
        raise problem("a key must be a string", event)
    text = key if isinstance(key, str) else json.dumps(key)
    if text in known:
        raise problem(f"key {text!r:.80} is given twice", event)
    return text


def _merged(value: Any, event: yaml.Event) -> list[dict[str, Any]]:
    """Return the mappings that `<<` brings in. The first one with a key wins."""
    mappings = value if isinstance(value, list) else [value]
    if not all(isinstance(mapping, dict) for mapping in mappings):
        raise problem("<< needs a mapping or a list of mappings", event)
    return mappings
