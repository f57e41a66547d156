"""Reading device metadata, in a container or on the host.

Source: KEP-5304. A reader takes the first document whose version it knows and skips versions it does not, so that a
newer driver does not break it; anything else that is wrong with the stream is an error.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from pydantic import ValidationError

from dra_sdk.errors import InvalidObjectError
from dra_sdk.input_files import MIB, read_limited
from dra_sdk.node.metadata.document import KIND, VERSIONS, DeviceMetadata

_SPACE = " \t\r\n"
FILE_LIMIT: Final = 16 * MIB
"""Bytes of a metadata file."""


def read_metadata(content: str | bytes, source: str = "device metadata") -> DeviceMetadata:
    """Return the first document of a known version; InvalidObjectError names `source` and what is wrong."""
    unknown: list[str] = []
    try:
        text = content.decode() if isinstance(content, bytes) else content
        for value in _stream(text):
            version = _version(value)
            if version in VERSIONS:
                return _document(version, value)
            unknown.append(version)
    except RecursionError as error:
        raise InvalidObjectError(source, ["is nested too deeply"]) from error
    except ValueError as error:
        raise InvalidObjectError(source, [str(error)]) from error
    if unknown:
        raise InvalidObjectError(source, [f"has no version that is known here, only {', '.join(unknown)}"])
    raise InvalidObjectError(source, ["is empty"])


def read_file(path: Path) -> DeviceMetadata:
    """Read one file; InvalidObjectError names it, also if it cannot be opened."""
    try:
        content = read_limited(path, FILE_LIMIT)
    except OSError as error:
        raise InvalidObjectError(f"device metadata {path}", [f"cannot be read: {error.strerror}"]) from error
    return read_metadata(content, f"device metadata {path}")


def _stream(text: str) -> Iterator[Any]:
    decoder = json.JSONDecoder(parse_constant=_no_constant)
    position = 0
    while position < len(text):
        if text[position] in _SPACE:
            position += 1
            continue
        try:
            value, position = decoder.raw_decode(text, position)
        except json.JSONDecodeError as error:
            raise ValueError(f"is not JSON: line {error.lineno}: {error.msg}") from error
        except RecursionError as error:
            raise ValueError("is nested too deeply") from error
        yield value


def _no_constant(name: str) -> float:
    raise ValueError(f"is not JSON: {name} is no number")


def _version(value: Any) -> str:
    """Return the apiVersion of a document; ValueError unless it has that and a kind."""
    if not isinstance(value, dict):
        raise ValueError(f"holds a {type(value).__name__}, want objects")  # noqa: TRY004 (an error of the content)
    version, kind = value.get("apiVersion"), value.get("kind")
    if not isinstance(version, str) or not version or version.count("/") > 1:
        raise ValueError(f"holds an object whose apiVersion is {version!r}")
    if not isinstance(kind, str) or not kind:
        raise ValueError(f"holds an object of {version} whose kind is {kind!r}")
    if version in VERSIONS and kind != KIND:
        raise ValueError(f"holds an object of {version} that is a {kind}, want {KIND}")
    return version


def _document(version: str, value: Any) -> DeviceMetadata:
    try:
        return DeviceMetadata.model_validate(value, extra="ignore")  # a newer driver may say more than is known here
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise ValueError(f"holds a {KIND} of {version} that cannot be understood: {where}: {first['msg']}") from error
