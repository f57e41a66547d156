"""Turn the devices, counter sets and node selections of an author into the JSON of a ResourceSlice.

Source: resource.k8s.io/v1 ResourceSliceSpec, Device, DeviceAttribute, DeviceCapacity, CapacityRequestPolicy,
DeviceTaint, DeviceCounterConsumption, NodeAllocatableResourceMapping, CounterSet. Fields that are not set are left out
and quantities are canonical, so that the JSON equals what the API server stores. Values without a JSON form are
refused here. `dra_sdk.wire.validation` checks the limits of the API.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Final

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model import JSON
from dra_sdk.model.device import (
    Amount,
    Capacity,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceTaint,
    NodeAllocatable,
    NodeSelection,
    RequestPolicy,
    Version,
)
from dra_sdk.model.quantity import Quantity

_LISTS: Final = frozenset({"bools", "ints", "strings", "versions"})
_INT64_LIMIT: Final = 2**63
_SHOWN: Final = 100  # characters of a value of the wrong type in a message


def device_json(device: Device, driver: str) -> JSON:
    """Return the entry of a device in `spec.devices`. InvalidObjectError names the device and the field.

    Attribute names lose the domain if it is the driver's own, as the API recommends. Capacity names do not change,
    because `capacity.requests` of a claim must spell them exactly as the slice does.
    """
    problems: list[str] = []
    try:
        fields = _fields(device, driver, problems)
    except (AttributeError, TypeError):
        problems += _wrong_types(device)
        if not problems:
            raise
        fields = {}
    selection = node_selection_json(device.node, problems) if device.node else {}
    if problems:
        raise InvalidObjectError(f"device {device.name}", problems)
    return {"name": str(device.name), **{key: value for key, value in fields.items() if value}, **selection}


def _fields(device: Device, driver: str, problems: list[str]) -> JSON:
    return {
        "attributes": {
            key: _attribute(value, f"attribute {key}", problems)
            for key, value in _without_domain(device.attributes, driver, problems).items()
        },
        "capacity": {str(key): _capacity(value, f"capacity {key}", problems) for key, value in device.capacity.items()},
        "consumesCounters": [_consumption(consumption, problems) for consumption in device.consumes],
        "taints": [_taint(taint, problems) for taint in device.taints],
        "bindsToNode": device.binds_to_node,
        "bindingConditions": _conditions(device.binding_conditions, "binding_conditions", problems),
        "bindingFailureConditions": _conditions(
            device.binding_failure_conditions, "binding_failure_conditions", problems
        ),
        "allowMultipleAllocations": device.allow_multiple_allocations,
        "nodeAllocatableResourceMappings": {
            str(key): _mapping(value, f"node_allocatable {key}", problems)
            for key, value in device.node_allocatable.items()
        },
    }


def _conditions(names: Sequence[str], where: str, problems: list[str]) -> list[str]:
    if isinstance(names, str):  # a string is a sequence of strings, but not what the author meant
        problems.append(f"{where} must be a list of str, is {_short(names)}")
        return []
    return list(names)


def _wrong_types(device: Device) -> Iterator[str]:
    """Yield a problem for each field of the wrong type. Called only if the device has no JSON form."""
    for name in ("attributes", "capacity", "node_allocatable"):
        if not isinstance(value := getattr(device, name), Mapping):
            yield f"{name} must be a mapping, is {_short(value)}"
    lists = (("consumes", CounterConsumption), ("taints", DeviceTaint), ("binding_conditions", str))
    for name, kind in (*lists, ("binding_failure_conditions", str)):
        value = getattr(device, name)
        if isinstance(value, str) or not isinstance(value, Iterable) or not all(isinstance(x, kind) for x in value):
            yield f"{name} must be a list of {kind.__name__}, is {_short(value)}"
        elif kind is CounterConsumption:
            bad = (consumption for consumption in value if not isinstance(consumption.counters, Mapping))
            yield from (f"consumes {x.counter_set}: counters must be a mapping, is {_short(x.counters)}" for x in bad)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def counter_set_json(counter_set: CounterSet) -> JSON:
    """Return the entry of a set in `spec.sharedCounters`. InvalidObjectError names the set and the counter."""
    subject, given = f"counter set {counter_set.name}", counter_set.counters
    if not isinstance(given, Mapping):
        raise InvalidObjectError(subject, [f"counters must be a mapping, is {_short(given)}"])
    problems: list[str] = []
    counters = _counters(given, "counter", problems)
    if problems:
        raise InvalidObjectError(subject, problems)
    return {"name": str(counter_set.name), "counters": counters}


def node_selection_json(node: NodeSelection, problems: list[str]) -> JSON:
    """Return the field of a spec or device that selects nodes. Adds to `problems` unless exactly one is set."""
    fields: JSON = {}
    if node.node_name is not None:
        fields["nodeName"] = str(node.node_name)
    if node.node_selector is not None:
        fields["nodeSelector"] = dict(node.node_selector)
    if node.all_nodes:
        fields["allNodes"] = True
    if len(fields) != 1:
        problems.append("node: exactly one of node_name, node_selector and all_nodes must be set, got " + str(node))
    return fields


def is_complex(device: JSON) -> bool:
    """Return whether a slice with this device may hold 64 devices only: taints, consumed counters, list attributes."""
    attributes = device.get("attributes", {}).values()
    return bool(device.get("taints") or device.get("consumesCounters") or any(map(is_list, attributes)))


def is_list(attribute: JSON) -> bool:
    """Return whether an attribute has a list of values (KEP-5491)."""
    return not _LISTS.isdisjoint(attribute)


def _without_domain(attributes: Mapping[str, Any], driver: str, problems: list[str]) -> dict[str, Any]:
    renamed: dict[str, Any] = {}
    for key, value in attributes.items():
        short = str(key).removeprefix(f"{driver}/")
        if short in renamed:
            problems.append(f"attribute {short}: is given twice, with and without the driver's domain")
        renamed[short] = value
    return renamed


def _attribute(value: object, where: str, problems: list[str]) -> JSON:
    if isinstance(value, Sequence) and not isinstance(value, (str, bytes)):
        return _list_attribute(value, where, problems)
    kind = _kind(value)
    if kind is None or not _fits(value):
        problems.append(f"{where}: {value!r} is not a bool, an int of 64 bits, a str or a Version")
        return {}
    return _field(kind, _plain(value))


def _list_attribute(values: Sequence[object], where: str, problems: list[str]) -> JSON:
    kinds = {_kind(value) for value in values}
    if len(kinds) != 1 or None in kinds or not all(_fits(value) for value in values):
        problems.append(f"{where}: {values!r} is not a non-empty list of bool, int of 64 bits, str or Version only")
        return {}
    return {f"{kinds.pop()}s": [_plain(value) for value in values]}


def _kind(value: object) -> str | None:
    """Return the API's name of a value's type. Subclasses come first: bool before int, Version before str."""
    for kind, name in ((bool, "bool"), (int, "int"), (Version, "version"), (str, "string")):
        if isinstance(value, kind):
            return name
    return None


def _plain(value: Any) -> bool | int | str:
    """Return the value as bool, int or str. JSON would write a subclass such as an enumeration differently."""
    for kind in (bool, int):
        if isinstance(value, kind):
            return kind(value)
    return str.__str__(value)


def _fits(value: object) -> bool:
    return not isinstance(value, int) or -_INT64_LIMIT <= value < _INT64_LIMIT


def _capacity(capacity: Capacity | Amount, where: str, problems: list[str]) -> JSON:
    if not isinstance(capacity, Capacity):
        return _field("value", _amount(capacity, where, problems))
    fields: JSON = {"value": _amount(capacity.value, where, problems)}
    if capacity.policy is not None:
        fields["requestPolicy"] = _policy(capacity.policy, f"{where}: policy", problems)
    return fields


def _policy(policy: RequestPolicy, where: str, problems: list[str]) -> JSON:
    fields: JSON = {"default": _amount(policy.default, f"{where}.default", problems)}
    if policy.valid_values:
        fields["validValues"] = [_amount(amount, f"{where}.valid_values", problems) for amount in policy.valid_values]
    limits = {"min": policy.min, "max": policy.max, "step": policy.step}
    given = {key: _amount(limit, f"{where}.{key}", problems) for key, limit in limits.items() if limit is not None}
    if given:
        fields["validRange"] = given
    if policy.valid_values and given:
        problems.append(f"{where}: either valid_values or min, max and step, not both")
    return fields


def _consumption(consumption: CounterConsumption, problems: list[str]) -> JSON:
    where = f"consumes {consumption.counter_set}: counter"
    return {"counterSet": str(consumption.counter_set), "counters": _counters(consumption.counters, where, problems)}


def _counters(counters: Mapping[str, Amount], where: str, problems: list[str]) -> JSON:
    return {str(key): {"value": _amount(value, f"{where} {key}", problems)} for key, value in counters.items()}


def _mapping(mapping: NodeAllocatable, where: str, problems: list[str]) -> JSON:
    fields: JSON = {}
    if mapping.capacity_key is not None:
        fields["capacityKey"] = str(mapping.capacity_key)
    return {**fields, "allocationMultiplier": _amount(mapping.multiplier, f"{where}.multiplier", problems)}


def _taint(taint: DeviceTaint, problems: list[str]) -> JSON:
    fields: JSON = {"key": str(taint.key), "effect": str(taint.effect)}
    if taint.value:
        fields["value"] = str(taint.value)
    if taint.time_added is not None:
        fields["timeAdded"] = _time(taint.time_added, f"taint {taint.key}: time_added", problems)
    return fields


def _time(moment: datetime, where: str, problems: list[str]) -> str:
    """Return the time in UTC (RFC 3339), in whole seconds as the API stores it."""
    if moment.tzinfo is None:
        problems.append(f"{where}: {moment.isoformat()} has no time zone")
        return ""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _amount(value: Amount, where: str, problems: list[str]) -> str:
    try:
        return _canonical(value) if type(value) is str else str(Quantity(value))
    except ValueError as error:
        problems.append(f"{where}: {error}")
        return ""


@lru_cache(maxsize=1024)
def _field(name: str, value: bool | int | str) -> JSON:
    """Return an object with one field. It must not be changed: devices with equal attributes share it."""
    return {name: value}


@lru_cache(maxsize=1024)
def _canonical(amount: str) -> str:
    return str(Quantity(amount))
