"""YAML as JSON values, event by event, as Kubernetes reads it.

Faster than going through YAML nodes, and nothing here recurses, so that no file can exhaust the stack or, by
references to references, memory. What has no place in JSON is refused where it stands: a key given twice, a date with
a tag, a reference to itself, a tag of one's own. Source: YAML 1.1; sigs.k8s.io/yaml.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

import yaml

#: libyaml where PyYAML was built with it, which reads several times faster.
PARSER: Final[Any] = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
MAX_DEPTH: Final = 100
MAX_REPEATED: Final = 10_000
MAX_DIGITS: Final = 1000
_TAG: Final = "tag:yaml.org,2002:"
_STR, _MERGE, _MAP, _SEQ = (_TAG + name for name in ("str", "merge", "map", "seq"))
_PLAIN: Final = {_TAG + name for name in ("bool", "null", "merge")}
_INT: Final = re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT: Final = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)
_NO_NUMBERS: Final = {".nan", ".inf"}
_SCALARS: Final = yaml.constructor.SafeConstructor()
_OPEN: Final = object()


def values(text: str, parser: Any = PARSER) -> Iterator[Any]:
    """The value of each document; yaml.MarkedYAMLError with line and column for what cannot be read."""
    builder = _Builder()
    for event in yaml.parse(text, Loader=parser):
        if builder.take(event):
            yield builder.root.value
            builder = _Builder(known=builder.known)


def _rules() -> dict[str, list[tuple[str, re.Pattern[str]]]]:
    """How plain text is told apart, by its first character: times are text, and so is 10:20:30, half a MAC address."""
    found: dict[str, list[tuple[str, re.Pattern[str]]]] = {}
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items():
        found[first] = [(tag, pattern) for tag, pattern in rules if tag in _PLAIN]
    for first in "-+0123456789.":
        found.setdefault(first, []).extend([(f"{_TAG}int", _INT), (f"{_TAG}float", _FLOAT)])
    return found


_RULES: Final = _rules()


@dataclass(slots=True)
class _Frame:
    """A list or mapping that is being read, or the document: what is in it so far."""

    value: Any
    start: int = 0
    key: Any = None
    anchor: str | None = None
    merged: list[Any] = field(default_factory=list)


class _Merge:
    """The key `<<`."""


@dataclass(slots=True)
class _Builder:
    """One document; `known` are the plain texts that were met before, and their values."""

    known: dict[str, Any] = field(default_factory=dict)
    root: _Frame = field(default_factory=lambda: _Frame(None))
    stack: list[_Frame] = field(default_factory=list)
    anchors: dict[str, tuple[Any, int]] = field(default_factory=dict)
    count: int = 0
    repeated: int = 0

    def take(self, event: Any) -> bool:
        """Read on by one event; whether the document is complete."""
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
        """A value that is complete goes where it belongs."""
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
            raise problem(f"{shown_tag(event.tag)} has no place in JSON", event)
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
            value = {key: item for each in (*reversed(frame.merged), value) for key, item in each.items()}
        if frame.anchor is not None:
            self.anchors[frame.anchor] = (value, self.count - frame.start + 1)
        self._put(value, event)

    def _anchor(self, event: Any, found: tuple[Any, int]) -> None:
        if event.anchor in self.anchors:
            raise problem(f"anchor {event.anchor!r} is given twice", event)
        self.anchors[event.anchor] = found

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
        if not event.implicit[0]:
            return text
        rules = _RULES.get(text[:1])
        if rules is None:
            return text
        if text not in self.known:
            tag = next((tag for tag, pattern in rules if pattern.match(text)), _STR)
            self.known[text] = _tagged(tag, text, event)
        return self.known[text]


_STARTS: Final[dict[type[yaml.Event], str]] = {yaml.MappingStartEvent: _MAP, yaml.SequenceStartEvent: _SEQ}
_ENDS: Final = {yaml.MappingEndEvent, yaml.SequenceEndEvent}


def problem(text: str, event: Any) -> yaml.MarkedYAMLError:
    """An error at the beginning of what an event or a node is about."""
    return yaml.MarkedYAMLError(problem=text, problem_mark=event.start_mark)


def shown_tag(tag: str) -> str:
    """`!!binary` for its full name."""
    return tag.replace(_TAG, "!!")


def _tagged(tag: str, text: str, event: yaml.Event) -> Any:
    """The value of a text with a tag, which anybody can write in front of anything."""
    name = tag.removeprefix(_TAG)
    if name == "merge":
        return _Merge
    if name not in {"str", "int", "float", "bool", "null"} or name == tag:
        raise problem(f"{shown_tag(tag)} has no place in JSON", event)
    if name == "float" and text.lower().lstrip("+-") in _NO_NUMBERS:
        raise problem(f"{text} is no JSON number", event)
    if name in {"int", "float"} and len(text) > MAX_DIGITS:
        raise problem(f"a number has at most {MAX_DIGITS} digits, this one {len(text)}", event)
    try:
        value = _SCALARS.yaml_constructors[tag](_SCALARS, yaml.ScalarNode(tag, text))
    except (LookupError, ValueError) as error:
        raise problem(f"{text!r:.80} is no {name}", event) from error
    if value in {float("inf"), float("-inf")}:
        raise problem(f"{text!r:.80} is too large for a number", event)
    return value


def _key(key: Any, known: dict[str, Any], event: yaml.Event) -> Any:
    """The key as text; it must be new."""
    if key is _Merge:
        return key
    if isinstance(key, (dict, list)):
        raise problem("a key must be a string", event)
    text = key if isinstance(key, str) else json.dumps(key)
    if text in known:
        raise problem(f"key {text!r:.80} is given twice", event)
    return text


def _merged(value: Any, event: yaml.Event) -> list[dict[str, Any]]:
    """The mappings that `<<` brings in, the first of which decides."""
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(each, dict) for each in found):
        raise problem("<< must stand before a mapping or a list of mappings", event)
    return found
