"""Counter sets, and what devices take out of them. Source: CounterSet, DeviceCounterConsumption, KEP-4815."""

from __future__ import annotations

from dra_sdk.wire.profile import (
    COUNTERS_PER_DEVICE_1_34,
    COUNTERS_PER_SLICE_1_34,
    DEVICE_COUNTERS_PER_SLICE_1_34,
    OLDEST,
    ServerProfile,
)
from dra_sdk.wire.resource.device import Counter, Device, DeviceCounterConsumption
from dra_sdk.wire.resource.slices import CounterSet, ResourceSliceSpec
from dra_sdk.wire.validation.lists import anything, check_map, check_set, text
from dra_sdk.wire.validation.names import MAX_LABEL, dns_label
from dra_sdk.wire.validation.problems import Problems, invalid, required, show


def counter_sets(sets: list[CounterSet] | None, field: str, profile: ServerProfile) -> Problems:
    """The counter sets of a slice."""

    def check(each: CounterSet, where: str) -> Problems:
        yield from _name(each.name, f"{where}.name")
        yield from _counters(each.counters, f"{where}.counters", profile)

    limit = profile.limits.counter_sets_per_slice
    yield from check_set(sets, field, check, profile, key=lambda each: each.name, key_field="name", at_most=limit)


def consumptions(device: Device, field: str, profile: ServerProfile) -> Problems:
    """What one device takes."""

    def check(each: DeviceCounterConsumption, where: str) -> Problems:
        # 1.34 checks no more than that the name is there: it must be found in the same slice.
        if profile.minor > OLDEST or not each.counter_set:
            yield from _name(each.counter_set, f"{where}.counterSet")
        yield from _counters(each.counters, f"{where}.counters", profile)
        groups, limit = each.compatibility_groups, profile.limits.compatibility_groups
        yield from check_set(groups, f"{where}.compatibilityGroups", dns_label, profile, key=text, at_most=limit)

    yield from check_set(
        device.consumes_counters,
        field,
        check,
        profile,
        key=lambda each: each.counter_set,
        key_field="counterSet",
        at_most=profile.limits.counter_sets_per_device,
    )


def counters_of_1_34(spec: ResourceSliceSpec, field: str) -> Problems:
    """Totals of a slice and references within it, which later releases count otherwise."""
    taken = sum(len(each.counters or ()) for device in spec.devices or () for each in device.consumes_counters or ())
    if taken > DEVICE_COUNTERS_PER_SLICE_1_34:
        limit = DEVICE_COUNTERS_PER_SLICE_1_34
        yield invalid(f"{field}.devices", f"must have at most {limit} counters in all devices, has {taken}")
    total = sum(len(each.counters or ()) for each in spec.shared_counters or ())
    if total > COUNTERS_PER_SLICE_1_34:
        limit = COUNTERS_PER_SLICE_1_34
        yield invalid(f"{field}.sharedCounters", f"must have at most {limit} counters in all, has {total}")
    known = {each.name: set(each.counters or ()) for each in spec.shared_counters or ()}
    for index, device in enumerate(spec.devices or ()):
        yield from _references(device, f"{field}.devices[{index}]", known)


def _references(device: Device, field: str, known: dict[str, set[str]]) -> Problems:
    total = sum(len(each.counters or ()) for each in device.consumes_counters or ())
    if total > COUNTERS_PER_DEVICE_1_34:
        yield invalid(field, f"must consume at most {COUNTERS_PER_DEVICE_1_34} counters, consumes {total}")
    for index, each in enumerate(device.consumes_counters or ()):
        where = f"{field}.consumesCounters[{index}]"
        if each.counter_set not in known:
            yield invalid(f"{where}.counterSet", f"must be a counter set of this slice, is {show(each.counter_set)}")
            continue
        for name in set(each.counters or ()) - known[each.counter_set]:
            yield invalid(f"{where}.counters", f"counter set {each.counter_set} has no counter {show(name)}")


def _name(name: str, field: str) -> Problems:
    if not name:
        yield required(field)
    else:
        yield from dns_label(name, field)


def _counters(counters: dict[str, Counter] | None, field: str, profile: ServerProfile) -> Problems:
    if not counters:
        yield required(field, "must have at least one counter")
        return
    limit = profile.limits.counters_per_set
    yield from check_map(counters, field, dns_label, anything, profile, longest_key=MAX_LABEL, at_most=limit)
