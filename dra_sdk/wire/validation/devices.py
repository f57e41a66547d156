"""One device of a ResourceSlice: its name, attributes, taints, binding conditions and nodes.

Source: resource.k8s.io Device validation; DeviceAttribute (KEP-5491 for lists), DeviceTaint and DeviceToleration
(KEP-5055), BindingConditions (KEP-5007). The amounts of a device are checked in `dra_sdk.wire.validation.capacity`.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.slices import Device, DeviceAttribute, DeviceTaint, DeviceToleration, ResourceSliceSpec
from dra_sdk.wire.validation.capacity import capacity, consumptions, node_allocatable
from dra_sdk.wire.validation.metadata import node_selector
from dra_sdk.wire.validation.names import (
    MAX_QUALIFIED,
    dns_label,
    dns_subdomain,
    label_key,
    label_value,
    qualified_name,
    semantic_version,
)
from dra_sdk.wire.validation.problems import Problems, duplicate, invalid, not_supported, required, show, too_long
from dra_sdk.wire.validation.rules import check_list, check_map, if_set, semantically_equal

OPERATORS: Final = ("Equal", "Exists")
_FIRST_WITH_LISTS: Final = 36
_FIRST_TO_COUNT_ITEMS: Final = 37
_FIRST_TO_KEEP_CAPACITY: Final = 37


def device(value: Device, field: str, profile: ServerProfile, *, old: Device | None, selects_nodes: bool) -> Problems:
    """Check one device.

    `old` is the device with this name in the stored slice. `selects_nodes` is the slice's perDeviceNodeSelection.
    """
    yield from dns_label(value.name, f"{field}.name")
    yield from _sizes(value, field, profile)
    key, check = partial(qualified_name, profile=profile), partial(attribute, profile=profile)
    yield from check_map(value.attributes, f"{field}.attributes", key, check, profile, longest_key=MAX_QUALIFIED)
    if old is None or profile.minor < _FIRST_TO_KEEP_CAPACITY or not semantically_equal(value.capacity, old.capacity):
        amount = partial(capacity, profile=profile, shared=bool(value.allow_multiple_allocations))
        yield from check_map(value.capacity, f"{field}.capacity", key, amount, profile, longest_key=MAX_QUALIFIED)
    if old is None or profile.minor == OLDEST or not semantically_equal(value.taints, old.taints):
        where, limit = f"{field}.taints", profile.limits.taints_per_device
        yield from check_list(value.taints, where, partial(taint, profile=profile), profile, at_most=limit)
    yield from consumptions(value, f"{field}.consumesCounters", profile)
    yield from _nodes(value, field, selects_nodes)
    yield from binding_conditions(value.binding_conditions, value.binding_failure_conditions, field, profile)
    yield from node_allocatable(value, field)


def is_advanced(value: Device, profile: ServerProfile) -> bool:
    """Return whether a slice with this device has a lower limit of devices."""
    return bool(value.taints or value.consumes_counters or (has_lists(value) and profile.minor >= _FIRST_WITH_LISTS))


def _sizes(value: Device, field: str, profile: ServerProfile) -> Problems:
    limits = profile.limits
    total = len(value.attributes or ()) + len(value.capacity or ())
    if total > limits.attributes_and_capacities:
        limit = limits.attributes_and_capacities
        yield invalid(field, f"must have at most {limit} attributes and capacities together, has {total}")
    if (count := value_count(value)) > limits.attribute_values:
        yield invalid(field, f"must have at most {limits.attribute_values} attribute values, has {count}")


def _nodes(value: Device, field: str, selects_nodes: bool) -> Problems:
    if selects_nodes:
        flags = {"allNodes": value.all_nodes}
        yield from chosen_nodes(value, flags, field, " as perDeviceNodeSelection of the slice is true")
        return
    given = {"nodeName": value.node_name, "nodeSelector": value.node_selector, "allNodes": value.all_nodes}
    for_all = [name for name, item in given.items() if item is not None]
    if for_all:
        yield invalid(field, f"may have {' and '.join(for_all)} only if perDeviceNodeSelection of the slice is true")


def chosen_nodes(
    value: Device | ResourceSliceSpec, flags: Mapping[str, bool | None], field: str, reason: str = ""
) -> Problems:
    """Check that a device or a slice selects its nodes in one way: by name, by a selector, or by one of the flags."""
    if value.node_name:
        yield from dns_subdomain(value.node_name, f"{field}.nodeName")
    elif value.node_name is not None:
        yield invalid(f"{field}.nodeName", "must not be empty")
    yield from if_set(node_selector, value.node_selector, f"{field}.nodeSelector")
    for name, flag in flags.items():
        if flag is False:
            yield invalid(f"{field}.{name}", "must be true or unset")
    choices = {"nodeName": value.node_name, "nodeSelector": value.node_selector, **flags}
    chosen = [name for name, item in choices.items() if item]
    if not chosen:
        yield required(field, f"must have one of {', '.join(choices)}{reason}")
    elif len(chosen) > 1:
        yield invalid(field, f"must have only one of {', '.join(choices)}, has {' and '.join(chosen)}")


def attribute(value: DeviceAttribute, field: str, profile: ServerProfile) -> Problems:
    """Check one attribute."""
    longest = profile.limits.attribute_value_length
    if value.string is not None:
        yield from too_long(f"{field}.string", value.string, longest)
    if value.version is not None:
        yield from _version(value.version, f"{field}.version", longest)
    for name, items in _lists(value).items():
        if items is not None and not items:
            yield invalid(f"{field}.{name}", "must not be empty")
    for index, item in enumerate(value.strings or ()):
        yield from too_long(f"{field}.strings[{index}]", item, longest)
    for index, item in enumerate(value.versions or ()):
        yield from _version(item, f"{field}.versions[{index}]", longest)
    given = [name for name, item in _given(value).items() if item != [] or profile.minor < _FIRST_TO_COUNT_ITEMS]
    if not given and profile.minor == OLDEST:
        yield required(field, "must have a value")
    elif len(given) != 1 or len(_given(value)) != 1:
        yield invalid(field, f"must have exactly one value, has {' and '.join(_given(value)) or 'none'}")


def has_lists(device: Device) -> bool:
    """Return whether an attribute of the device is a list."""
    return any(items is not None for value in (device.attributes or {}).values() for items in _lists(value).values())


def value_count(device: Device) -> int:
    """Count the values of all attributes of the device. Each item of a list counts."""
    counts = (sum(len(items or ()) for items in _lists(value).values()) for value in (device.attributes or {}).values())
    return sum(count or 1 for count in counts)


def _version(text: str, field: str, longest: int) -> Problems:
    yield from semantic_version(text, field)
    yield from too_long(field, text, longest)


def _lists(value: DeviceAttribute) -> dict[str, list[bool] | list[int] | list[str] | None]:
    return {"bools": value.bools, "ints": value.ints, "strings": value.strings, "versions": value.versions}


def _given(value: DeviceAttribute) -> dict[str, object]:
    scalars = {"bool": value.bool_value, "int": value.int_value, "string": value.string, "version": value.version}
    return {name: item for name, item in (scalars | _lists(value)).items() if item is not None}


def taint(value: DeviceTaint, field: str, profile: ServerProfile, *, keeps_effect: bool = False) -> Problems:
    """Check one taint. `keeps_effect`: the effect is stored already, so this release need not know it."""
    yield from label_key(value.key, f"{field}.key")
    yield from label_value(value.value, f"{field}.value")
    if keeps_effect:
        return
    if not value.effect:
        yield required(f"{field}.effect", f"must be one of {', '.join(profile.taint_effects)}")
    else:
        yield from _effect(value.effect, f"{field}.effect", profile)


def toleration(value: DeviceToleration, field: str, profile: ServerProfile) -> Problems:
    """Check one toleration. Without a key it tolerates every taint, without an effect every effect."""
    if value.key:
        yield from label_key(value.key, f"{field}.key")
    if value.operator == "Exists" and value.value:
        yield invalid(f"{field}.value", f"must be empty for operator Exists, is {show(value.value)}")
    elif value.operator == "Equal":
        yield from label_value(value.value, f"{field}.value")
    elif value.operator not in OPERATORS:
        yield not_supported(f"{field}.operator", value.operator, OPERATORS)
    if value.effect:
        yield from _effect(value.effect, f"{field}.effect", profile)


def _effect(effect: str, field: str, profile: ServerProfile) -> Problems:
    if effect not in profile.taint_effects:
        yield not_supported(field, effect, profile.taint_effects)


def binding_conditions(
    conditions: list[str] | None, failures: list[str] | None, field: str, profile: ServerProfile
) -> Problems:
    """Check bindingConditions and bindingFailureConditions of a device or an allocation result at `field`."""
    limit = profile.limits.binding_conditions
    lists = {f"{field}.bindingConditions": conditions or [], f"{field}.bindingFailureConditions": failures or []}
    for where, names in lists.items():
        yield from check_list(names, where, label_key, profile, at_most=limit)
        for index, name in enumerate(names):
            if name in names[:index]:
                yield duplicate(f"{where}[{index}]", name)
    (here, good), (there, bad) = lists.items()
    for index, name in enumerate(bad):
        if name in good:
            yield invalid(f"{there}[{index}]", f"{show(name)} is a binding condition too")
    if bad and not good:
        yield invalid(here, "must be set if bindingFailureConditions is set")
    if good and not bad:
        yield invalid(there, "must be set if bindingConditions is set")
