"""Capacities of a device, and how requests may share them. Source: CapacityRequestPolicy validation, KEP-5075."""

from __future__ import annotations

from collections.abc import Hashable
from itertools import pairwise
from typing import Final

from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.device import CapacityRequestPolicy, CapacityRequestPolicyRange, DeviceCapacity
from dra_sdk.wire.validation.lists import check_set
from dra_sdk.wire.validation.problems import Problems, forbidden, invalid, required

_MAX: Final = 2**63 - 1
_FIRST_WITH_STEP_RULES: Final = 37
FRACTIONS: Final = "DRAFractionalCapacityRange"


def capacity(value: DeviceCapacity, field: str, profile: ServerProfile, *, shared: bool) -> Problems:
    """One capacity; a policy is for devices that allow multiple allocations (`shared`)."""
    policy, where = value.request_policy, f"{field}.requestPolicy"
    if policy is None:
        return
    if not shared:
        yield forbidden(where, "allowMultipleAllocations must be true to have a policy")
    elif policy.valid_values and policy.valid_range is not None:
        yield forbidden(where, "must have validValues or validRange, not both")
    elif policy.valid_values or policy.valid_range is not None:
        yield from _policy(value.value, policy, where, profile)


def _policy(available: Quantity, policy: CapacityRequestPolicy, field: str, profile: ServerProfile) -> Problems:
    if policy.default is None:
        yield required(f"{field}.default", "must be set beside validValues or validRange")
    elif policy.valid_values:
        yield from _values(available, policy.default, policy.valid_values, f"{field}.validValues", profile)
    elif policy.valid_range is not None:
        yield from _range(available, policy.default, policy.valid_range, f"{field}.validRange", profile)


def _values(
    available: Quantity, default: Quantity, values: list[Quantity], field: str, profile: ServerProfile
) -> Problems:
    def fits(value: Quantity, where: str) -> Problems:
        if value > available:
            yield invalid(where, f"must be at most the capacity of {available}, is {value}")

    def key(value: Quantity) -> Hashable:
        return value.value if profile.enabled(FRACTIONS) else int(value)

    for index, (before, value) in enumerate(pairwise(values)):
        if before > value:
            yield invalid(f"{field}[{index + 1}]", f"values must ascend, but {value} follows {before}")
    limit = profile.limits.valid_values
    yield from check_set(values, field, fits, profile, key=key, at_most=limit)
    if default not in values or (len(values) > limit and profile.minor > OLDEST):
        yield invalid(field, f"must hold the default {default}")


def _range(
    available: Quantity, default: Quantity, span: CapacityRequestPolicyRange, field: str, profile: ServerProfile
) -> Problems:
    if span.min is None:
        yield required(f"{field}.min", "must be set in a validRange")
        return
    newer = profile.minor >= _FIRST_WITH_STEP_RULES
    if span.min > available:
        yield invalid(f"{field}.min", f"must be at most the capacity of {available}, is {span.min}")
    if default < span.min:
        yield invalid(f"{field}.{'default' if newer else 'min'}", f"the default {default} is below min {span.min}")
    if span.max is not None:
        if span.min > span.max:
            yield invalid(f"{field}.max", f"must be at least min {span.min}, is {span.max}")
        if span.max > available:
            yield invalid(f"{field}.max", f"must be at most the capacity of {available}, is {span.max}")
        if default > span.max:
            yield invalid(f"{field}.{'default' if newer else 'max'}", f"the default {default} is above max {span.max}")
    given = {"default": default, "min": span.min, "max": span.max, "step": span.step}
    amounts = {name: amount for name, amount in given.items() if amount is not None}
    yield from _steps(available, amounts, field, profile)


def _steps(available: Quantity, amounts: dict[str, Quantity], field: str, profile: ServerProfile) -> Problems:
    fractional = profile.enabled(FRACTIONS) and any(amount.value.denominator != 1 for amount in amounts.values())
    fine = [name for name, amount in amounts.items() if fractional and not _is_milli(amount)]
    for name in fine:
        yield invalid(f"{field}.{name}", f"must be a multiple of 1m no larger than {_MAX}m, is {amounts[name]}")
    step, low = amounts.get("step"), amounts["min"]
    if fine or step is None:
        return
    newer = profile.minor >= _FIRST_WITH_STEP_RULES
    if step <= 0 if newer else int(step) == 0:  # older servers divide by it unchecked
        yield invalid(f"{field}.step", f"must be greater than zero, is {step}")
        return
    if low.value + step.value > available.value:
        yield invalid(f"{field}.step", f"min {low} and one step {step} exceed the capacity of {available}")
    wide = [name for name, amount in amounts.items() if newer and not fractional and not 0 <= amount.value <= _MAX]
    for name in wide:
        yield invalid(f"{field}.{name}", f"must be from 0 to {_MAX}, is {amounts[name]}")
    for name in ("default", "max") if not wide else ():
        if name in amounts and not _on_step(amounts[name], low, step, exact=fractional):
            yield invalid(f"{field}.step", f"{name} {amounts[name]} is not min {low} and a multiple of {step}")


def _is_milli(amount: Quantity) -> bool:
    milli = amount.value * 1000
    return milli.denominator == 1 and abs(milli) <= _MAX


def _on_step(value: Quantity, low: Quantity, step: Quantity, *, exact: bool) -> bool:
    """Whether a value can be reached in steps; servers round amounts up to whole numbers unless `exact`."""
    if exact:
        return (value.value - low.value) % step.value == 0
    return (int(value) - int(low)) % int(step) == 0
