"""How much of a device's capacity a request consumes, by the request policy of the capacity.

A request that names no amount consumes the policy's default, or all of the capacity. A policy rounds up to its next
valid value, or to min plus whole steps; an amount that is still not valid is refused. Steps are counted in whole
numbers, or in thousandths if the feature DRAFractionalCapacityRange is on and min, max and step are multiples of 1m.
Source: KEP-5075; resource.k8s.io/v1 CapacityRequestPolicy, CapacityRequirements; k8s.io/dynamic-resource-allocation,
structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from dra_sdk.tools.scheduling.allocator.allocation_errors import AllocationError
from dra_sdk.tools.scheduling.allocator.devices import DeviceContent
from dra_sdk.tools.scheduling.allocator.features import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.quantities import (
    MAX_INT64,
    NANOS_PER_MILLI,
    NANOS_PER_UNIT,
    NanoQuantity,
    parse_quantity,
    rounded_quantity,
)


class ConsumedCapacity(NamedTuple):
    """What a request consumes of one capacity of a device.

    name: the name of the capacity.
    amount: what is consumed.
    available: how much the device has in total, in billionths.
    """

    name: str
    amount: NanoQuantity
    available: int


class CapacityRequest:
    """The capacity that a request asks of each device.

    `amounts` has the requested amounts by name, and is empty if nothing is requested. `where` names the request, for
    messages.
    """

    __slots__ = ("_consumed", "_features", "amounts", "where")

    def __init__(self, amounts: Mapping[str, NanoQuantity], features: SchedulerFeatures, where: str) -> None:
        self.amounts, self.where, self._features = amounts, where, features
        self._consumed: dict[DeviceContent, tuple[ConsumedCapacity, ...] | None] = {}

    def consumed_from(self, content: DeviceContent) -> tuple[ConsumedCapacity, ...] | None:
        """Return what is consumed from a device, see `consumed_capacities`; calculated once for each content."""
        try:
            return self._consumed[content]
        except KeyError:
            consumed = self._consumed[content] = self._consume(content)
            return consumed

    def _consume(self, content: DeviceContent) -> tuple[ConsumedCapacity, ...] | None:
        try:
            return consumed_capacities(self.amounts, content.device.get("capacity"), self._features)
        except AllocationError as error:
            raise AllocationError(f"{self.where}: {error}") from None

    def fits_unused(self, content: DeviceContent) -> bool:
        """Return whether an unused device has the requested capacity."""
        needed = self.consumed_from(content)
        return needed is not None and all(consumption.amount.nano <= consumption.available for consumption in needed)

    def raises_error_for(self, content: DeviceContent) -> bool:
        """Return whether asking a device for this capacity raises an error."""
        if content in self._consumed:
            return False
        try:
            self.consumed_from(content)
        except AllocationError:
            return True
        return False

    def most_of(self, content: DeviceContent, name: str, used: int) -> int | None:
        """Return the most that can be asked of a capacity of which `used` is in use, in billionths, as that is.

        None if nothing can: the device lacks the capacity, its policy allows no amount that is left, or it is wrong.
        """
        entry = (content.device.get("capacity") or {}).get(name)
        if entry is None:
            return None
        try:
            left = parse_quantity(entry.get("value")).nano - used
            return _largest_valid(left, entry.get("requestPolicy") or {})
        except ValueError:
            return None


def _largest_valid(limit: int, policy: Mapping[str, Any]) -> int | None:
    """Return the largest amount up to a limit that a CapacityRequestPolicy allows, in billionths; None without one."""
    if values := [parse_quantity(value).nano for value in policy.get("validValues") or ()]:
        return max((value for value in values if value <= limit), default=None)
    valid_range = {key: parse_quantity(value).nano for key, value in (policy.get("validRange") or {}).items()}
    minimum, limit = valid_range.get("min", 0), min(limit, valid_range.get("max", limit))
    if limit < minimum:
        return None
    step = valid_range.get("step")
    return minimum + (limit - minimum) // step * step if step else limit


def consumed_capacities(
    requested: Mapping[str, NanoQuantity],
    capacity: Mapping[str, Mapping[str, Any]] | None,
    features: SchedulerFeatures,
) -> tuple[ConsumedCapacity, ...] | None:
    """Return what a request consumes of each capacity of a device (`Device.capacity` of the API).

    None if the device cannot satisfy it: it lacks a capacity, or a policy forbids the amount. AllocationError for a
    capacity that is not a quantity, and for amounts that are negative or cannot be calculated in exact arithmetic.
    """
    capacity = capacity or {}
    if requested and any(name not in capacity for name in requested):
        return None
    # All amounts are calculated before any policy is checked, so that an error does not depend on the order.
    consumed = [_consumed_capacity(name, requested.get(name), entry, features) for name, entry in capacity.items()]
    if any(violates_policy(item.amount, capacity[item.name].get("requestPolicy"), features) for item in consumed):
        return None
    return tuple(consumed)


def _consumed_capacity(
    name: str, requested: NanoQuantity | None, capacity: Mapping[str, Any], features: SchedulerFeatures
) -> ConsumedCapacity:
    try:
        consumed = _amount_by_policy(requested, capacity, features)
        available = parse_quantity(capacity.get("value")).nano
    except ValueError as error:
        raise AllocationError(f"capacity {name}: {error}") from None
    if features.behaviour.exact_capacity and consumed.nano < 0:
        raise AllocationError(f"capacity {name}: {consumed.text} is negative")
    return ConsumedCapacity(name, consumed, available)


def _amount_by_policy(
    requested: NanoQuantity | None, capacity: Mapping[str, Any], features: SchedulerFeatures
) -> NanoQuantity:
    """Return what is consumed of a DeviceCapacity by a request for this amount, None for one that names no amount."""
    policy = capacity.get("requestPolicy") or {}
    if requested is None:
        default = policy.get("default")
        return parse_quantity(capacity.get("value") if default is None else default)
    valid_range = policy.get("validRange")
    if valid_range is not None and valid_range.get("min") is not None:
        return _round_to_range(requested, _ValidRange(valid_range, features))
    for value in policy.get("validValues") or []:
        if requested.nano <= parse_quantity(value).nano:
            return parse_quantity(value)
    return requested


class _ValidRange:
    """A CapacityRequestPolicyRange.

    `unit` is the unit in which steps are counted, in billionths; with `exact`, an amount that cannot be calculated
    exactly is an error.
    """

    __slots__ = ("exact", "maximum", "minimum", "step", "unit")

    def __init__(self, raw: Mapping[str, Any], features: SchedulerFeatures) -> None:
        minimum, self.maximum, step = (
            parse_quantity(raw[key]) if raw.get(key) is not None else None for key in ("min", "max", "step")
        )
        self.minimum = minimum or parse_quantity(0)
        self.step, self.exact = step, features.behaviour.exact_capacity
        bounds = [bound for bound in (minimum, self.maximum, step) if bound is not None]
        in_thousandths = features.fractional_ranges and all(bound.thousandths is not None for bound in bounds)
        if step is not None and step.nano < NANOS_PER_MILLI:
            in_thousandths = False
        self.unit = NANOS_PER_MILLI if in_thousandths else NANOS_PER_UNIT

    def count(self, value: NanoQuantity) -> int | None:
        """Return an amount in units; None if it is not a whole number of thousandths."""
        return value.thousandths if self.unit == NANOS_PER_MILLI else value.whole


def _round_to_range(requested: NanoQuantity, valid_range: _ValidRange) -> NanoQuantity:
    if requested.nano < valid_range.minimum.nano:
        return valid_range.minimum
    if valid_range.step is None or not (step := valid_range.count(valid_range.step)):
        return requested
    count, minimum = valid_range.count(requested), valid_range.count(valid_range.minimum) or 0
    if count is None:
        raise ValueError(f"{requested.text} is not a multiple of 1m up to {MAX_INT64}m")
    rounded = minimum + step * -(-(count - minimum) // step)
    if valid_range.exact and rounded > MAX_INT64:
        raise ValueError(f"{requested.text}, rounded up to whole steps of {valid_range.step.text}, is too large")
    binary = valid_range.step.has_binary_suffix or not valid_range.exact
    return rounded_quantity(rounded * valid_range.unit, binary=binary)


def violates_policy(consumed: NanoQuantity, policy: Mapping[str, Any] | None, features: SchedulerFeatures) -> bool:
    """Return whether a CapacityRequestPolicy forbids this amount."""
    if not policy:
        return False
    default = policy.get("default")
    if default is not None and consumed == parse_quantity(default):
        return False
    if (valid_range := policy.get("validRange")) is not None:
        return _is_out_of_range(consumed, _ValidRange(valid_range, features))
    values = policy.get("validValues") or ()
    return bool(values) and all(consumed.nano != parse_quantity(value).nano for value in values)


def _is_out_of_range(consumed: NanoQuantity, valid_range: _ValidRange) -> bool:
    if valid_range.maximum is not None and consumed.nano > valid_range.maximum.nano:
        return True
    if valid_range.step is None or not (step := valid_range.count(valid_range.step)):
        return False
    count = valid_range.count(consumed)
    return count is None or (count - (valid_range.count(valid_range.minimum) or 0)) % step != 0
