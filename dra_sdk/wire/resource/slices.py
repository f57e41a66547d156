"""resource.k8s.io/v1 ResourceSlice."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dra_sdk.wire.resource.base import PARTITIONS, SKIP_OPERATIONS, Available, Int64, Object, TextItem
from dra_sdk.wire.resource.device import Counter, Device
from dra_sdk.wire.resource.metadata import NodeSelector, TopLevel


class CounterSet(Object):
    """Counters that partitions of one piece of hardware share."""

    name: str = ""
    counters: dict[str, Counter] | None = None


class ResourcePool(Object):
    """Which pool a slice belongs to, and of how many slices that consists."""

    name: str = ""
    generation: Int64 = 0
    resource_slice_count: Int64 = 0


class ResourceSliceSpec(Object):
    """One slice of a pool."""

    driver: str = ""
    pool: ResourcePool = Field(default_factory=ResourcePool)
    node_name: str | None = None
    node_selector: NodeSelector | None = None
    all_nodes: bool | None = None
    devices: list[Device] | None = None
    per_device_node_selection: Annotated[bool | None, PARTITIONS] = None
    shared_counters: Annotated[list[CounterSet] | None, PARTITIONS] = None
    partition_type_attribute: Annotated[str | None, Available(("DRAPartitionableDevicesType",), since=37)] = None
    skip_node_operations: Annotated[list[TextItem] | None, SKIP_OPERATIONS] = None


class ResourceSlice(TopLevel):
    """Devices that a driver offers."""

    spec: ResourceSliceSpec = Field(default_factory=ResourceSliceSpec)
