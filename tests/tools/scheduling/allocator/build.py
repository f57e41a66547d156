"""API objects for the tests of the allocator."""

from __future__ import annotations

from typing import Any

from dra_sdk.tools.scheduling.allocator import AllocatedState, Allocator, Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.wire.profile import GATES, ServerProfile

JSON = dict[str, Any]
DRIVER = "gpu.example.com"
NEWER = SchedulerFeatures.of(ServerProfile.of("1.37", dict.fromkeys(GATES, True)))
"""1.37 with everything on."""


def of_1_37(**gates: bool) -> SchedulerFeatures:
    """1.37 with all beta gates, and these."""
    return SchedulerFeatures.of(ServerProfile.of("1.37", {"DRAFractionalCapacityRange": True, **gates}))


def node(name: str = "n1", **labels: str) -> JSON:
    return {"metadata": {"name": name, "labels": labels}}


def device(name: str, *, capacity: dict[str, Any] | None = None, **more: Any) -> JSON:
    """Keywords with plain values are attributes, the others fields of the device."""
    kinds = {bool: "bool", int: "int", str: "string"}
    attributes = {key: {kinds[type(value)]: value} for key, value in more.items() if type(value) in kinds}
    fields = {key: value for key, value in more.items() if key not in attributes}
    raw: JSON = {"name": name, **fields}
    if attributes:
        raw["attributes"] = attributes
    if capacity:
        raw["capacity"] = {
            key: value if isinstance(value, dict) else {"value": value} for key, value in capacity.items()
        }
    return raw


def shared(name: str, **more: Any) -> JSON:
    """A device that many claims may share."""
    return device(name, **more) | {"allowMultipleAllocations": True}


def a_slice(
    *devices: JSON, name: str = "s1", pool: str = "n1", count: int = 1, generation: int = 1, **spec: Any
) -> JSON:
    """A slice of node n1, unless `spec` says otherwise."""
    fields = {"nodeName", "allNodes", "nodeSelector", "perDeviceNodeSelection"}
    where = {} if fields & set(spec) else {"nodeName": "n1"}
    head = {"driver": DRIVER, "pool": {"name": pool, "generation": generation, "resourceSliceCount": count}}
    return {"metadata": {"name": name}, "spec": head | where | ({"devices": list(devices)} if devices else {}) | spec}


def counter_sets(name: str = "counters", count: int = 2, **sets: dict[str, str]) -> JSON:
    """A slice with counter sets, `set={"counter": "value"}`."""
    raw_sets = [{"name": key, "counters": _values(value)} for key, value in sets.items()]
    return a_slice(name=name, count=count, sharedCounters=raw_sets)


def consumes(counter_set: str = "set", **counters: str) -> JSON:
    return {"consumesCounters": [{"counterSet": counter_set, "counters": _values(counters)}]}


def _values(counters: dict[str, str]) -> JSON:
    return {key: {"value": value} for key, value in counters.items()}


def cel(*expressions: str) -> list[JSON]:
    return [{"cel": {"expression": expression}} for expression in expressions]


def device_class(name: str = "gpu", *expressions: str, config: list[JSON] | None = None) -> JSON:
    return {"metadata": {"name": name}, "spec": {"selectors": cel(*expressions), "config": config or []}}


def exact_request(*expressions: str, **fields: Any) -> JSON:
    """An exact request or an alternative."""
    return {"deviceClassName": "gpu", "selectors": cel(*expressions), **fields}


def request(name: str, *expressions: str, **fields: Any) -> JSON:
    return {"name": name, "exactly": exact_request(*expressions, **fields)}


def first_available(name: str, **alternatives: JSON) -> JSON:
    return {"name": name, "firstAvailable": [{"name": key, **value} for key, value in alternatives.items()]}


def claim(*requests: JSON, name: str = "c", **devices: Any) -> JSON:
    return {"metadata": {"name": name, "namespace": "ns"}, "spec": {"devices": {"requests": list(requests), **devices}}}


def allocator(
    *slices: JSON, features: SchedulerFeatures | None = None, classes: list[JSON] | None = None, **more: Any
) -> Allocator:
    raw_classes = [device_class()] if classes is None else classes
    inventory = Inventory(slices, features or SchedulerFeatures())
    return Allocator(
        inventory,
        {raw_class["metadata"]["name"]: raw_class for raw_class in raw_classes},
        share_id=lambda: "share",
        **more,
    )


def allocated(
    allocator: Allocator, *claims: JSON, held: AllocatedState | None = None, at: JSON | None = None
) -> list[JSON] | None:
    return allocator.allocate(at or node(), claims, AllocatedState() if held is None else held)


def names(allocations: list[JSON] | None) -> list[list[str]] | None:
    """The devices of each claim; None if they do not fit."""
    if allocations is None:
        return None
    return [[result["device"] for result in allocation["devices"]["results"]] for allocation in allocations]


def held(*devices: str, pool: str = "n1", **more: Any) -> JSON:
    """A claim that holds these devices."""
    results = [{"request": "r", "driver": DRIVER, "pool": pool, "device": name, **more} for name in devices]
    return {"metadata": {"name": "holder"}, "status": {"allocation": {"devices": {"results": results}}}}


def candidates(*slices: JSON, features: SchedulerFeatures | None = None) -> list[Candidate]:
    """The candidates on node n1."""
    return list(Inventory(slices, features or SchedulerFeatures()).node_devices(node()).candidates)
