"""Another node like one that is there: the Node object and the devices that only this node can use.

Attributes are copied as they are, serial numbers and PCI addresses too; devices that every node can use anyway stay as
they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.nodes import matches
from dra_sdk.tools.scheduling.cluster.names import generated_name, generated_uid
from dra_sdk.tools.scheduling.cluster.snapshot import HOSTNAME, Snapshot, plain_node

_CORDON: Final = "node.kubernetes.io/unschedulable"
#: Attributes that differ from device to device and say nothing of what a device can do.
_IDENTITIES: Final = ("uuid", "pciBusID", "pcieRoot", "serial", "index", "minor")


class WhatIfError(DraError):
    """What shall be tried out refers to something that is not there."""


@dataclass(frozen=True, slots=True)
class Template:
    """A node and the slices that are its own, to be copied under other names."""

    node: JSON
    slices: tuple[JSON, ...]

    @classmethod
    def of(cls, snapshot: Snapshot, name: str) -> Template:
        """A node of the snapshot; WhatIfError if there is none of this name."""
        node = snapshot.nodes_by_name.get(name)
        if node is None:
            known = ", ".join(snapshot.nodes_by_name) or "none"
            raise WhatIfError(f"there is no node {name}; nodes are: {known}")
        return cls(node, tuple(_slices_of(snapshot.slices, node)))

    @classmethod
    def of_slices(cls, name: str, slices: Iterable[JSON]) -> Template:
        """A node of which only what a driver publishes for it is known."""
        node = plain_node(name)
        return cls(node, tuple(_slices_of(tuple(slices), node)))

    @property
    def name(self) -> str:
        """The name of the node that is copied."""
        return str(self.node["metadata"]["name"])

    @property
    def signature(self) -> str:
        """The same for nodes of the same make: labels, taints, size and devices, but for names and serial numbers."""
        metadata = self.node["metadata"]
        labels = {key: value for key, value in (metadata.get("labels") or {}).items() if value != self.name}
        devices = [[each["spec"]["driver"], _kind(device)] for each in self.slices for device in _devices(each)]
        spec = [(self.node.get("spec") or {}).get("taints"), (self.node.get("status") or {}).get("allocatable")]
        return json.dumps([labels, spec, devices], sort_keys=True)

    def copies(self, name: str) -> Iterator[JSON]:
        """The objects of another such node."""
        yield _renamed_node(self.node, name)
        for each in self.slices:
            yield _renamed_slice(each, self.name, name)


def add_nodes(snapshot: Snapshot, template: Template, names: Iterable[str]) -> Snapshot:
    """The snapshot with more nodes; WhatIfError if there is one of that name."""
    for name in names:
        if name in snapshot.nodes_by_name:
            raise WhatIfError(f"there is a node {name} already")
        snapshot = snapshot.having(template.copies(name))
    return snapshot


def free_names(snapshot: Snapshot, like: str, count: int) -> list[str]:
    """Names for more nodes that nobody has yet."""
    candidates = (f"{like}-new-{number}" for number in range(1, count + len(snapshot.nodes) + 1))
    return [each for each in candidates if each not in snapshot.nodes_by_name][:count]


def _devices(each: JSON) -> list[JSON]:
    return each["spec"].get("devices") or []


def _kind(device: JSON) -> JSON:
    attributes = device.get("attributes") or {}
    kept = {key: value for key, value in attributes.items() if not key.rpartition("/")[2].endswith(_IDENTITIES)}
    return {"attributes": kept, "capacity": device.get("capacity")}


def _slices_of(slices: tuple[JSON, ...], node: JSON) -> Iterator[JSON]:
    """What has to be copied of each pool, with the number of slices that the pool of the copy has."""
    pools: dict[tuple[str, str], list[JSON]] = {}
    for each in slices:
        pools.setdefault((each["spec"]["driver"], each["spec"]["pool"]["name"]), []).append(each)
    for pool in pools.values():
        newest = max(each["spec"]["pool"].get("generation", 0) for each in pool)
        current = [each for each in pool if each["spec"]["pool"].get("generation", 0) == newest]
        own = [part for each in current if (part := _own_part(each, node)) is not None]
        if not any(_devices(each) for each in own):
            continue
        missing = current[0]["spec"]["pool"].get("resourceSliceCount", 1) - len(current)
        for each in own:
            pool_of_copy = each["spec"]["pool"] | {"resourceSliceCount": len(own) + missing}
            yield each | {"spec": each["spec"] | {"pool": pool_of_copy}}


def _own_part(each: JSON, node: JSON) -> JSON | None:
    """The slice, or those devices of it, that only this node can use; slices with counters are needed with them."""
    spec, name = each["spec"], node["metadata"]["name"]
    if spec.get("perDeviceNodeSelection"):
        devices = [device for device in _devices(each) if _is_own(device, node)]
        return each | {"spec": spec | {"devices": devices}} if devices or spec.get("sharedCounters") else None
    if _is_own(spec, node) or (spec.get("sharedCounters") and spec.get("nodeName") in {None, name}):
        return each
    return None


def _is_own(place: Mapping[str, Any], node: JSON) -> bool:
    name = node["metadata"]["name"]
    if selector := place.get("nodeSelector"):
        return matches(selector, node) and not matches(selector, _renamed_node(node, f"{name}-other"))
    return bool(place.get("nodeName") == name)


def _renamed_node(node: JSON, name: str) -> JSON:
    old = node["metadata"]["name"]
    labels = {key: name if value == old else value for key, value in (node["metadata"].get("labels") or {}).items()}
    metadata: JSON = {"name": name, "uid": generated_uid("Node", ("", name)), "labels": {HOSTNAME: name} | labels}
    spec = {key: value for key, value in (node.get("spec") or {}).items() if key not in {"unschedulable", "providerID"}}
    spec["taints"] = [each for each in spec.get("taints") or () if each.get("key") != _CORDON]
    status = {key: value for key, value in (node.get("status") or {}).items() if key == "allocatable"}
    return node | {"metadata": metadata, "spec": spec, "status": status}


def _renamed_slice(each: JSON, old: str, new: str) -> JSON:
    spec = each["spec"]
    pool = str(spec["pool"]["name"])
    pool = pool.replace(old, new) if old in pool else f"{pool}-{new}"
    changed = _renamed_place(spec, old, new) | {"pool": spec["pool"] | {"name": pool}}
    if devices := _devices(each):
        changed["devices"] = [_renamed_place(device, old, new) for device in devices]
    name = generated_name(f"{new}-", each["metadata"]["name"])
    metadata = {"name": name, "uid": generated_uid("ResourceSlice", ("", name))}
    return each | {"metadata": metadata, "spec": changed}


def _renamed_place(place: JSON, old: str, new: str) -> JSON:
    """A slice's spec or a device with the node's name replaced where it selects nodes."""
    changed = dict(place)
    if place.get("nodeName") == old:
        changed["nodeName"] = new
    if selector := place.get("nodeSelector"):
        changed["nodeSelector"] = _renamed_values(selector, old, new)
    return changed


def _renamed_values(value: Any, old: str, new: str) -> Any:
    if isinstance(value, dict):
        return {key: _renamed_values(item, old, new) for key, item in value.items()}
    if isinstance(value, list):
        return [_renamed_values(item, old, new) for item in value]
    return new if value == old else value
