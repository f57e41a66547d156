"""Read YAML and JSON documents, with the line of each value for messages.

YAML is read as Kubernetes reads it: what has no JSON form is refused, such as a key that is given twice, a custom tag
or a reference to itself. Keys of other types become strings. Lines are computed only when one is needed.
"""

from __future__ import annotations

import codecs
import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

import yaml

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.yaml_values import MAX_DEPTH, MAX_DIGITS, PARSER, values

_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|[-+.\w]+')
CONTROL_CHARACTERS: Final = yaml.reader.Reader.NON_PRINTABLE
"""What YAML, and so Kubernetes, does not allow in a file."""


class _File:
    """The text of a file. Its YAML nodes, which have line numbers, are made when one is needed."""

    def __init__(self, text: str, parser: Any = PARSER) -> None:
        self._text, self._parser = text, parser
        self._nodes: list[yaml.Node | None] | None = None

    def node(self, index: int) -> yaml.Node | None:
        """Return the root node of a document, None for an empty one."""
        if self._nodes is None:
            self._nodes = list(yaml.compose_all(self._text, Loader=self._parser))
        return self._nodes[index] if index < len(self._nodes) else None


class Document:
    """One document: its JSON value, and the lines of its parts if it comes from a file."""

    __slots__ = ("_file", "_index", "_value")

    def __init__(self, value: Any, file: _File | None = None, index: int = 0) -> None:
        self._value, self._file, self._index = value, file, index

    @property
    def value(self) -> Any:
        """Its JSON value."""
        return self._value

    @property
    def place(self) -> tuple[str | int, ...]:
        """The path of the value in the document; not empty for an item of a List that is read item by item."""
        return ()

    @property
    def has_lines(self) -> bool:
        """Whether the document comes from a file."""
        return self._file is not None

    def line(self, tokens: Sequence[str | int] = ()) -> int:
        """Return the line (from 1) of the value at a path, or of the deepest part of the path that exists."""
        node = self._file.node(self._index) if self._file else None
        line = node.start_mark.line + 1 if node is not None else 1
        for token in tokens:
            found = _child(node, token)
            if found is None:
                break
            line, node = found
        return line


def objects(value: Any, place: tuple[str | int, ...] = ()) -> Iterator[tuple[tuple[str | int, ...], Any]]:
    """Yield path and value of each object in a document: the document itself, or the items of a List.

    Items of a PodList, a ResourceSliceList and so on need not have a kind.
    """
    if isinstance(value, dict) and str(value.get("kind", "")).endswith("List") and isinstance(value.get("items"), list):
        kind = list_head(value)
        for index, item in enumerate(value["items"]):
            is_bare = isinstance(item, dict) and not item.get("kind") and "kind" in kind
            yield from objects({**kind, **item} if is_bare else item, (*place, "items", index))
    elif value is not None:
        yield place, value


def list_head(value: Mapping[str, Any]) -> dict[str, str]:
    """Return apiVersion and kind of the items of a List that have none themselves; no kind for a `List` of any kind."""
    return {name: text for name in ("apiVersion", "kind") if (text := str(value.get(name, "")).removesuffix("List"))}


def read_documents(content: bytes, source: str) -> list[Document]:
    """Return the documents in the content of the file `source`. Empty content has none.

    Raises InvalidObjectError with source, line and column if the content is not UTF-8, YAML or JSON.
    """
    try:
        text = content.decode("utf-8-sig")
        return list(_documents(text))
    except UnicodeDecodeError as error:
        if content[:2] in {codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE}:
            raise InvalidObjectError(source, ["line 1: the text is UTF-16, save it as UTF-8"]) from error
        line = content.count(b"\n", 0, error.start) + 1
        raise InvalidObjectError(source, [f"line {line}: not UTF-8 text"]) from error
    except yaml.MarkedYAMLError as error:
        raise InvalidObjectError(source, [_sentence(error, text)]) from error
    except _BadTextError as error:
        raise InvalidObjectError(source, [str(error)]) from error


class _BadTextError(Exception):
    """Text that is neither YAML nor JSON. The message says where and why."""


class BadTokenError(Exception):
    """A token of JSON text that is refused, and the reason."""


def _place(text: str, position: int) -> str:
    """Return the position of a character: `line 3, column 5`."""
    return f"line {text.count(chr(10), 0, position) + 1}, column {position - text.rfind(chr(10), 0, position)}"


def _sentence(error: yaml.MarkedYAMLError, text: str) -> str:
    """Return position and reason. The parser's reason for the most frequent mistake, a tab, is replaced."""
    mark, reason = error.problem_mark or error.context_mark, error.problem or error.context
    if mark is None:
        return str(reason)
    lines = text.split("\n")
    if mark.line >= len(lines):
        return f"{_place(text, len(text))}: {reason}"
    if "cannot start any token" in str(reason) and lines[mark.line][mark.column :].startswith("\t"):
        reason = "use spaces for indentation, not tabs"
    return f"line {mark.line + 1}, column {mark.column + 1}: {reason}"


def _documents(text: str) -> Iterator[Document]:
    if strange := CONTROL_CHARACTERS.search(text):
        raise _BadTextError(f"{_place(text, strange.start())}: control character {strange[0]!a} is not allowed")
    if text.lstrip()[:1] in {"{", "["}:
        try:
            document = _json(text)
        except RecursionError as error:
            raise _BadTextError(f"nested too deeply: {MAX_DEPTH} levels are allowed") from error
        if document is not None:
            yield document
            return
        text = text.replace("\t", " ")  # YAML allows no tabs between values, JSON does
    file = _File(text)
    for index, value in enumerate(values(text)):
        yield Document(value, file, index)


def _json(text: str) -> Document | None:
    """Return the document if the text is JSON, else None: YAML may begin like JSON, and its parser knows positions."""
    try:
        value = json.loads(text, **json_hooks())
    except BadTokenError as error:
        token, reason = error.args
        places = (match.start() for match in _TOKEN.finditer(text) if match[0] == token)
        raise _BadTextError(f"{_place(text, next(places))}: {reason}") from error
    except ValueError:
        return None
    if is_deep(value):
        return None
    return text_document(text, _without_surrogates(value) if has_surrogates(text) else value)


def text_document(text: str, value: Any = None) -> Document:
    """Return a document with this value and the lines of a text, which is JSON or one document of YAML."""
    parser = yaml.SafeLoader if has_surrogates(text) else PARSER  # libyaml does not join surrogate pairs
    return Document(value, _File(text.replace("\t", " "), parser))


def has_surrogates(text: str) -> bool:
    """Return whether JSON text has escapes of surrogates, which may be unpaired."""
    return _SURROGATE.search(text) is not None


def json_hooks() -> dict[str, Any]:
    """Return how `json` has to read numbers and objects; ValueError or BadTokenError for what is refused."""
    return {
        "parse_constant": _no_constant,
        "parse_float": _finite,
        "parse_int": _integer,
        "object_pairs_hook": _pairs,
    }


def _pairs(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) < len(pairs):
        raise ValueError(pairs)
    return entries


def _no_constant(name: str) -> float:
    raise BadTokenError(name, f"{name} is not a JSON number")


def _finite(text: str) -> float:
    number = float(text)
    if math.isinf(number):
        raise BadTokenError(text, f"{text:.80} is too large for a number")
    return number


def _integer(text: str) -> int:
    if len(text) > MAX_DIGITS:
        raise BadTokenError(text, f"a number has at most {MAX_DIGITS} digits, this one {len(text)}")
    return int(text)


def is_deep(value: Any, depth: int = 0) -> bool:
    """Return whether a value is nested more deeply than allowed."""
    if isinstance(value, (dict, list)):
        items = value.values() if isinstance(value, dict) else value
        return depth >= MAX_DEPTH or any(is_deep(item, depth + 1) for item in items)
    return False


def _without_surrogates(value: Any) -> Any:
    """Replace each unpaired surrogate by U+FFFD, as Go does."""
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace") if isinstance(value, str) else value


def _child(node: yaml.Node | None, token: str | int) -> tuple[int, yaml.Node] | None:
    """Return line and node of the value of a key, or of an item. None if it does not exist."""
    if isinstance(node, yaml.MappingNode):
        for key, value in node.value:
            if key.value == str(token):
                return key.start_mark.line + 1, value
    if isinstance(node, yaml.SequenceNode) and isinstance(token, int) and token < len(node.value):
        item = node.value[token]
        return item.start_mark.line + 1, item
    return None
