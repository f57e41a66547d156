"""Pools as whole ResourceSlice objects, for people and files; the controller makes its own from the same plan."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.device import ResourcePool
from dra_sdk.node.slices.diff import Identity, diff
from dra_sdk.node.slices.layout import arranged
from dra_sdk.node.slices.names import generate_name
from dra_sdk.node.slices.plan import plan
from dra_sdk.wire.profile import NEWEST


def resource_slices(
    pools: Iterable[ResourcePool], *, driver: str, node_name: str, minor: int = NEWEST
) -> Iterator[dict[str, Any]]:
    """The ResourceSlices of a fresh publication, without the owner's UID, which only the API server knows.

    `minor` is the release of the server they are for, `34` for 1.34. Raises InvalidObjectError at the first pool that
    breaks a limit.
    """
    for name, planned in plan(pools, driver=driver, node_name=node_name).items():
        if isinstance(planned, InvalidObjectError):
            raise planned
        slices = arranged(planned.slices, minor)
        for operation in diff([], slices, Identity(driver, name)):
            count = len(slices)
            operation.body["metadata"]["generateName"] = generate_name(operation.index, count, driver, node_name)
            yield operation.body
