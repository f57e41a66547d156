"""How much of a device's capacity a request consumes, by the policy of the capacity.

A request that says nothing gets the policy's default, or all there is. A policy rounds up to its next valid value, or
to min plus whole steps; what is then still not valid cannot be had from the device.
Source: KEP-5075; resource.k8s.io/v1 CapacityRequestPolicy, CapacityRequirements.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dra_sdk.scheduling.allocator.amounts import Amount, amount, whole_binary
from dra_sdk.scheduling.allocator.devices import Content
from dra_sdk.scheduling.allocator.errors import AllocationError


class Consumption(NamedTuple):
    """What one capacity of a device would lose, and what it has in all (billionths)."""

    name: str
    amount: Amount
    available: int


class Demand:
    """The capacity that a request asks of each device: `amounts` by name, empty where it says nothing."""

    __slots__ = ("_known", "amounts")

    def __init__(self, amounts: Mapping[str, Amount]) -> None:
        self.amounts = amounts
        self._known: dict[Content, tuple[Consumption, ...] | None] = {}

    def of(self, content: Content) -> tuple[Consumption, ...] | None:
        """What a device would lose, see `consumption`; worked out once for each content."""
        try:
            return self._known[content]
        except KeyError:
            found = self._known[content] = consumption(self.amounts, content.device.get("capacity"))
            return found


def consumption(
    demand: Mapping[str, Amount], capacity: Mapping[str, Mapping[str, Any]] | None
) -> tuple[Consumption, ...] | None:
    """What a request for `demand` consumes of each capacity of a device (`Device.capacity` of the API).

    None if it cannot be had at all: the device lacks a capacity, or a policy forbids the amount. AllocationError for a
    capacity that is no quantity.
    """
    capacity = capacity or {}
    if demand and any(name not in capacity for name in demand):
        return None
    found = []
    for name, each in capacity.items():
        try:
            consumed = consumed_of(demand.get(name), each)
            if violates(consumed, each.get("requestPolicy")):
                return None
            found.append(Consumption(name, consumed, amount(each.get("value")).nano))
        except ValueError as error:
            raise AllocationError(f"capacity {name}: {error}") from None
    return tuple(found)


def consumed_of(requested: Amount | None, capacity: Mapping[str, Any]) -> Amount:
    """What is consumed of one DeviceCapacity when `requested` is asked for, or nothing is said."""
    policy = capacity.get("requestPolicy") or {}
    if requested is None:
        default = policy.get("default")
        return amount(capacity.get("value") if default is None else default)
    span = policy.get("validRange")
    if span is not None and span.get("min") is not None:
        return _in_range(requested, span)
    for value in policy.get("validValues") or []:
        if requested.nano <= amount(value).nano:
            return amount(value)
    return requested


def _in_range(requested: Amount, span: Mapping[str, Any]) -> Amount:
    low = amount(span["min"])
    if requested.nano < low.nano:
        return low
    step = _step(span)
    if not step:
        return requested
    steps = -(-(requested.whole - low.whole) // step)
    return whole_binary(low.whole + step * steps)


def violates(consumed: Amount, policy: Mapping[str, Any] | None) -> bool:
    """Whether a CapacityRequestPolicy forbids this amount."""
    if not policy:
        return False
    default = policy.get("default")
    if default is not None and consumed == amount(default):
        return False
    if (span := policy.get("validRange")) is not None:
        return _out_of_range(consumed, span)
    values = policy.get("validValues") or ()
    return bool(values) and all(consumed.nano != amount(value).nano for value in values)


def _out_of_range(consumed: Amount, span: Mapping[str, Any]) -> bool:
    high, step = span.get("max"), _step(span)
    if high is not None and consumed.nano > amount(high).nano:
        return True
    if not step:
        return False
    low = amount(span["min"]).whole if span.get("min") is not None else 0
    return (consumed.whole - low) % step != 0


def _step(span: Mapping[str, Any]) -> int:
    """The step as a whole number, 0 for none."""
    return amount(span["step"]).whole if span.get("step") is not None else 0
