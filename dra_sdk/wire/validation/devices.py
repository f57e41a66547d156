"""One device of a ResourceSlice, with all its parts. Source: resource.k8s.io Device validation."""

from __future__ import annotations

from typing import Final

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.device import Device, DeviceAttribute, DeviceCapacity, DeviceTaint
from dra_sdk.wire.validation.allocatable import node_allocatable
from dra_sdk.wire.validation.attributes import attribute, has_lists, value_count
from dra_sdk.wire.validation.binding import binding_conditions
from dra_sdk.wire.validation.capacity import capacity
from dra_sdk.wire.validation.counters import consumptions
from dra_sdk.wire.validation.equality import same
from dra_sdk.wire.validation.lists import check_list, check_map
from dra_sdk.wire.validation.names import MAX_QUALIFIED, dns_label, qualified_name
from dra_sdk.wire.validation.nodes import node_name, node_selector
from dra_sdk.wire.validation.problems import Problems, invalid, required
from dra_sdk.wire.validation.taints import taint

_FIRST_WITH_LISTS: Final = 36
_FIRST_TO_KEEP_CAPACITY: Final = 37


def device(value: Device, field: str, profile: ServerProfile, *, old: Device | None, selects_nodes: bool) -> Problems:
    """A device.

    `old` is the device of that name in the stored slice, `selects_nodes` the slice's perDeviceNodeSelection.
    """
    yield from dns_label(value.name, f"{field}.name")
    yield from _sizes(value, field, profile)
    yield from _attributes(value, field, profile)
    if old is None or profile.minor < _FIRST_TO_KEEP_CAPACITY or not same(value.capacity, old.capacity):
        yield from _capacities(value, field, profile)
    if old is None or profile.minor == OLDEST or not same(value.taints, old.taints):
        yield from _taints(value, field, profile)
    yield from consumptions(value, f"{field}.consumesCounters", profile)
    yield from _nodes(value, field, selects_nodes)
    yield from binding_conditions(value.binding_conditions, value.binding_failure_conditions, field, profile)
    yield from node_allocatable(value, field)


def is_advanced(value: Device, profile: ServerProfile) -> bool:
    """Whether the device makes its slice one that may hold fewer devices."""
    return bool(value.taints or value.consumes_counters or (has_lists(value) and profile.minor >= _FIRST_WITH_LISTS))


def _sizes(value: Device, field: str, profile: ServerProfile) -> Problems:
    limits = profile.limits
    total = len(value.attributes or ()) + len(value.capacity or ())
    if total > limits.attributes_and_capacities:
        limit = limits.attributes_and_capacities
        yield invalid(field, f"must have at most {limit} attributes and capacities together, has {total}")
    if (count := value_count(value)) > limits.attribute_values:
        yield invalid(field, f"must have at most {limits.attribute_values} attribute values, has {count}")


def _attributes(value: Device, field: str, profile: ServerProfile) -> Problems:
    def key(name: str, where: str) -> Problems:
        return qualified_name(name, where, profile)

    def check(item: DeviceAttribute, where: str) -> Problems:
        return attribute(item, where, profile)

    yield from check_map(value.attributes, f"{field}.attributes", key, check, profile, longest_key=MAX_QUALIFIED)


def _capacities(value: Device, field: str, profile: ServerProfile) -> Problems:
    def key(name: str, where: str) -> Problems:
        return qualified_name(name, where, profile)

    def check(item: DeviceCapacity, where: str) -> Problems:
        return capacity(item, where, profile, shared=bool(value.allow_multiple_allocations))

    yield from check_map(value.capacity, f"{field}.capacity", key, check, profile, longest_key=MAX_QUALIFIED)


def _taints(value: Device, field: str, profile: ServerProfile) -> Problems:
    def check(item: DeviceTaint, where: str) -> Problems:
        return taint(item, where, profile)

    limit = profile.limits.taints_per_device
    yield from check_list(value.taints, f"{field}.taints", check, profile, at_most=limit)


def _nodes(value: Device, field: str, selects_nodes: bool) -> Problems:
    given = {"nodeName": value.node_name, "nodeSelector": value.node_selector, "allNodes": value.all_nodes}
    if not selects_nodes:
        for_all = [name for name, item in given.items() if item is not None]
        if for_all:
            yield invalid(
                field, f"may have {' and '.join(for_all)} only if perDeviceNodeSelection of the slice is true"
            )
        return
    if value.node_name:
        yield from node_name(value.node_name, f"{field}.nodeName")
    elif value.node_name is not None:
        yield invalid(f"{field}.nodeName", "must not be empty")
    if value.node_selector is not None:
        yield from node_selector(value.node_selector, f"{field}.nodeSelector")
    if value.all_nodes is False:
        yield invalid(f"{field}.allNodes", "must be true or unset")
    chosen = [name for name, item in given.items() if item]
    if not chosen:
        yield required(field, f"must have one of {', '.join(given)} as perDeviceNodeSelection of the slice is true")
    elif len(chosen) > 1:
        yield invalid(field, f"must have only one of {', '.join(given)}, has {' and '.join(chosen)}")
