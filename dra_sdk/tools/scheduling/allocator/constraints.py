"""Constraints between the devices of a claim: attributes that must agree, or must differ.

With the feature DRAListTypeAttributes an attribute is a set of values, a single value being a set of one: agreeing
means that all devices have a value in common, differing that no two devices have. Without it lists count as unknown.
A request may say by an expression what an attribute of its devices is to be (`derivedAttributes`, since 1.37).

Three facts of the scheduler up to 1.36, kept because this package predicts what it does: taking a device back does not
widen again what the devices had in common (`NarrowingMatch`); of the devices of one request only the last is remembered
as what others must differ from, and none once one is taken back, be it that a later constraint refused it; the first
device of a `distinctAttribute` is not looked at (`ForgetfulDistinct`).
Source: resource.k8s.io/v1 DeviceConstraint; k8s.io/dynamic-resource-allocation, structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from dra_sdk.tools.scheduling.allocator.devices import PoolDevice
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.requests import Request

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


def attribute_of(request: Request, device: PoolDevice, name: str) -> Mapping[str, Any] | None:
    """An attribute as a request derives it, or else as the driver published it.

    AllocationError for a derived one that has no value.
    """
    derived = request.derived.get(name)
    return device.attribute(name) if derived is None else derived.of(device)


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
    remembers, lists = features.behaviour.constraints_remember, features.list_attributes
    if attribute := raw.get("matchAttribute"):
        return (MatchAttribute if remembers else NarrowingMatch)(attribute, names, lists=lists)
    return (DistinctAttribute if remembers else ForgetfulDistinct)(raw["distinctAttribute"], names, lists=lists)


class _Base:
    __slots__ = ("_lists", "attribute", "requests")

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        self.attribute, self.requests, self._lists = attribute, requests, lists

    @property
    def keeps_traces(self) -> bool:
        """Never."""
        return False

    @property
    def forgets(self) -> bool:
        """Never."""
        return False

    def applies(self, request: Request) -> bool:
        """Whether it is about the devices of a request: named itself, or by the request it is an alternative of."""
        return not self.requests or request.base in self.requests or request.reference in self.requests

    def _of(self, request: Request, device: PoolDevice) -> Mapping[str, Any] | None:
        return attribute_of(request, device, self.attribute)


class MatchAttribute(_Base):
    """All devices have the same value of an attribute.

    `shared` has for each device what it and those before have in common, None while that is unknown.
    """

    __slots__ = ("shared",)

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        super().__init__(attribute, requests, lists=lists)
        self.shared: list[Value | None] = []

    def excludes(self, request: Request, device: PoolDevice) -> bool:
        """Whether it lacks the attribute or has another value: more devices do not change that."""
        return self.applies(request) and self._with(request, device) is _REFUSED

    def add(self, request: Request, device: PoolDevice) -> bool:
        """Takes a device in, unless it lacks the attribute or has another value."""
        if not self.applies(request):
            return True
        shared = self._with(request, device)
        if shared is _REFUSED:
            return False
        self.shared.append(shared)
        return True

    def _with(self, request: Request, device: PoolDevice) -> Value | None:
        """What would be shared with a further device, `_REFUSED` if it cannot be one."""
        attribute = self._of(request, device)
        if attribute is None:
            return _REFUSED
        value = value_of(attribute, lists=self._lists)
        if not self.shared:
            # Without lists an unknown value is only noticed when there is another to compare it with.
            return _REFUSED if value is None and self._lists else value
        before = self.shared[-1]
        shared = common(before, value) if before and value else None
        return (value[0], shared) if shared and value else _REFUSED

    def remove(self, request: Request) -> None:
        """Takes back a device."""
        if self.applies(request):
            self.shared.pop()


class NarrowingMatch(MatchAttribute):
    """The same as up to 1.36."""

    __slots__ = ()

    @property
    def keeps_traces(self) -> bool:
        """With lists, because what devices have in common is not widened again."""
        return self._lists

    def remove(self, request: Request) -> None:
        """Takes back a device; what the rest has in common stays as narrow as it was."""
        if self.applies(request):
            last = self.shared.pop()
            if self.shared:
                self.shared[-1] = last


class DistinctAttribute(_Base):
    """No two devices have the same value of an attribute; `seen` has the values of the devices so far."""

    __slots__ = ("seen",)

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        super().__init__(attribute, requests, lists=lists)
        self.seen: list[Value | None] = []

    def excludes(self, request: Request, device: PoolDevice) -> bool:
        """Whether it lacks the attribute or shares a value with another: more devices do not change that."""
        return self.applies(request) and self._new(request, device) is _REFUSED

    def add(self, request: Request, device: PoolDevice) -> bool:
        """Takes a device in, unless it lacks the attribute or shares a value with another."""
        if not self.applies(request):
            return True
        value = self._new(request, device)
        if value is _REFUSED:
            return False
        self.seen.append(value)
        return True

    def _new(self, request: Request, device: PoolDevice) -> Value | None:
        """The value of a device, `_REFUSED` if it cannot be a further one."""
        attribute = self._of(request, device)
        if attribute is None:
            return _REFUSED
        value = value_of(attribute, lists=self._lists)
        return value if differs(value, self.seen, lists=self._lists) else _REFUSED

    def remove(self, request: Request) -> None:
        """Takes back a device."""
        if self.applies(request):
            self.seen.pop()


def differs(value: Value | None, others: Collection[Value | None], *, lists: bool) -> bool:
    """Whether a value, None for an unknown one, has nothing in common with any of the others."""
    if value is None:
        # Without lists an unknown value is only noticed when there is something to compare it with.
        return not lists and not others
    return not any(other and common(value, other) for other in others)


class ForgetfulDistinct(_Base):
    """The same as up to 1.36; `seen` has one value by request."""

    __slots__ = ("devices", "seen")

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        super().__init__(attribute, requests, lists=lists)
        self.devices = 0
        self.seen: dict[str, Value | None] = {}

    @property
    def forgets(self) -> bool:
        """All of the same request. A request that is given up takes back all its devices, so no traces are kept."""
        return True

    def excludes(self, request: Request, device: PoolDevice) -> bool:
        """Whether it lacks the attribute; a value that is there twice now may be forgotten by then."""
        return self.applies(request) and self._of(request, device) is None

    def add(self, request: Request, device: PoolDevice) -> bool:
        """Takes a device in, unless it lacks the attribute or shares a value with another."""
        if not self.applies(request):
            return True
        attribute = self._of(request, device)
        if attribute is None:
            return False
        value = value_of(attribute, lists=self._lists)
        if self.devices and not differs(value, self.seen.values(), lists=self._lists):
            return False
        self.seen[request.base] = value
        self.devices += 1
        return True

    def remove(self, request: Request) -> None:
        """Takes back a device."""
        if self.applies(request):
            self.seen.pop(request.base, None)
            self.devices -= 1
