"""Constraints between the devices of a claim: attributes that must match, or must be distinct.

With the feature DRAListTypeAttributes an attribute is a set of values, and a single value is a set of one: devices
match if all of them have a value in common, and are distinct if no two of them do. Without the feature, lists are
unknown values. Since 1.37, a request may derive an attribute by an expression (`derivedAttributes`).

Up to 1.36, kube-scheduler has three bugs. They are reproduced, because this package predicts what kube-scheduler does:

- matchAttribute: when a device is removed, the shared values stay as narrow as they were (`LegacyMatchAttribute`).
- distinctAttribute: of each request only the last device is remembered, and no device once one was removed, even one
  that a later constraint rejected (`LegacyDistinctAttribute`).
- distinctAttribute: the value of the first device is not checked (`LegacyDistinctAttribute`).

Source: resource.k8s.io/v1 DeviceConstraint; k8s.io/dynamic-resource-allocation, structured (1.36, 1.37).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from typing import Any, Final

from dra_sdk.tools.scheduling.allocator.claim_requests import ParsedRequest
from dra_sdk.tools.scheduling.allocator.devices import PoolDevice
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures

AttributeValues = tuple[str, frozenset[Any]]
"""The type of an attribute and its values."""
_REJECTED: Final[AttributeValues] = ("rejected", frozenset())
_LIST_FIELDS: Final = (("int", "ints"), ("bool", "bools"), ("string", "strings"), ("version", "versions"))
_SCALAR_FIELDS: Final = ("string", "int", "bool", "version")
"""The order matters for an attribute with several fields; it depends on the feature."""
_SCALAR_FIELDS_WITH_LISTS: Final = ("int", "bool", "string", "version")


def attribute_values(attribute: Mapping[str, Any], *, lists: bool) -> AttributeValues | None:
    """Return the type and values of a DeviceAttribute, None for an unknown type; `lists` is the feature gate."""
    if lists:
        for kind, name in _LIST_FIELDS:
            if values := attribute.get(name):
                return kind, frozenset(values)
    for kind in _SCALAR_FIELDS_WITH_LISTS if lists else _SCALAR_FIELDS:
        if (value := attribute.get(kind)) is not None:
            return kind, frozenset((value,))
    return None


def request_attribute(request: ParsedRequest, device: PoolDevice, name: str) -> Mapping[str, Any] | None:
    """Return an attribute as a request derives it, or else as the driver published it.

    AllocationError for a derived attribute that cannot be evaluated.
    """
    derived = request.derived_attributes.get(name)
    return device.attribute(name) if derived is None else derived.value_for(device)


def shared_values(left: AttributeValues, right: AttributeValues) -> frozenset[Any]:
    """Return the values that are in both."""
    return left[1] & right[1] if left[0] == right[0] else frozenset()


class Constraint(ABC):
    """A constraint of a claim on an attribute, while its devices are chosen; without `requests` it covers all requests.

    values: what is remembered of the devices so far, one entry for each; None for unknown values.
    forgets_on_removal: whether it forgets devices that stay when it removes one that a later constraint rejected.
    """

    __slots__ = ("_lists", "attribute", "requests", "values")
    forgets_on_removal = False

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        self.attribute, self.requests, self._lists = attribute, requests, lists
        self.values: list[AttributeValues | None] = []

    @property
    def depends_on_removed(self) -> bool:
        """Whether devices that were removed still affect which devices are accepted."""
        return False

    def applies_to(self, request: ParsedRequest) -> bool:
        """Return whether it names the request, or the request of which it is an alternative, or no request."""
        return not self.requests or request.base_name in self.requests or request.reference in self.requests

    def excludes(self, request: ParsedRequest, device: PoolDevice) -> bool:
        """Return whether a device cannot be added, now or after any other devices."""
        return self.applies_to(request) and self._checked(request, device) is _REJECTED

    def add(self, request: ParsedRequest, device: PoolDevice) -> bool:
        """Add a device; False if that would violate the constraint."""
        if not self.applies_to(request):
            return True
        values = self._checked(request, device)
        if values is _REJECTED:
            return False
        self.values.append(values)
        return True

    def remove(self, request: ParsedRequest) -> None:
        """Remove the device that `add` added last."""
        if self.applies_to(request):
            self.values.pop()

    def _checked(self, request: ParsedRequest, device: PoolDevice) -> AttributeValues | None:
        """Return what to remember of one more device, `_REJECTED` if it cannot be added."""
        attribute = request_attribute(request, device, self.attribute)
        return _REJECTED if attribute is None else self._joined(attribute_values(attribute, lists=self._lists))

    @abstractmethod
    def _joined(self, value: AttributeValues | None) -> AttributeValues | None:
        """Return what to remember of one more device with these values, `_REJECTED` if it cannot be added."""


def make_constraint(raw: Mapping[str, Any], features: SchedulerFeatures) -> Constraint:
    """Return the constraint for a DeviceConstraint, with no devices yet."""
    names = frozenset(raw.get("requests") or ())
    exact, lists = features.behaviour.constraints_keep_all_devices, features.list_attributes
    if attribute := raw.get("matchAttribute"):
        return (MatchAttribute if exact else LegacyMatchAttribute)(attribute, names, lists=lists)
    return (DistinctAttribute if exact else LegacyDistinctAttribute)(raw["distinctAttribute"], names, lists=lists)


class MatchAttribute(Constraint):
    """All devices have the same value of an attribute.

    `values` has, for each device, the values that it has in common with those before; None while they are unknown.
    """

    __slots__ = ()

    def _joined(self, value: AttributeValues | None) -> AttributeValues | None:
        if not self.values:
            # Without lists, an unknown value is only noticed once there is another one to compare it with.
            return _REJECTED if value is None and self._lists else value
        before = self.values[-1]
        shared = shared_values(before, value) if before and value else None
        return (value[0], shared) if shared and value else _REJECTED


class LegacyMatchAttribute(MatchAttribute):
    """matchAttribute up to 1.36: removing a device does not widen the shared values again."""

    __slots__ = ()

    @property
    def depends_on_removed(self) -> bool:
        """Only with lists, because the shared values stay as narrow as they were."""
        return self._lists

    def remove(self, request: ParsedRequest) -> None:
        """Remove a device; the shared values stay as they are."""
        if self.applies_to(request):
            last = self.values.pop()
            if self.values:
                self.values[-1] = last


class DistinctAttribute(Constraint):
    """No two devices have the same value of an attribute."""

    __slots__ = ()

    def _joined(self, value: AttributeValues | None) -> AttributeValues | None:
        return value if is_distinct(value, self.values, lists=self._lists) else _REJECTED


def is_distinct(value: AttributeValues | None, others: Collection[AttributeValues | None], *, lists: bool) -> bool:
    """Return whether values, None for unknown ones, have nothing in common with any of the others."""
    if value is None:
        # Without lists, an unknown value is only noticed once there is another one to compare it with.
        return not lists and not others
    return not any(other and shared_values(value, other) for other in others)


class LegacyDistinctAttribute(Constraint):
    """distinctAttribute up to 1.36: the values of one device for each request are remembered.

    The first device is never checked, and removing a device forgets all devices of its request, even if a later
    constraint rejected it. Nothing else is lost, as backtracking removes all of them.
    """

    __slots__ = ("_devices", "_values_by_request")
    forgets_on_removal = True

    def __init__(self, attribute: str, requests: frozenset[str], *, lists: bool) -> None:
        super().__init__(attribute, requests, lists=lists)
        self._devices = 0
        self._values_by_request: dict[str, AttributeValues | None] = {}

    def excludes(self, request: ParsedRequest, device: PoolDevice) -> bool:
        """Return whether the device lacks the attribute; a value that occurs twice may be forgotten later."""
        return self.applies_to(request) and request_attribute(request, device, self.attribute) is None

    def add(self, request: ParsedRequest, device: PoolDevice) -> bool:
        """Add a device; False if it lacks the attribute or shares a value with another."""
        if not super().add(request, device):
            return False
        if self.applies_to(request):
            self._values_by_request[request.base_name] = self.values.pop()
            self._devices += 1
        return True

    def remove(self, request: ParsedRequest) -> None:
        """Remove a device."""
        if self.applies_to(request):
            self._values_by_request.pop(request.base_name, None)
            self._devices -= 1

    def _joined(self, value: AttributeValues | None) -> AttributeValues | None:
        others = self._values_by_request.values()
        return value if not self._devices or is_distinct(value, others, lists=self._lists) else _REJECTED
