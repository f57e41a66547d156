"""How much of a device's capacity a request consumes, by the policy of the capacity.

A request that says nothing gets the policy's default, or all there is. A policy rounds up to its next valid value, or
to min plus whole steps; what is then still not valid cannot be had from the device. Steps are counted in whole numbers,
or in thousandths where the feature DRAFractionalCapacityRange is on and all of min, max and step are such.
Source: KEP-5075; resource.k8s.io/v1 CapacityRequestPolicy, CapacityRequirements; k8s.io/dynamic-resource-allocation,
structured (1.36, 1.37).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Self

from dra_sdk.tools.scheduling.allocator.amounts import LARGEST, MILLI, UNIT, Amount, amount, written
from dra_sdk.tools.scheduling.allocator.devices import Content
from dra_sdk.tools.scheduling.allocator.errors import AllocationError
from dra_sdk.tools.scheduling.allocator.features import Features


class Consumption(NamedTuple):
    """What one capacity of a device would lose, and what it has in all (billionths)."""

    name: str
    amount: Amount
    available: int


@dataclass(frozen=True, slots=True)
class Arithmetic:
    """How the scheduler calculates: `exact` makes amounts that it cannot tell errors, `fractional` has thousandths."""

    exact: bool = False
    fractional: bool = False

    @classmethod
    def of(cls, features: Features) -> Self:
        """That of a release with these features."""
        return cls(features.behaviour.exact_amounts, features.fractional_ranges)


_OF_1_36: Final = Arithmetic()


class Demand:
    """The capacity that a request asks of each device: `amounts` by name, empty where it says nothing.

    `where` says whose demand it is, for messages.
    """

    __slots__ = ("_arithmetic", "_known", "amounts", "where")

    def __init__(
        self, amounts: Mapping[str, Amount], arithmetic: Arithmetic = _OF_1_36, where: str = "request"
    ) -> None:
        self.amounts, self.where, self._arithmetic = amounts, where, arithmetic
        self._known: dict[Content, tuple[Consumption, ...] | None] = {}

    def of(self, content: Content) -> tuple[Consumption, ...] | None:
        """What a device would lose, see `consumption`; worked out once for each content."""
        try:
            return self._known[content]
        except KeyError:
            found = self._known[content] = self._consumption(content)
            return found

    def _consumption(self, content: Content) -> tuple[Consumption, ...] | None:
        try:
            return consumption(self.amounts, content.device.get("capacity"), self._arithmetic)
        except AllocationError as error:
            raise AllocationError(f"{self.where}: {error}") from None

    def fits(self, content: Content) -> bool:
        """Whether a device has it while nobody else has any of it."""
        needed = self.of(content)
        return needed is not None and all(each.amount.nano <= each.available for each in needed)

    def fails(self, content: Content) -> bool:
        """Whether asking it of a device is an error."""
        if content in self._known:
            return False
        try:
            self.of(content)
        except AllocationError:
            return True
        return False


def consumption(
    demand: Mapping[str, Amount],
    capacity: Mapping[str, Mapping[str, Any]] | None,
    arithmetic: Arithmetic = _OF_1_36,
) -> tuple[Consumption, ...] | None:
    """What a request for `demand` consumes of each capacity of a device (`Device.capacity` of the API).

    None if it cannot be had at all: the device lacks a capacity, or a policy forbids the amount. AllocationError for a
    capacity that is no quantity, and where exact arithmetic is impossible or gives less than nothing.
    """
    capacity = capacity or {}
    if demand and any(name not in capacity for name in demand):
        return None
    # An error counts whichever capacity comes first, so all amounts are worked out before any is judged.
    found = [_consumption(name, demand.get(name), each, arithmetic) for name, each in capacity.items()]
    if any(violates(each.amount, capacity[each.name].get("requestPolicy"), arithmetic) for each in found):
        return None
    return tuple(found)


def _consumption(
    name: str, requested: Amount | None, capacity: Mapping[str, Any], arithmetic: Arithmetic
) -> Consumption:
    try:
        consumed = consumed_of(requested, capacity, arithmetic)
        return Consumption(name, consumed, amount(capacity.get("value")).nano)
    except ValueError as error:
        raise AllocationError(f"capacity {name}: {error}") from None


def consumed_of(requested: Amount | None, capacity: Mapping[str, Any], arithmetic: Arithmetic = _OF_1_36) -> Amount:
    """What is consumed of one DeviceCapacity when `requested` is asked for, or nothing is said.

    ValueError if that cannot be told, or is less than nothing.
    """
    found = _by_policy(requested, capacity, arithmetic)
    if arithmetic.exact and found.nano < 0:
        raise ValueError(f"{found.text} is less than nothing")
    return found


def _by_policy(requested: Amount | None, capacity: Mapping[str, Any], arithmetic: Arithmetic) -> Amount:
    policy = capacity.get("requestPolicy") or {}
    if requested is None:
        default = policy.get("default")
        return amount(capacity.get("value") if default is None else default)
    span = policy.get("validRange")
    if span is not None and span.get("min") is not None:
        return _in_range(requested, _Span(span, arithmetic))
    for value in policy.get("validValues") or []:
        if requested.nano <= amount(value).nano:
            return amount(value)
    return requested


class _Span:
    """A CapacityRequestPolicyRange; `unit` is what steps are counted in (billionths), `step` 0 where there is none."""

    __slots__ = ("arithmetic", "high", "low", "step", "unit")

    def __init__(self, raw: Mapping[str, Any], arithmetic: Arithmetic) -> None:
        low, self.high, step = (
            amount(raw[key]) if raw.get(key) is not None else None for key in ("min", "max", "step")
        )
        self.low = low or amount(0)
        self.step, self.arithmetic = step, arithmetic
        given = [each for each in (low, self.high, step) if each is not None]
        thousandths = arithmetic.fractional and all(each.thousandths is not None for each in given)
        self.unit = MILLI if thousandths and (step is None or step.nano >= MILLI) else UNIT

    def count(self, value: Amount) -> int | None:
        """An amount in units, None if it is none."""
        return value.thousandths if self.unit == MILLI else value.whole


def _in_range(requested: Amount, span: _Span) -> Amount:
    if requested.nano < span.low.nano:
        return span.low
    if span.step is None or not (step := span.count(span.step)):
        return requested
    asked, low = span.count(requested), span.count(span.low) or 0
    if asked is None:
        raise ValueError(f"{requested.text} is no multiple of 1m up to {LARGEST}m")
    found = low + step * -(-(asked - low) // step)
    if span.arithmetic.exact and found > LARGEST:
        raise ValueError(f"{requested.text}, rounded up to whole steps of {span.step.text}, is too large")
    return written(found * span.unit, binary=span.step.binary or not span.arithmetic.exact)


def violates(consumed: Amount, policy: Mapping[str, Any] | None, arithmetic: Arithmetic = _OF_1_36) -> bool:
    """Whether a CapacityRequestPolicy forbids this amount."""
    if not policy:
        return False
    default = policy.get("default")
    if default is not None and consumed == amount(default):
        return False
    if (span := policy.get("validRange")) is not None:
        return _out_of_range(consumed, _Span(span, arithmetic))
    values = policy.get("validValues") or ()
    return bool(values) and all(consumed.nano != amount(value).nano for value in values)


def _out_of_range(consumed: Amount, span: _Span) -> bool:
    if span.high is not None and consumed.nano > span.high.nano:
        return True
    if span.step is None or not (step := span.count(span.step)):
        return False
    found = span.count(consumed)
    return found is None or (found - (span.count(span.low) or 0)) % step != 0
