"""ResourcePoolStatusRequests. Source: the rules of resource.k8s.io/v1alpha3, and the strategy of its registry."""

from __future__ import annotations

from typing import Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.pool_status import (
    PoolStatus,
    ResourcePoolStatusRequest,
    ResourcePoolStatusRequestSpec,
)
from dra_sdk.wire.validation.metadata import cluster_metadata, conditions, updated_metadata
from dra_sdk.wire.validation.names import driver_name, fully_qualified_name, pool_name
from dra_sdk.wire.validation.problems import Problems, invalid, required, too_long
from dra_sdk.wire.validation.rules import check_list, if_set, immutable

LIMIT: Final = 1000
"""The most pools in an answer."""
MESSAGE: Final = 256
"""The most bytes of what is wrong with a pool."""


def pool_status_request(
    value: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest | None, profile: ServerProfile
) -> Problems:
    """Check a request. Its spec never changes."""
    yield from cluster_metadata(value.metadata, None if old is None else old.metadata, profile)
    if old is None:
        yield from _spec(value.spec, "spec", profile)
    else:
        yield from immutable(value.spec, old.spec, "spec")


def pool_status(value: ResourcePoolStatusRequest, old: ResourcePoolStatusRequest, profile: ServerProfile) -> Problems:
    """Check a request whose status is updated: an answer never changes."""
    yield from updated_metadata(value.metadata, old.metadata, profile)
    if old.status is not None:
        yield from immutable(value.status, old.status, "status")
    elif value.status is not None:
        yield from _count(value.status.pool_count, "status.poolCount")
        yield from check_list(value.status.pools, "status.pools", _pool, profile, at_most=LIMIT)
        yield from conditions(value.status.conditions, "status.conditions", profile)


def _spec(spec: ResourcePoolStatusRequestSpec, field: str, profile: ServerProfile) -> Problems:
    yield from driver_name(spec.driver, f"{field}.driver")
    yield from if_set(pool_name, spec.pool_name, f"{field}.poolName")
    if spec.limit is not None and not 1 <= spec.limit <= LIMIT:
        yield invalid(f"{field}.limit", f"must be 1 to {LIMIT}, is {spec.limit}")
    if spec.default_partition_type_attribute is not None:
        yield from fully_qualified_name(
            spec.default_partition_type_attribute, f"{field}.defaultPartitionTypeAttribute", profile
        )


def _pool(pool: PoolStatus, field: str) -> Problems:
    yield from driver_name(pool.driver, f"{field}.driver")
    yield from pool_name(pool.pool_name, f"{field}.poolName")
    if pool.validation_error is not None:
        yield from too_long(f"{field}.validationError", pool.validation_error, MESSAGE)


def _count(number: int | None, field: str) -> Problems:
    if number is None:
        yield required(field)
    elif number < 0:
        yield invalid(field, f"must be 0 or more, is {number}")
