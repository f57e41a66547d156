"""Constraints between the devices of a claim: attributes that must agree, or must differ.

With the feature DRAListTypeAttributes an attribute is a set of values, a single value being a set of one: agreeing
means that all devices have a value in common, differing that no two devices have. Without it lists count as unknown.

Three facts of the scheduler of 1.36, kept because this package predicts what it does: taking a device back does not
widen again what the devices had in common; of the devices of one request only the last is remembered as what others
must differ from, and none once one is taken back, be it that a later constraint refused it; the first device of a
`distinctAttribute` is not looked at.
Source: resource.k8s.io/v1 DeviceConstraint; k8s.io/dynamic-resource-allocation, structured (1.36).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Protocol

from dra_sdk.scheduling.allocator.devices import PoolDevice
from dra_sdk.scheduling.allocator.features import Features
from dra_sdk.scheduling.allocator.requests import Request

Value = tuple[str, frozenset[Any]]
"""Kind of an attribute, and its values."""

_REFUSED: Final[Value] = ("refused", frozenset())
_SCALARS: Final = ("string", "int", "bool", "version")
_LISTS: Final = (("int", "ints"), ("bool", "bools"), ("string", "strings"), ("version", "versions"))
_SINGLES: Final = ("int", "bool", "string", "version")


def value_of(attribute: Mapping[str, Any], *, lists: bool) -> Value | None:
    """The kind and values of a DeviceAttribute; None for one of unknown kind. `lists` is the feature."""
    if lists:
        for kind, name in _LISTS:
            if values := attribute.get(name):
                return kind, frozenset(values)
    for kind in _SINGLES if lists else _SCALARS:
        if (value := attribute.get(kind)) is not None:
            return kind, frozenset((value,))
    return None


def common(left: Value, right: Value) -> frozenset[Any]:
    """The values that are in both."""
    return left[1] & right[1] if left[0] == right[0] else frozenset()


class Constraint(Protocol):
    """The state of one constraint of a claim while its devices are being chosen."""

    @property
    def keeps_traces(self) -> bool:
        """Whether devices that were taken back can still matter for others."""

    @property
    def forgets(self) -> bool:
        """Whether it forgets devices that stay, when one is taken back that a later constraint refuses."""

    def applies(self, request: Request) -> bool:
        """Whether it is about the devices of a request."""

    def excludes(self, request: Request, device: PoolDevice) -> bool:
        """Whether a device cannot be taken in, now or after any others."""

    def add(self, request: Request, device: PoolDevice) -> bool:
        """Takes a device in, unless it breaks the constraint: then False."""

    def remove(self, request: Request) -> None:
        """Takes back the last device that `add` took in."""


def of(raw: Mapping[str, Any], features: Features) -> Constraint:
    """The constraint, with no devices yet."""
    names = frozenset(raw.get("requests") or ())
    if attribute := raw.get("matchAttribute"):
        return MatchAttribute(attribute, names, lists=features.list_attributes)
    return DistinctAttribute(raw["distinctAttribute"], names, lists=features.list_attributes)


class _Base:
    __slots__ = ("_lists", "attribute", "requests")

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        self.attribute, self.requests, self._lists = attribute, requests, lists

    def applies(self, request: Request) -> bool:
        """Whether it is about the devices of a request: named itself, or by the request it is an alternative of."""
        return not self.requests or request.base in self.requests or request.reference in self.requests


class MatchAttribute(_Base):
    """All devices have the same value of an attribute.

    `shared` is what the devices so far have in common, None while that is unknown.
    """

    __slots__ = ("devices", "shared")

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        super().__init__(attribute, requests, lists=lists)
        self.devices = 0
        self.shared: Value | None = None

    @property
    def keeps_traces(self) -> bool:
        """With lists, because what devices have in common is not widened again."""
        return self._lists

    @property
    def forgets(self) -> bool:
        """Never."""
        return False

    def excludes(self, request: Request, device: PoolDevice) -> bool:
        """Whether it lacks the attribute or has another value: more devices do not change that."""
        return self.applies(request) and self._with(device) is _REFUSED

    def add(self, request: Request, device: PoolDevice) -> bool:
        """Takes a device in, unless it lacks the attribute or has another value."""
        if not self.applies(request):
            return True
        shared = self._with(device)
        if shared is _REFUSED:
            return False
        self.shared = shared
        self.devices += 1
        return True

    def _with(self, device: PoolDevice) -> Value | None:
        """What would be shared with a further device, `_REFUSED` if it cannot be one."""
        attribute = device.attribute(self.attribute)
        if attribute is None:
            return _REFUSED
        value = value_of(attribute, lists=self._lists)
        if not self.devices:
            # Without lists an unknown value is only noticed when there is another to compare it with.
            return _REFUSED if value is None and self._lists else value
        shared = common(self.shared, value) if self.shared and value else None
        return (value[0], shared) if shared and value else _REFUSED

    def remove(self, request: Request) -> None:
        """Takes back a device; what the rest has in common stays as narrow as it was."""
        if self.applies(request):
            self.devices -= 1


class DistinctAttribute(_Base):
    """No two devices have the same value of an attribute; `seen` holds the values by request."""

    __slots__ = ("devices", "seen")

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        super().__init__(attribute, requests, lists=lists)
        self.devices = 0
        self.seen: dict[str, Value | None] = {}

    @property
    def keeps_traces(self) -> bool:
        """Never: a request that is given up takes back all its devices, and with them what is remembered of it."""
        return False

    @property
    def forgets(self) -> bool:
        """All of the same request."""
        return True

    def excludes(self, request: Request, device: PoolDevice) -> bool:
        """Whether it lacks the attribute; a value that is there twice now may be forgotten by then."""
        return self.applies(request) and device.attribute(self.attribute) is None

    def add(self, request: Request, device: PoolDevice) -> bool:
        """Takes a device in, unless it lacks the attribute or shares a value with another."""
        if not self.applies(request):
            return True
        attribute = device.attribute(self.attribute)
        if attribute is None:
            return False
        value = value_of(attribute, lists=self._lists)
        if self.devices and not self._differs(value):
            return False
        self.seen[request.base] = value
        self.devices += 1
        return True

    def _differs(self, value: Value | None) -> bool:
        if value is None:
            # Without lists an unknown value is only noticed when there is something to compare it with.
            return not self._lists and not self.seen
        return not any(other and common(value, other) for other in self.seen.values())

    def remove(self, request: Request) -> None:
        """Takes back a device."""
        if self.applies(request):
            self.seen.pop(request.base, None)
            self.devices -= 1
