"""What `simulate` and `explain` look at: a cluster that is scheduled, changed, and scheduled again."""

from __future__ import annotations

import argparse
from collections.abc import Generator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

from dra_sdk.cli.input import Scenario, scenarios
from dra_sdk.cli.progress import phase
from dra_sdk.cli.what_if_flags import changed_cluster, overrides
from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, Snapshot, schedule
from dra_sdk.tools.scheduling.cluster.drain_waves import DrainWave, drain_in_waves, uncordoned, waves_of
from dra_sdk.tools.scheduling.cluster.what_if import replaced


class Outcome(NamedTuple):
    """A scenario with everything scheduled.

    before: the cluster as it is.
    after: the cluster after the changes of the what-if flags, or after the last wave; `before` without such flags.
    waves: what moves in each wave; None without --waves.
    """

    scenario: Scenario
    before: SchedulingOutcome
    after: SchedulingOutcome
    waves: Sequence[DrainWave] | None


def outcomes(arguments: argparse.Namespace) -> Generator[Outcome, None, None]:
    """Yield the outcome of each scenario; with --watch, after each change too. To be closed. DraError for bad input."""
    with closing(scenarios(arguments)) as every:
        for scenario in every:
            with phase("scheduling pods") as pods:
                before = schedule(scenario.snapshot, count=pods.count)
            if arguments.waves:
                with phase("simulating waves"):
                    waves = _simulated_waves(before, scenario.snapshot, arguments)
                yield Outcome(scenario, before, uncordoned(waves[-1]) if waves else before, waves)
            else:
                yield Outcome(scenario, before, _changed(before, scenario.snapshot, arguments), None)


def _changed(before: SchedulingOutcome, original: Snapshot, arguments: argparse.Namespace) -> SchedulingOutcome:
    with phase("changing the cluster"):
        changed = changed_cluster(before.snapshot, original, arguments)
    if changed is None:
        return before
    with phase("scheduling pods again") as pods:
        return schedule(changed, count=pods.count)


def _simulated_waves(before: SchedulingOutcome, original: Snapshot, arguments: argparse.Namespace) -> list[DrainWave]:
    """Return the waves that the flags describe, after other changes; WhatIfError for a node that does not exist."""
    chosen = list(dict.fromkeys(arguments.drain))
    given = overrides(original, arguments)
    snapshot = before.snapshot
    for override in given:
        snapshot = replaced(snapshot, _before_waves(override, chosen))
    others = argparse.Namespace(**{**vars(arguments), "drain": [], "override": []})
    changed = changed_cluster(snapshot, original, others) or snapshot
    start = before if changed is before.snapshot else schedule(changed)

    def upgraded(cluster: Snapshot, drained: Sequence[str]) -> Snapshot:
        for override in given:
            cluster = replaced(cluster, _of_nodes(override, drained))
        return cluster

    nodes = chosen or list(start.snapshot.nodes_by_name)
    return list(drain_in_waves(start, waves_of(nodes, arguments.waves), upgraded))


def _of_nodes(given: Snapshot, nodes: Sequence[str]) -> Snapshot:
    """Return the slices of these nodes alone."""
    return Snapshot(slices=tuple(raw_slice for raw_slice in given.slices if raw_slice["spec"].get("nodeName") in nodes))


def _before_waves(given: Snapshot, nodes: Sequence[str]) -> Snapshot:
    """Return the objects without the slices of these nodes; without names, of all nodes."""
    kept = (
        raw_slice
        for raw_slice in given.slices
        if (name := raw_slice["spec"].get("nodeName")) is None or (nodes and name not in nodes)
    )
    return replace(given, slices=tuple(kept))
