"""Nodes that are drained in waves, as in an upgrade: which pods move, and whether each wave leaves all of them a node.

The nodes of a wave are cordoned and drained; the pods are scheduled; then the nodes are uncordoned, perhaps with other
slices, and the next wave begins with the pods where they are. Source: kubectl drain.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster.disruption_budgets import DisruptionBudgets
from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.scheduling_outcome import PlacementChange, SchedulingOutcome, compare_outcomes
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot
from dra_sdk.tools.scheduling.cluster.what_if import drain, pods_to_evict

Upgrade = Callable[[Snapshot, Sequence[str]], Snapshot]
"""Changes the cluster while these nodes are drained."""


@dataclass(frozen=True, slots=True)
class DrainWave:
    """One wave.

    nodes: the nodes that are drained.
    before: the cluster before the wave.
    after: the cluster while these nodes are drained.
    blocked: the evicted pods that violate a PodDisruptionBudget: `kubectl drain` waits until others are healthy.
    """

    nodes: tuple[str, ...]
    before: SchedulingOutcome
    after: SchedulingOutcome
    blocked: tuple[ObjectKey, ...]

    @property
    def changes(self) -> tuple[PlacementChange, ...]:
        """What the wave changes."""
        return compare_outcomes(self.before, self.after)

    @property
    def unplaced(self) -> tuple[ObjectKey, ...]:
        """The pods, and claims without a pod, that have a node before the wave and none in it."""
        return tuple(change.subject for change in self.changes if change.lost)

    @property
    def fits(self) -> bool:
        """Whether the wave takes nothing away."""
        return not self.unplaced


def waves_of(nodes: Sequence[str], size: int) -> list[tuple[str, ...]]:
    """Return the nodes in groups of this size, the last of which may be smaller."""
    return [tuple(nodes[start : start + size]) for start in range(0, len(nodes), size)]


def drain_in_waves(start: SchedulingOutcome, waves: Sequence[Sequence[str]], upgrade: Upgrade) -> Iterator[DrainWave]:
    """Drain these nodes, wave by wave; WhatIfError for a node that does not exist.

    The cluster after the last wave has been uncordoned is `uncordoned(wave)` of the last one.
    """
    before = start
    for nodes in waves:
        evicted = [pod for node in nodes for pod in pods_to_evict(before.snapshot, node)]
        blocked = DisruptionBudgets(before.snapshot).violating(evicted)
        drained = before.snapshot
        for node in nodes:
            drained = drain(drained, node)
        after = schedule(upgrade(drained, nodes))
        wave = DrainWave(tuple(nodes), before, after, tuple(sorted(blocked)))
        yield wave
        before = uncordoned(wave)


def uncordoned(wave: DrainWave) -> SchedulingOutcome:
    """Return the cluster after the nodes of a wave were uncordoned, with the pods that wait scheduled again."""
    before = wave.before.snapshot.nodes_by_name
    cordoned = {name for name in wave.nodes if not (before[name].get("spec") or {}).get("unschedulable")}
    nodes = [_schedulable(node) for node in wave.after.snapshot.nodes if node["metadata"]["name"] in cordoned]
    return schedule(wave.after.snapshot.with_objects(nodes))


def _schedulable(node: JSON) -> JSON:
    spec = {key: value for key, value in (node.get("spec") or {}).items() if key != "unschedulable"}
    return node | {"spec": spec}
