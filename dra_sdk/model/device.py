"""Devices and pools as an author describes them, before they become ResourceSlices.

Source: resource.k8s.io/v1 types Device, DeviceAttribute, DeviceCapacity, CapacityRequestPolicy, DeviceTaint,
DeviceCounterConsumption, NodeAllocatableResourceMapping, ResourcePool, CounterSet. Nothing is checked here:
`dra_sdk.wire` knows every limit and names the device that breaks one before anything is published.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final, Literal

from dra_sdk.model.quantity import Quantity

_PARTS: Final = 3
_NUMBER: Final = re.compile(r"[0-9]{1,18}")  # of a version: less than 2^63, and three of them fit into 64 characters
Amount = Quantity | int | str
"""A quantity as an author may write it: `Quantity("80Gi")`, `"80Gi"`, `"500m"` or `4`."""


class Version(str):
    """An attribute value that is compared as a semantic version 2.0.0 (no leading `v`) and not as text.

    At most 64 bytes: `Version("580.95.5")`. CEL compares it with `isGreaterThan` and the like.
    """

    __slots__ = ()

    @classmethod
    def lenient(cls, text: str) -> Version:
        """Return the version that hardware or software wrote as `text`: `580.95.05` → `580.95.5`, `v6.1` → `6.1.0`.

        The result is always valid and has three numbers. Further parts are dropped. Of each part the leading number
        counts, so `86-rc1` becomes 86. A part that is missing or begins with no digit becomes 0.
        """
        parts = [*text.removeprefix("v").split("."), *["0"] * _PARTS][:_PARTS]
        return cls(".".join(str(int((_NUMBER.match(part) or "0")[0])) for part in parts))


AttributeValue = bool | int | str | Version | Sequence[bool] | Sequence[int] | Sequence[str] | Sequence[Version]
"""A device attribute (DeviceAttribute): `True`, `4`, `"A100"`, `Version("1.2.3")`, or a list of one of these types.

An int has 64 bits, text at most 64 bytes in UTF-8. A list must not be empty (KEP-5491); servers keep it only with the
feature gate DRAListTypeAttributes (alpha since 1.36).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestPolicy:
    """How much of a capacity one request may take (CapacityRequestPolicy, KEP-5075).

    Give either `valid_values`, or `min` with an optional `max` and `step`. The scheduler rounds a request up to the
    next allowed amount; if there is none, the device cannot serve it. With neither, a request may take any amount.

    default: amount for a request that names none. It must be one of the allowed amounts.
    valid_values: allowed amounts, ascending, at most 10, none above the capacity's value.
    min: smallest amount, from 0 to the capacity's value.
    max: largest amount. None: the capacity's value.
    step: distance between allowed amounts, counted from `min`. None: every amount from `min` to `max`.
    """

    default: Amount
    valid_values: Sequence[Amount] = ()
    min: Amount | None = None
    max: Amount | None = None
    step: Amount | None = None


@dataclass(frozen=True, slots=True)
class Capacity:
    """An amount that a device has (DeviceCapacity), such as memory.

    value: the whole amount, in the unit that the name implies: bytes for memory, `"80Gi"`.
    policy: how much one request may take. It needs `allow_multiple_allocations` of the device. None: any amount, and a
        request that names none takes the whole value.
    """

    value: Amount
    policy: RequestPolicy | None = None


TaintEffect = Literal["NoSchedule", "NoExecute", "None"]


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceTaint:
    """Keeps claims that do not tolerate it away from a device (DeviceTaint, KEP-5055).

    key: label key, such as `gpu.example.com/unhealthy`.
    effect: `NoSchedule`: no new pods. `NoExecute`: running pods are evicted too. `None` (since 1.35): no effect, only
        information.
    value: label value, at most 63 characters. May be empty.
    time_added: when the device was tainted, with a time zone, precise to the second. None: the API server sets the time
        at which it stores the taint.
    """

    key: str
    effect: TaintEffect
    value: str = ""
    time_added: datetime | None = None


@dataclass(frozen=True, slots=True)
class CounterConsumption:
    """What an allocated device takes from a counter set of its pool (DeviceCounterConsumption, KEP-4815).

    counter_set: name of a `CounterSet` of the same pool.
    counters: amount taken of each counter, by the counter's name: `{"memory": "10Gi", "slices": 1}`. At most 32.
    """

    counter_set: str
    counters: Mapping[str, Amount]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeAllocatable:
    """How a device counts against a resource of its node (NodeAllocatableResourceMapping, KEP-5517).

    Kubernetes 1.36 calls it `nodeAllocatableResourceMappings`, 1.37 `nodeAllocatableResources`: a server gets the form
    of its release. Both need the feature gate DRANodeAllocatableResources (alpha).

        node_allocatable={"memory": NodeAllocatable(multiplier="2Gi")}  # each allocated device takes 2 GiB of the node
        node_allocatable={"cpu": NodeAllocatable(capacity_key="cores", multiplier=2)}  # two CPUs for each core taken

    capacity_key: name of the capacity of the device whose consumed amount is multiplied, spelled as in
        `Device.capacity`. None: `multiplier` counts once for each allocated device.
    multiplier: amount of the node resource for each unit. Greater than 0.
    """

    capacity_key: str | None = None
    multiplier: Amount = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSelection:
    """The nodes that can reach a device or pool (ResourceSliceSpec nodeName, nodeSelector, allNodes).

    Set exactly one field.

    node_name: name of one node.
    node_selector: core/v1 NodeSelector as JSON, with exactly one term:
        `{"nodeSelectorTerms": [{"matchExpressions": [{"key": "rack", "operator": "In", "values": ["7"]}]}]}`.
    all_nodes: True: every node.
    """

    node_name: str | None = None
    node_selector: Mapping[str, Any] | None = None
    all_nodes: bool = False


@dataclass(frozen=True, slots=True)
class Device:
    """One allocatable device (resource.k8s.io/v1 Device).

    Names of attributes and capacities are `identifier` or `domain/identifier`, where an identifier is a C identifier of
    at most 32 characters. A name without a domain belongs to the driver. A device has at most 32 attributes and
    capacities together, and at most 48 attribute values (each item of a list counts).

        Device(
            "gpu-0",
            attributes={"model": "A100", "driverVersion": Version("580.95.5"), "mig": True},
            capacity={"memory": "80Gi"},
        )

    name: DNS label (lower-case letters, digits and inner `-`, at most 63 characters), unique in its pool.
    attributes: facts that CEL selectors and constraints of claims compare.
    capacity: amounts by name. A plain amount stands for `Capacity(amount)`.
    allow_multiple_allocations: several requests may share the device, and each takes a part of its capacities
        (KEP-5075, gate DRAConsumableCapacity).
    taints: taints that the driver sets, at most 16 (4 in Kubernetes 1.34).
    consumes: counters that the device takes while it is allocated, from at most 2 counter sets (KEP-4815).
    binds_to_node: limit an allocation to the chosen node, although more nodes can reach the device (KEP-5007).
    binding_conditions: condition types that must be True in the device's status before a pod is bound, at most 4
        (KEP-5007). Set both kinds of conditions or none.
    binding_failure_conditions: condition types of which one that is True fails the binding, at most 4. None of them
        may be in `binding_conditions`.
    waits_in_prepare: `dra_prepare` itself waits until the binding conditions are met. So the device may be published on
        a server that drops them; without that it is withheld there.
    node_allocatable: how the device counts against node resources, by resource: `cpu`, `memory`, `hugepages-2Mi`.
    node: nodes that can reach this device. None: those of the pool. Set it for all devices of a pool or for none.
    hardware: any object of the driver's own, such as a `PciDevice`: `AllocatedDevice.hardware` returns it to
        `dra_prepare`. It is neither published nor compared nor stored, and it should not change.
    """

    name: str
    attributes: Mapping[str, AttributeValue] = field(default_factory=dict)
    capacity: Mapping[str, Capacity | Amount] = field(default_factory=dict)
    allow_multiple_allocations: bool = False
    taints: Sequence[DeviceTaint] = ()
    consumes: Sequence[CounterConsumption] = ()
    binds_to_node: bool = False
    binding_conditions: Sequence[str] = ()
    binding_failure_conditions: Sequence[str] = ()
    waits_in_prepare: bool = False
    node_allocatable: Mapping[str, NodeAllocatable] = field(default_factory=dict)
    node: NodeSelection | None = None
    hardware: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that the partitions of one piece of hardware share (CounterSet, KEP-4815).

    name: DNS label, unique in the pool.
    counters: amount of each counter by its name, a DNS label: `{"memory": "80Gi", "slices": 7}`. At most 32.
    """

    name: str
    counters: Mapping[str, Amount]


@dataclass(frozen=True, slots=True)
class ResourcePool:
    """Devices that are published and replaced together (ResourcePool).

    The SDK splits a pool into as many ResourceSlices as the API's limits require. A pool without devices says that the
    driver runs and has none.

    name: DNS subdomains joined by `/`, at most 253 characters, unique in the driver. The pool of a node's own devices
        has the node's name.
    devices: in the order in which the scheduler tries them.
    counter_sets: counter sets that the devices consume.
    node: nodes that can reach the pool. None: the driver's own node, the right value for a driver of node hardware.
    without_counters: names of the devices that are published first where the API server drops counters, as 1.34 and
        1.35 do by default: there, devices that exclude each other are not published together. Others follow in order,
        as far as they fit beside these.
    """

    name: str
    devices: Sequence[Device] = ()
    counter_sets: Sequence[CounterSet] = ()
    node: NodeSelection | None = None
    without_counters: Sequence[str] = ()
