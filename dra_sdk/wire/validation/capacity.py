"""The amounts of a device: its capacities, the counters that it consumes, the node resources that it uses.

Source: CapacityRequestPolicy (KEP-5075), CounterSet and DeviceCounterConsumption (KEP-4815), and
NodeAllocatableResource (KEP-5517, which 1.36 and 1.37 define differently).
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from itertools import pairwise
from typing import Final

from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.profile import (
    COUNTERS_PER_DEVICE_1_34,
    COUNTERS_PER_SLICE_1_34,
    DEVICE_COUNTERS_PER_SLICE_1_34,
    OLDEST,
    ServerProfile,
)
from dra_sdk.wire.resource.slices import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    Counter,
    CounterSet,
    Device,
    DeviceCapacity,
    DeviceCounterConsumption,
    NodeAllocatableMapping,
    NodeAllocatableOverhead,
    NodeAllocatableResource,
    NodeAllocatableResourceMapping,
    ResourceSliceSpec,
)
from dra_sdk.wire.validation.names import MAX_LABEL, dns_label
from dra_sdk.wire.validation.problems import Problems, forbidden, invalid, not_found, required, show
from dra_sdk.wire.validation.rules import accept, check_map, check_set, if_given, if_set

_MAX: Final = 2**63 - 1
_FIRST_WITH_STEP_RULES: Final = 37
FRACTIONS: Final = "DRAFractionalCapacityRange"


def capacity(value: DeviceCapacity, field: str, profile: ServerProfile, *, shared: bool) -> Problems:
    """Check one capacity. Only a device that allows multiple allocations (`shared`) may have a policy."""
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
        yield required(f"{field}.default", "must be set if validValues or validRange is set")
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
        yield invalid(field, f"must contain the default {default}")


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
    too_fine = [name for name, amount in amounts.items() if fractional and not _is_milli(amount)]
    for name in too_fine:
        yield invalid(f"{field}.{name}", f"must be a multiple of 1m no larger than {_MAX}m, is {amounts[name]}")
    step, low = amounts.get("step"), amounts["min"]
    if too_fine or step is None:
        return
    newer = profile.minor >= _FIRST_WITH_STEP_RULES
    if step <= 0 if newer else int(step) == 0:  # older servers divide by it without this check
        yield invalid(f"{field}.step", f"must be greater than zero, is {step}")
        return
    if low.value + step.value > available.value:
        yield invalid(f"{field}.step", f"min {low} and one step {step} exceed the capacity of {available}")
    bounded = newer and not fractional
    too_large = [name for name, amount in amounts.items() if bounded and not 0 <= amount.value <= _MAX]
    for name in too_large:
        yield invalid(f"{field}.{name}", f"must be from 0 to {_MAX}, is {amounts[name]}")
    for name in ("default", "max") if not too_large else ():
        if name in amounts and not _on_step(amounts[name], low, step, exact=fractional):
            yield invalid(f"{field}.step", f"{name} {amounts[name]} is not min {low} and a multiple of {step}")


def _is_milli(amount: Quantity) -> bool:
    milli = amount.value * 1000
    return milli.denominator == 1 and abs(milli) <= _MAX


def _on_step(value: Quantity, low: Quantity, step: Quantity, *, exact: bool) -> bool:
    """Return whether a value is `low` and a multiple of `step`. Servers round both first unless `exact`."""
    if exact:
        return (value.value - low.value) % step.value == 0
    return (int(value) - int(low)) % int(step) == 0


def counter_sets(sets: list[CounterSet] | None, field: str, profile: ServerProfile) -> Problems:
    """Check the counter sets of a slice."""

    def check(counter_set: CounterSet, where: str) -> Problems:
        yield from if_given(dns_label, counter_set.name, f"{where}.name")
        yield from _counters(counter_set.counters, f"{where}.counters", profile)

    limit = profile.limits.counter_sets_per_slice
    yield from check_set(sets, field, check, profile, key_field="name", at_most=limit)


def consumptions(device: Device, field: str, profile: ServerProfile) -> Problems:
    """Check the counters that one device consumes."""

    def check(consumption: DeviceCounterConsumption, where: str) -> Problems:
        # 1.34 checks only that the name is set. The counter set must be in the same slice.
        if profile.minor > OLDEST or not consumption.counter_set:
            yield from if_given(dns_label, consumption.counter_set, f"{where}.counterSet")
        yield from _counters(consumption.counters, f"{where}.counters", profile)
        groups, limit = consumption.compatibility_groups, profile.limits.compatibility_groups
        yield from check_set(groups, f"{where}.compatibilityGroups", dns_label, profile, at_most=limit)

    limit = profile.limits.counter_sets_per_device
    yield from check_set(device.consumes_counters, field, check, profile, key_field="counterSet", at_most=limit)


def counters_of_1_34(spec: ResourceSliceSpec, field: str) -> Problems:
    """Check totals of a slice and references within it as 1.34 does. Later releases count differently."""
    consumed = sum(len(use.counters or ()) for device in spec.devices or () for use in device.consumes_counters or ())
    if consumed > DEVICE_COUNTERS_PER_SLICE_1_34:
        limit = DEVICE_COUNTERS_PER_SLICE_1_34
        yield invalid(f"{field}.devices", f"must have at most {limit} counters in all devices, has {consumed}")
    total = sum(len(counter_set.counters or ()) for counter_set in spec.shared_counters or ())
    if total > COUNTERS_PER_SLICE_1_34:
        limit = COUNTERS_PER_SLICE_1_34
        yield invalid(f"{field}.sharedCounters", f"must have at most {limit} counters in all, has {total}")
    known = {counter_set.name: set(counter_set.counters or ()) for counter_set in spec.shared_counters or ()}
    for index, device in enumerate(spec.devices or ()):
        yield from _references(device, f"{field}.devices[{index}]", known)


def _references(device: Device, field: str, known: dict[str, set[str]]) -> Problems:
    total = sum(len(consumption.counters or ()) for consumption in device.consumes_counters or ())
    if total > COUNTERS_PER_DEVICE_1_34:
        yield invalid(field, f"must consume at most {COUNTERS_PER_DEVICE_1_34} counters, consumes {total}")
    for index, taken in enumerate(device.consumes_counters or ()):
        where = f"{field}.consumesCounters[{index}]"
        if taken.counter_set not in known:
            yield invalid(f"{where}.counterSet", f"must be a counter set of this slice, is {show(taken.counter_set)}")
            continue
        for name in set(taken.counters or ()) - known[taken.counter_set]:
            yield invalid(f"{where}.counters", f"counter set {taken.counter_set} has no counter {show(name)}")


def _counters(counters: dict[str, Counter] | None, field: str, profile: ServerProfile) -> Problems:
    if not counters:
        yield required(field, "must have at least one counter")
        return
    limit = profile.limits.counters_per_set
    yield from check_map(counters, field, dns_label, accept, profile, longest_key=MAX_LABEL, at_most=limit)


def node_allocatable(device: Device, field: str) -> Problems:
    """Check the node allocatable resources of a device, in the form of 1.36 or of 1.37."""
    capacities = device.capacity or {}
    for name, mapping in (device.node_allocatable_resource_mappings or {}).items():
        yield from _mapping_of_1_36(name, mapping, f"{field}.nodeAllocatableResourceMappings[{name}]", capacities)
    for name, resource in (device.node_allocatable_resources or {}).items():
        yield from _resource(name, resource, f"{field}.nodeAllocatableResources[{name}]", capacities)


def _mapping_of_1_36(
    name: str, mapping: NodeAllocatableResourceMapping, field: str, capacities: Mapping[str, object]
) -> Problems:
    if "/" in name and "kubernetes.io/" not in name:
        yield invalid(field, "must be a resource of nodes, such as cpu or memory")
    if mapping.allocation_multiplier is None and mapping.capacity_key is None:
        yield invalid(field, "must have an allocationMultiplier or a capacityKey")
    yield from _positive(mapping.allocation_multiplier, f"{field}.allocationMultiplier")
    yield from _capacity_key(mapping.capacity_key, f"{field}.capacityKey", capacities)


def _resource(name: str, value: NodeAllocatableResource, field: str, capacities: Mapping[str, object]) -> Problems:
    if name not in {"cpu", "memory"} and not name.startswith("hugepages-"):
        yield invalid(field, "must be cpu, memory or a size of huge pages")
    if value.mapping is None and value.overhead is None:
        yield required(field, "must have a mapping or an overhead")
    if value.mapping is not None:
        yield from _mapping(value.mapping, f"{field}.mapping", capacities)
    yield from if_set(_overhead, value.overhead, f"{field}.overhead")


def _mapping(mapping: NodeAllocatableMapping, field: str, capacities: Mapping[str, object]) -> Problems:
    by_capacity = mapping.capacity_key is not None
    if by_capacity == (mapping.device_multiplier is not None):
        yield invalid(field, "must have either a capacityKey or a deviceMultiplier")
    yield from _capacity_key(mapping.capacity_key, f"{field}.capacityKey", capacities)
    if by_capacity and mapping.capacity_multiplier is None:
        yield required(f"{field}.capacityMultiplier", "must be set if capacityKey is set")
    elif by_capacity:
        yield from _positive(mapping.capacity_multiplier, f"{field}.capacityMultiplier")
    elif mapping.capacity_multiplier is not None:
        yield required(f"{field}.capacityKey", "must be set if capacityMultiplier is set")
    yield from _positive(mapping.device_multiplier, f"{field}.deviceMultiplier")


def _overhead(overhead: NodeAllocatableOverhead, field: str) -> Problems:
    amounts = {"perPod": overhead.per_pod, "perContainer": overhead.per_container}
    if not any(amount is not None for amount in amounts.values()):
        yield invalid(field, "must have perPod or perContainer")
    for name, amount in amounts.items():
        if amount is not None and amount < 0:
            yield invalid(f"{field}.{name}", f"must not be negative, is {amount}")


def _positive(amount: Quantity | None, field: str) -> Problems:
    if amount is not None and amount <= 0:
        yield invalid(field, f"must be greater than zero, is {amount}")


def _capacity_key(key: str | None, field: str, capacities: Mapping[str, object]) -> Problems:
    if key == "":
        yield invalid(field, "must not be empty")
    elif key is not None and key not in capacities:
        yield not_found(field, f"the device has no capacity {show(key)}")
