"""YAML and JSON documents with the line of each value, so that a problem can be pointed at.

YAML is read as Kubernetes reads it: what has no place in JSON is refused, such as a key given twice, a date or a
reference to itself. Keys that are no strings become strings.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import yaml

from dra_sdk.errors import InvalidObjectError

_TAG: Final = "tag:yaml.org,2002:"
_JSON_TAGS: Final = {_TAG + name for name in ("str", "int", "float", "bool", "null", "map", "seq", "merge")}
_MAX_DEPTH: Final = 100
_MAX_REPEATED: Final = 10_000


class _Loader(yaml.SafeLoader):
    """YAML 1.1 as Kubernetes reads it: times are text, and so is 10:20:30, which may be half a MAC address."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in rules if tag in _JSON_TAGS and not tag.endswith(("int", "float"))]
    for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(
    f"{_TAG}int",
    re.compile(r"[-+]?(?:0b[01_]+|0o?[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$"),
    list("-+0123456789"),
)
_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(
        r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?$|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
    ),
    list("-+0123456789."),
)


_SCALARS: Final = yaml.constructor.SafeConstructor()


@dataclass(frozen=True, slots=True)
class Document:
    """One document: its JSON value, and where its parts stand in the file."""

    value: Any
    node: yaml.Node | None

    def line(self, tokens: Sequence[str | int] = ()) -> int:
        """The line (from 1) of the value at `tokens`, or of the deepest part of that path that exists."""
        line, node = 1, self.node
        if node is not None:
            line = node.start_mark.line + 1
        for token in tokens:
            found = _child(node, token)
            if found is None:
                break
            line, node = found
        return line


def read_documents(content: bytes, source: str) -> list[Document]:
    """The documents in a file's content; none where it is empty.

    Raises InvalidObjectError that names `source`, line and column where the content is not UTF-8, YAML or JSON.
    """
    try:
        text = content.decode()
        return list(_documents(text))
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidObjectError(source, [f"line {line}: not UTF-8 text"]) from error
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise InvalidObjectError(source, [f"{where}{error.problem or error.context}"]) from error
    except yaml.reader.ReaderError as error:
        line = content.decode().count("\n", 0, error.position) + 1
        raise InvalidObjectError(source, [f"line {line}: {error.reason}"]) from error
    except (RecursionError, ValueError) as error:
        raise InvalidObjectError(source, [_sentence(error)]) from error


def _sentence(error: RecursionError | ValueError) -> str:
    return "nested too deeply" if isinstance(error, RecursionError) else str(error)


def _documents(text: str) -> Iterator[Document]:
    if text.lstrip()[:1] in {"{", "["}:
        try:
            value = json.loads(text, parse_constant=_no_constant)
        except json.JSONDecodeError:
            pass  # YAML too may begin like this, and its parser tells where it ends to be either
        else:
            # In JSON a tab only ever stands between values; YAML wants none there.
            node = yaml.compose(text.replace("\t", " "), Loader=_Loader)
            _check(node)
            yield Document(value, node)
            return
    for node in yaml.compose_all(text, Loader=_Loader):
        _check(node)
        yield Document(_value(node), node)


def _check(node: yaml.Node | None) -> None:
    if node is not None:
        _Check()(node)


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON number")


def _value(node: yaml.Node | None) -> Any:
    if node is None:
        return None
    loader = _Loader("")
    try:
        return _with_text_keys(loader.construct_document(node))
    finally:
        loader.dispose()


def _with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {_key(key): _with_text_keys(item) for key, item in value.items()}
    return [_with_text_keys(item) for item in value] if isinstance(value, list) else value


def _key(key: Any) -> str:
    return key if isinstance(key, str) else json.dumps(key)


class _Check:
    """Raises where YAML says more than JSON can, or where references blow a small file up to a large one."""

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._repeated = 0

    def __call__(self, node: yaml.Node, above: tuple[yaml.Node, ...] = ()) -> None:
        if node in above or len(above) > _MAX_DEPTH:
            raise _problem("refers to itself" if node in above else f"nested deeper than {_MAX_DEPTH} levels", node)
        self._repeated += id(node) in self._seen
        self._seen.add(id(node))
        if self._repeated > _MAX_REPEATED:
            raise _problem(f"references repeat more than {_MAX_REPEATED} values", node)
        if node.tag not in _JSON_TAGS:
            raise _problem(f"{node.tag.replace(_TAG, '!!')} has no place in JSON", node)
        if node.tag.endswith("float") and node.value.lower().lstrip("+-") in {".nan", ".inf"}:
            raise _problem(f"{node.value} is no JSON number", node)
        if isinstance(node, yaml.ScalarNode):
            _check_scalar(node)
        if isinstance(node, yaml.MappingNode):
            _check_keys(node)
        for child in _children(node):
            self(child, (*above, node))


def _check_scalar(node: yaml.ScalarNode) -> None:
    """Raises where a tag, which anybody can write in front of anything, does not fit the text."""
    if construct := _SCALARS.yaml_constructors.get(node.tag):
        try:
            construct(_SCALARS, node)
        except (LookupError, ValueError) as error:
            raise _problem(f"{node.value!r:.80} is no {node.tag.replace(_TAG, '')}", node) from error


def _check_keys(node: yaml.MappingNode) -> None:
    seen: set[str] = set()
    for key, _ in node.value:
        if not isinstance(key, yaml.ScalarNode):
            raise _problem("a key must be a string", key)
        if key.value in seen:
            raise _problem(f"key {key.value!r} is given twice", key)
        seen.add(key.value)


def _children(node: yaml.Node) -> Iterator[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        yield from (value for _, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from node.value


def _child(node: yaml.Node | None, token: str | int) -> tuple[int, yaml.Node] | None:
    """The line and node of a key's value or of an item."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(token):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(token, int) and token < len(node.value):
        item = node.value[token]
        return item.start_mark.line + 1, item
    return None


def _problem(text: str, node: yaml.Node) -> yaml.MarkedYAMLError:
    return yaml.MarkedYAMLError(problem=text, problem_mark=node.start_mark)
