"""The parts of a ResourceClaim that preparation reads.

Source: resource.k8s.io/v1 ResourceClaim, AllocationResult, DeviceRequestAllocationResult,
DeviceAllocationConfiguration. Reading is lenient: a newer API server may send fields that we do not know, and null
stands for an absent field. By hand and not with pydantic, because every prepare waits for it: it takes a third.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from dra_sdk.errors import ClaimError
from dra_sdk.model import JSON

T = TypeVar("T")
_SOURCES: Final = ("FromClass", "FromClaim")
_NAMES: Final[Mapping[type, str]] = {str: "a string", bool: "a boolean", dict: "an object", list: "a list"}
_NOTHING: Final[JSON] = {}


class Result(NamedTuple):
    """One allocated device (DeviceRequestAllocationResult)."""

    request: str
    driver: str
    pool: str
    device: str
    admin_access: bool = False
    share_id: str | None = None
    consumed_capacity: Mapping[str, str] = _NOTHING


class Opaque(NamedTuple):
    """Parameters for one driver (OpaqueDeviceConfiguration)."""

    driver: str
    parameters: JSON


class Config(NamedTuple):
    """One configuration entry of an allocation; no `requests` means all of them."""

    source: str
    requests: Sequence[str] = ()
    opaque: Opaque | None = None


class Allocation(NamedTuple):
    """What was allocated (AllocationResult, DeviceAllocationResult)."""

    results: Sequence[Result]
    config: Sequence[Config]


class ResourceClaim(NamedTuple):
    """A ResourceClaim as far as a driver needs it; `consumers` are the names of the pods that may use it."""

    uid: str
    allocation: Allocation | None
    consumers: Sequence[str]


class _MisfitError(Exception):
    """A value that is not of its type; `path` leads to it from the object in hand."""

    def __init__(self, path: str, problem: str) -> None:
        super().__init__(problem)
        self.path = path


def read_claim(raw: Any) -> ResourceClaim:
    """Read a claim; ClaimError names the field where it is not one."""
    where = ""
    try:
        claim = _object(raw)
        uid = _get(_get(claim, "metadata", dict, _NOTHING), "uid", str, "", "metadata.")
        status, where = _get(claim, "status", dict, _NOTHING), "status."
        consumers = _each(status, "reservedFor", _consumer)
        if status.get("allocation") is None:
            return ResourceClaim(uid, None, consumers)
        allocation, where = _get(status, "allocation", dict), "status.allocation."
        devices, where = _get(allocation, "devices", dict, _NOTHING), "status.allocation.devices."
        found = Allocation(_each(devices, "results", _result), _each(devices, "config", _config))
        return ResourceClaim(uid, found, consumers)
    except _MisfitError as error:
        path = (where + error.path).rstrip(".") or "the whole"
        raise ClaimError(f"the API server's answer is no ResourceClaim: {path}: {error}") from None


def _get(raw: JSON, key: str, kind: type[T], default: T | None = None, below: str = "") -> T:
    """The value of `key`, which must be of this very type; `default` for null, an error where that is None too."""
    value = raw.get(key)
    if type(value) is kind:
        return value
    if value is not None:
        raise _misfit(below + key, kind, value)
    if default is None:
        raise _MisfitError(below + key, "is required")
    return default


def _object(raw: Any) -> JSON:
    if type(raw) is not dict:
        raise _misfit("", dict, raw)
    return raw


def _each(raw: JSON, key: str, read: Callable[[Any], T]) -> list[T]:
    found = []
    for index, item in enumerate(_get(raw, key, list, [])):
        try:
            found.append(read(item))
        except _MisfitError as error:
            error.path = f"{key}.{index}.{error.path}"
            raise
    return found


def _result(raw: Any) -> Result:
    found = _object(raw)
    capacity = _get(found, "consumedCapacity", dict, _NOTHING)
    for name in capacity:
        _get(capacity, name, str, below="consumedCapacity.")
    return Result(
        _get(found, "request", str),
        _get(found, "driver", str),
        _get(found, "pool", str),
        _get(found, "device", str),
        _get(found, "adminAccess", bool, default=False),
        _get(found, "shareID", str, "") or None,
        capacity,
    )


def _config(raw: Any) -> Config:
    found = _object(raw)
    source = _get(found, "source", str)
    if source not in _SOURCES:
        raise _MisfitError("source", f"must be {' or '.join(_SOURCES)}, is {source!r:.80}")
    opaque = None
    if found.get("opaque") is not None:
        given = _get(found, "opaque", dict)
        opaque = Opaque(_get(given, "driver", str, None, "opaque."), _get(given, "parameters", dict, {}, "opaque."))
    return Config(source, _each(found, "requests", _text), opaque)


def _text(raw: Any) -> str:
    if type(raw) is not str:
        raise _misfit("", str, raw)
    return raw


def _misfit(path: str, wanted: type, value: Any) -> _MisfitError:
    is_now = "null" if value is None else _NAMES.get(type(value), "a number")
    return _MisfitError(path, f"must be {_NAMES[wanted]}, is {is_now}")


def _consumer(raw: Any) -> str:
    return _get(_object(raw), "name", str, "")
