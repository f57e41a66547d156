"""A device as an expression sees it.

A name without a domain belongs to the driver's domain. An unknown domain is an empty map, and an unknown name in a
domain is an error. Source: k8s.io/dynamic-resource-allocation, cel/compile.go, type Device.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Self

from dra_sdk.cel.values import EvaluationError, Semver, go_text, is_list
from dra_sdk.model.device import Amount, Capacity, Device, Version
from dra_sdk.model.quantity import Quantity

_KINDS: Final = ("int", "bool", "string", "version")


class Domains(dict[str, dict[str, Any]]):
    """Attributes or capacities by domain. An unknown domain is an empty map, although it is not `in` this map."""

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


class DeviceView:
    """The variable `device` of an expression.

    Attributes and capacities are those of `dra_sdk.model.device`. Their values are converted when an expression first
    needs them, so keep a view to evaluate many expressions on one device.

    driver: the name of the driver.
    lists: the names of the attributes that are lists.
    """

    __slots__ = ("_attributes", "_capacity", "_multiple", "_values", "driver", "lists")

    def __init__(
        self,
        driver: str,
        attributes: Mapping[str, Any] | None = None,
        capacity: Mapping[str, Capacity | Amount] | None = None,
        *,
        allow_multiple_allocations: bool = False,
    ) -> None:
        self.driver = driver
        self._attributes, self._capacity = attributes or {}, capacity or {}
        self._multiple = allow_multiple_allocations
        self._values: dict[str, Any] | None = None
        self.lists = [name for name, value in self._attributes.items() if is_list(value)]

    @classmethod
    def of(cls, device: Device, driver: str) -> Self:
        """Return the view of a device as a driver describes it."""
        multiple = device.allow_multiple_allocations
        return cls(driver, device.attributes, device.capacity, allow_multiple_allocations=multiple)

    @classmethod
    def from_json(cls, device: Mapping[str, Any], driver: str) -> Self:
        """Return the view of one entry of `spec.devices` of a ResourceSlice."""
        attributes = {name: _from_json(value) for name, value in (device.get("attributes") or {}).items()}
        capacity = {name: value.get("value") for name, value in (device.get("capacity") or {}).items()}
        multiple = bool(device.get("allowMultipleAllocations"))
        return cls(driver, attributes, capacity, allow_multiple_allocations=multiple)

    def values(self) -> dict[str, Any]:
        """Return the fields of `device`; EvaluationError if an attribute or a capacity is invalid."""
        if self._values is None:
            self._values = {
                "driver": self.driver,
                "allowMultipleAllocations": self._multiple,
                "attributes": self._domains("attribute", self._attributes, _attribute),
                "capacity": self._domains("capacity", self._capacity, _amount),
            }
        return self._values

    def _domains(self, what: str, values: Mapping[str, Any], read: Callable[[Any], Any]) -> Domains:
        domains = Domains()
        for name, value in values.items():
            domain, slash, key = name.partition("/")
            if not slash:
                domain, key = self.driver, name
            try:
                domains.setdefault(domain, {})[key] = read(value)
            except ValueError as error:
                raise EvaluationError(f"{what} {name}: {error}") from None
        return domains


def _from_json(value: Mapping[str, Any]) -> Any:
    for kind in _KINDS:
        if (scalar := value.get(kind)) is not None:
            return Version(scalar) if kind == "version" else scalar
        if (items := value.get(f"{kind}s")) is not None:
            return [Version(item) for item in items] if kind == "version" else items
    return None


def _attribute(value: Any) -> Any:
    """Return a plain value, because subclasses such as enumerations compare differently."""
    if isinstance(value, Version):
        return Semver(str.__str__(value))
    if isinstance(value, str):
        return go_text(str.__str__(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if is_list(value):
        return [_attribute(item) for item in value]
    raise ValueError("unsupported attribute value")


def _amount(value: Capacity | Amount) -> Quantity:
    return Quantity(value.value if isinstance(value, Capacity) else value)
