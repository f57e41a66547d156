"""resource.k8s.io/v1alpha3 ResourcePoolStatusRequest: a question about what is free in pools (KEP-5677).

Source: the API types of Kubernetes 1.36, and of 1.37 for what counts partitions and shares.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from dra_sdk.wire.resource.base import Amount, Available, Int64, Object
from dra_sdk.wire.resource.metadata import Condition, TopLevel

PARTITION_TYPE = Available(("DRAPartitionableDevicesType",), since=37)
SINCE_1_37 = Available(since=37)


class ResourcePoolStatusRequestSpec(Object):
    """The pools that are asked about."""

    driver: str = ""
    pool_name: str | None = None
    limit: int | None = None
    default_partition_type_attribute: Annotated[str | None, PARTITION_TYPE] = None


class PartitionTypeStatus(Object):
    """The partitions of one type: how many there are, and how many more can be allocated."""

    attribute: str = ""
    type: str = ""
    total: int | None = None
    allocatable: int | None = None


class ShareableCapacityStatus(Object):
    """One capacity of all devices that can be shared, together."""

    name: str = ""
    total: Amount | None = None
    consumed: Amount | None = None
    available: Amount | None = None


class ShareableSummaryStatus(Object):
    """The devices that can be shared."""

    fully_available_devices: int | None = None
    partially_available_devices: int | None = None
    capacity: list[ShareableCapacityStatus] | None = None


class PoolStatus(Object):
    """What is free in one pool."""

    driver: str = ""
    pool_name: str = ""
    generation: Int64 = 0
    node_name: str | None = None
    resource_slice_count: int | None = None
    total_devices: int | None = None
    allocated_devices: int | None = None
    available_devices: int | None = None
    unavailable_devices: int | None = None
    validation_error: str | None = None
    partition_summary: Annotated[list[PartitionTypeStatus] | None, SINCE_1_37] = None
    shareable_summary: Annotated[ShareableSummaryStatus | None, SINCE_1_37] = None


class ResourcePoolStatusRequestStatus(Object):
    """The answer; it is given once."""

    pool_count: int | None = None
    pools: list[PoolStatus] | None = None
    conditions: list[Condition] | None = None


class ResourcePoolStatusRequest(TopLevel):
    """A question that the controller answers once, in the status."""

    spec: ResourcePoolStatusRequestSpec = Field(default_factory=ResourcePoolStatusRequestSpec)
    status: ResourcePoolStatusRequestStatus | None = None
