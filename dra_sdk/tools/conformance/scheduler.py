"""Allocating a claim as kube-scheduler would, from what the driver has published and nothing else."""

from __future__ import annotations

from collections.abc import Iterable

from dra_sdk.model import JSON
from dra_sdk.tools.conformance.wanted import Wanted
from dra_sdk.tools.scheduling.allocator import AllocatedState, AllocationError, Allocator, Inventory


def match(
    claim: JSON, node: JSON, slices: Iterable[JSON], *, wanted: Wanted, driver: str, held: Iterable[JSON]
) -> JSON:
    """`status.allocation` for a claim of the class that `wanted` names; `held` are the claims that have devices.

    Raises AllocationError where the scheduler would not find a device, with its reason or, where it has none, ours.
    """
    expressions = [f'device.driver == "{driver}"', *(each.expression for each in wanted.selectors)]
    selectors = [{"cel": {"expression": each}} for each in expressions]
    config = [{"opaque": each["opaque"]} for each in wanted.config if each["source"] == "FromClass"]
    spec = {"selectors": selectors, "config": config}
    device_class = {"metadata": {"name": wanted.class_name}, "spec": spec}
    allocator = Allocator(Inventory(list(slices)), {wanted.class_name: device_class})
    found = allocator.allocate(node, [claim], AllocatedState.of(held))
    if found is None:
        raise AllocationError("no device of the driver's slices can be allocated on the node")
    return found[0]
