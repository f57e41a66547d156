"""One request to the API server: what it asks for, its options, its answer, and the log of all requests.

Contract: the URL scheme on the Kubernetes API concepts page; k8s.io/apiserver RequestInfo; k8s.io/apimachinery
ValidateListOptions.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Self
from urllib.parse import parse_qsl, unquote

from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.resources import Catalog, ResourceType

JSON_TYPE = "application/json"
LOGGED_REQUESTS = 100_000
_ITEM_VERBS = {"GET": "get", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
_COLLECTION_VERBS = {"GET": "list", "POST": "create", "DELETE": "deletecollection"}
_TRUE = frozenset({"true", "1"})
_EXACT, _NOT_OLDER = "Exact", "NotOlderThan"
_LIST_OPTIONS = ResourceType("meta.k8s.io", "v1", "listoptions", "ListOptions")
_MATCH, _INITIAL = "resourceVersionMatch", "sendInitialEvents"
_STRICT, _IGNORE = "Strict", "Ignore"


@dataclass(frozen=True)
class RequestInfo:
    """What a request asks for, read from its method and URL.

    verb: the API verb; for a path that is no resource, such as /version, the HTTP method in lower case.
    path: the URL path as sent.
    resource: the kind of object, None for a path that is no resource.
    namespace: "" for all namespaces and for kinds that have none.
    name: of the object, "" for the collection.
    subresource: `status` or "".
    query: the parameters by name; of repeated ones the last.
    """

    verb: str
    path: str
    resource: ResourceType | None = None
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    query: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: Catalog, method: str, url: str) -> Self:
        """Read method and URL; `StatusError` 405 if the resource has no such verb."""
        path, _, query_text = url.partition("?")
        query = dict(parse_qsl(query_text, keep_blank_values=True))
        located = _locate(catalog, [unquote(part) for part in path.split("/") if part])
        if located is None:
            return cls(method.lower(), path, query=query)
        resource, namespace, name, subresource = located
        verbs = _ITEM_VERBS if name else _COLLECTION_VERBS
        info = cls(verbs.get(method, ""), path, resource, namespace, name, subresource, query)
        if not info.verb or (subresource and info.verb == "delete"):
            raise statuses.method_not_allowed(resource, method.lower())
        if method == "GET" and info.flag("watch") and not subresource:
            return cls("watch", path, resource, namespace, name, "", query)
        return info

    @property
    def plural(self) -> str:
        """The plural name of the resource, "" for none."""
        return self.resource.plural if self.resource else ""

    def fits(self, verb: str, resource: str) -> bool:
        """Return whether verb and plural name fit these shell patterns."""
        return fnmatchcase(self.verb, verb) and fnmatchcase(self.plural, resource)

    def flag(self, parameter: str) -> bool:
        """Return whether a query parameter is true."""
        return self.query.get(parameter, "").lower() in _TRUE

    def number(self, parameter: str) -> int | None:
        """Return a query parameter as a number, None if it is absent or empty; `StatusError` 400 if it is no number."""
        text = self.query.get(parameter, "")
        if not text:
            return None
        if not text.isdecimal():
            raise statuses.bad_request(f'{parameter}: Invalid value: "{text}": must be a number')
        return int(text)


def _locate(catalog: Catalog, parts: list[str]) -> tuple[ResourceType, str, str, str] | None:
    """Return the kind, namespace, name and subresource that a path leads to; None if it leads to no resource."""
    match parts:
        case ["api", version, *rest]:
            group = ""
        case ["apis", group, version, *rest]:
            pass
        case _:
            return None
    namespace = ""
    match rest:
        case ["namespaces", name, plural, *more] if plural != "status":  # not the status of a Namespace
            namespace, rest = name, [plural, *more]
    if not rest:
        return None
    resource = catalog.find(group, version, rest[0])
    name, subresource, extra = (*rest[1:], "", "", "")[:3]
    if resource is None or extra or (namespace and not resource.namespaced):
        return None
    if subresource and not (subresource == "status" and resource.status):
        return None
    return resource, namespace, name, subresource


@dataclass(frozen=True)
class ReceivedRequest:
    """One request.

    info: what it asks for.
    body: its body, b"" for none.
    content_type: the media type of the body without parameters, "" if the client named none.
    user_agent: the client, "" if it does not say.
    accept: the media types that the client takes.
    """

    info: RequestInfo
    body: bytes = b""
    content_type: str = ""
    user_agent: str = ""
    accept: str = ""


@dataclass(frozen=True)
class ApiResponse:
    """One answer.

    code: the HTTP status code.
    body: the body.
    content_type: its media type.
    headers: further headers.
    """

    code: int
    body: bytes
    content_type: str = JSON_TYPE
    headers: Mapping[str, str] = field(default_factory=dict)


# -- options


def check_list(info: RequestInfo) -> None:
    """Raise `StatusError` 422 if a list has options that do not go together."""
    match, version = info.query.get(_MATCH, ""), info.query.get("resourceVersion", "")
    if match and not version:
        raise _forbidden(_MATCH, "is forbidden unless resourceVersion is provided")
    if match and info.query.get("continue"):
        raise _forbidden(_MATCH, "is forbidden when continue is provided")
    if match not in {"", _EXACT, _NOT_OLDER}:
        why = f'Unsupported value: "{match}": supported values: {_EXACT}, {_NOT_OLDER}'
        raise statuses.invalid(_LIST_OPTIONS, "", [(_MATCH, "FieldValueNotSupported", why)])
    if match == _EXACT and version == "0":
        raise _forbidden(_MATCH, 'Exact is forbidden for resourceVersion "0"')
    if _INITIAL in info.query:
        raise _forbidden(_INITIAL, "is forbidden for list")


def check_watch(info: RequestInfo) -> None:
    """Raise `StatusError` 422 if a watch has options that do not go together."""
    match = info.query.get(_MATCH, "")
    if _INITIAL in info.query and match != _NOT_OLDER:
        raise _forbidden(_MATCH, f"{_INITIAL} requires setting it to {_NOT_OLDER}")
    if match and _INITIAL not in info.query:
        raise _forbidden(_MATCH, f"is forbidden for watch unless {_INITIAL} is provided")


def check_version(info: RequestInfo, current: int) -> None:
    """Raise `StatusError` 504 if a get or list asks for a resourceVersion above `current`."""
    wanted = info.number("resourceVersion") or 0
    if wanted > current:
        raise statuses.too_large_version(wanted, current)


def is_exact(info: RequestInfo) -> bool:
    """Return whether a list asks for the objects as they were at its resourceVersion."""
    return info.query.get(_MATCH, "") == _EXACT


def _forbidden(field_name: str, why: str) -> statuses.StatusError:
    return statuses.invalid(_LIST_OPTIONS, "", [(field_name, "FieldValueForbidden", f"Forbidden: {why}")])


class FieldValidation:
    """What a write does about unknown fields: refuse (`Strict`), warn (the default) or nothing (`Ignore`).

    `headers` are the headers of the answer; a warning is one of them.
    """

    def __init__(self, info: RequestInfo) -> None:
        self.headers: dict[str, str] = {}
        self._mode = info.query.get("fieldValidation", "")

    def unknown(self, fields: list[str]) -> None:
        """Deal with the unknown fields of an object; `StatusError` 400 if they are not allowed."""
        problems = ", ".join(f'unknown field "{name}"' for name in fields)
        if self._mode == _STRICT:
            raise statuses.bad_request(f"strict decoding error: {problems}")
        if self._mode != _IGNORE:
            quoted = problems.replace('"', '\\"')
            self.headers["Warning"] = f'299 - "{quoted}"'


# -- log


@dataclass(frozen=True)
class RequestRecord:
    """One request that was answered. A watch is recorded when it opens.

    request: what it asked for.
    user_agent: as in `ReceivedRequest`.
    code: the HTTP status of the answer, 0 if the connection was cut instead.
    started: when the request had been read, by `time.monotonic()`.
    seconds: how long serving took.
    """

    request: RequestInfo
    user_agent: str
    code: int
    started: float
    seconds: float


class RequestLog:
    """The latest requests over HTTP, oldest first, for tests and benchmarks. Thread-safe."""

    def __init__(self, size: int = LOGGED_REQUESTS) -> None:
        self._lock = threading.Lock()
        self._records: deque[RequestRecord] = deque(maxlen=size)

    def append(self, record: RequestRecord) -> None:
        """Add a record; at `size` records the oldest is dropped."""
        with self._lock:
            self._records.append(record)

    def clear(self) -> None:
        """Remove all records."""
        with self._lock:
            self._records.clear()

    def records(self, verb: str = "*", resource: str = "*", *, since: float = 0.0) -> list[RequestRecord]:
        """Return the records of this verb and resource (shell patterns) that started at `since` or later.

        `since` is by `time.monotonic()`.
        """
        with self._lock:
            records = list(self._records)
        return [record for record in records if record.started >= since and record.request.fits(verb, resource)]
