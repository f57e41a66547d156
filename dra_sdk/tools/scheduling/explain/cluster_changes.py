"""Events in the cluster that may help: claims end, taints are removed, slices and nodes are added."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.allocated_state import held_devices
from dra_sdk.tools.scheduling.allocator.pools import Pool
from dra_sdk.tools.scheduling.cluster.snapshot import (
    ObjectKey,
    Snapshot,
    display_name,
    newest_generation,
    object_key,
)
from dra_sdk.tools.scheduling.cluster.what_if import NodeTemplate, free_node_names
from dra_sdk.tools.scheduling.device_taints import taint_text, untolerated_taints
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem
from dra_sdk.tools.scheduling.explain.node_inspection import NodeInspection
from dra_sdk.tools.scheduling.explain.trials import ChangeSize, ProposedChange

_MAX_CLAIMS: Final = 24
"""Of how many claims it is tried whether it helps to deallocate them."""


def claims_deallocated(problem: AllocationProblem, inspection: NodeInspection) -> Iterator[ProposedChange]:
    """Propose that a claim that holds devices on a node is deallocated."""
    in_use = _claims_in_use(problem, inspection)
    for key, devices in list(in_use.items())[:_MAX_CLAIMS]:
        name = display_name(key)
        yield ProposedChange(
            ChangeSize.CLAIM_FREED,
            f"claim {name} releases its devices ({', '.join(devices)} on {inspection.report.example})",
            partial(_without_claims, keys={key}),
            [inspection.node],
            family="claim",
            name=name,
        )
    if len(in_use) > 1:
        yield from _claims_deallocated_together(problem, inspection, list(in_use))


def _claims_deallocated_together(
    problem: AllocationProblem, inspection: NodeInspection, keys: Sequence[ObjectKey]
) -> Iterator[ProposedChange]:
    """Propose that several claims are deallocated, as few as needed."""
    if not _without_claims(problem, set(keys)).allocate_on(inspection.node).fits:
        return
    needed = list(keys)
    for key in keys:
        fewer = [other for other in needed if other != key]
        if _without_claims(problem, set(fewer)).allocate_on(inspection.node).fits:
            needed = fewer
    names = ", ".join(map(display_name, needed))
    if len(needed) > 1:
        text = f"claims {names} release their devices (on {inspection.report.example})"
        yield ProposedChange(
            ChangeSize.CLAIMS_FREED,
            text,
            partial(_without_claims, keys=set(needed)),
            [inspection.node],
            len(needed),
            "claims",
            names,
        )


def _without_claims(problem: AllocationProblem, keys: set[ObjectKey]) -> AllocationProblem:
    return problem.with_changes(
        allocated_claims=tuple(claim for claim in problem.allocated_claims if object_key(claim) not in keys)
    )


def _claims_in_use(problem: AllocationProblem, inspection: NodeInspection) -> dict[ObjectKey, list[str]]:
    """Return the claims that hold devices in the pools of this node that the requests match, and these devices."""
    pools = {candidate.pool.id for request in inspection.requests for candidate in request.closest}
    in_use: dict[ObjectKey, list[str]] = {}
    for claim in problem.allocated_claims:
        for device, _ in held_devices(claim):
            if (device.driver, device.pool) in pools:
                in_use.setdefault(object_key(claim), []).append(device.device)
    return in_use


def taints_removed(inspection: NodeInspection) -> Iterator[ProposedChange]:
    """Propose that a taint is removed from the devices of a node."""
    taints: dict[str, list[str]] = {}
    pools = set()
    for inspected in inspection.requests:
        for candidate in inspected.closest:
            for taint in untolerated_taints(candidate.device.taints, inspected.request.tolerations):
                taints.setdefault(taint_text(taint), []).append(candidate.id.device)
                pools.add(candidate.pool.id)
    for text, devices in taints.items():
        names = ", ".join(dict.fromkeys(devices))
        yield ProposedChange(
            ChangeSize.TAINT_REMOVED,
            f"taint {text} is removed from {names} (on {inspection.report.example})",
            partial(_without_taint, text=text, pools=pools),
            [inspection.node],
            family=f"taint {text}",
            name=f"on {inspection.report.example}",
        )


def _without_taint(problem: AllocationProblem, text: str, pools: set[tuple[str, str]]) -> AllocationProblem:
    slices = tuple(
        _slice_without_taint(part.json, text) if part.pool in pools else part.json for part in problem.inventory.slices
    )
    return problem.with_changes(slices=slices, rules=())


def _slice_without_taint(raw_slice: JSON, text: str) -> JSON:
    devices = [
        device | {"taints": [taint for taint in device.get("taints") or () if taint_text(taint) != text]}
        for device in raw_slice["spec"].get("devices") or ()
    ]
    return raw_slice | {"spec": raw_slice["spec"] | {"devices": devices}} if devices else raw_slice


def pools_completed(problem: AllocationProblem, inspection: NodeInspection) -> Iterator[ProposedChange]:
    """Propose that the missing slices of a pool are published, even without devices."""
    for pool in problem.inventory.node_devices(inspection.node).pools:
        if pool.incomplete:
            yield ProposedChange(
                ChangeSize.POOL_COMPLETED,
                _completion(problem, pool),
                partial(_with_complete_pool, pool_id=pool.id),
                [inspection.node],
                family="pool",
                name=pool.name,
            )


def _completion(problem: AllocationProblem, pool: Pool) -> str:
    newest = newest_generation([part.json for part in problem.inventory.slices if part.pool == pool.id])
    if any(raw_slice["spec"]["pool"]["resourceSliceCount"] < len(newest) for raw_slice in newest):
        return f"all slices of pool {pool.name} say that there are {len(newest)}"
    return f"the missing slices of pool {pool.name} are published"


def _with_complete_pool(problem: AllocationProblem, pool_id: tuple[str, str]) -> AllocationProblem:
    current = [pool_slice for pool_slice in problem.inventory.slices if pool_slice.pool == pool_id]
    newest = max(pool_slice.generation for pool_slice in current)
    count = sum(1 for pool_slice in current if pool_slice.generation == newest)
    slices = tuple(
        _with_slice_count(pool_slice.json, count)
        if pool_slice.pool == pool_id and pool_slice.generation == newest
        else pool_slice.json
        for pool_slice in problem.inventory.slices
    )
    return problem.with_changes(slices=slices, rules=())


def _with_slice_count(raw_slice: JSON, count: int) -> JSON:
    spec = raw_slice["spec"]
    return raw_slice | {"spec": spec | {"pool": spec["pool"] | {"resourceSliceCount": count}}}


def node_opened(inspection: NodeInspection) -> Iterator[ProposedChange]:
    """Propose that the pod may run on a node that rejects it now."""
    name = inspection.report.example
    text = f"the pod is allowed on {name} (now: {inspection.report.rejection})"
    yield ProposedChange(
        ChangeSize.NODE_OPENED, text, lambda problem: problem, [inspection.node], family="open", name=name
    )


def node_added(snapshot: Snapshot, inspection: NodeInspection) -> Iterator[ProposedChange]:
    """Propose one more node with devices like those of this one."""
    template = NodeTemplate.of(snapshot, inspection.report.example)
    if not template.slices:
        return
    (name,) = free_node_names(snapshot, template.name, 1)
    node, *slices = template.copies(name)
    yield ProposedChange(
        ChangeSize.NODE,
        f"one more node like {template.name}",
        lambda problem: problem.with_changes(slices=(*problem.slices, *slices), nodes=(*problem.nodes, node)),
        [node],
        family="node",
        name=template.name,
    )
