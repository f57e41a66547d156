"""`dra-sdk simulate --waves N`: the nodes of an upgrade, drained so many at a time."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace

from dra_sdk.cli.what_if import changed_cluster, overrides
from dra_sdk.tools.scheduling.cluster import SchedulingOutcome, Snapshot, schedule
from dra_sdk.tools.scheduling.cluster.drain_waves import DrainWave, drain_in_waves, waves_of
from dra_sdk.tools.scheduling.cluster.losses import replaced


def add_wave_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--waves",
        type=_count,
        metavar="N",
        help="drain the nodes of --drain, or all nodes, N at a time, and uncordon them before the next ones; "
        "slices of --override replace those of a node when it is drained",
    )


def simulated_waves(before: SchedulingOutcome, original: Snapshot, arguments: argparse.Namespace) -> list[DrainWave]:
    """The waves that the flags describe; WhatIfError for a node that does not exist. Other changes are made first."""
    chosen = list(dict.fromkeys(arguments.drain))
    given = overrides(original, arguments)
    snapshot = before.snapshot
    for each in given:
        snapshot = replaced(snapshot, _before_waves(each, chosen))
    others = argparse.Namespace(**{**vars(arguments), "drain": [], "override": []})
    changed = changed_cluster(snapshot, original, others) or snapshot
    start = before if changed is before.snapshot else schedule(changed)

    def upgraded(cluster: Snapshot, drained: Sequence[str]) -> Snapshot:
        for each in given:
            cluster = replaced(cluster, _of_nodes(each, drained))
        return cluster

    nodes = chosen or list(start.snapshot.nodes_by_name)
    return list(drain_in_waves(start, waves_of(nodes, arguments.waves), upgraded))


def _of_nodes(given: Snapshot, nodes: Sequence[str]) -> Snapshot:
    """The slices of these nodes alone."""
    return Snapshot(slices=tuple(each for each in given.slices if each["spec"].get("nodeName") in nodes))


def _before_waves(given: Snapshot, nodes: Sequence[str]) -> Snapshot:
    """The objects without the slices of these nodes; without names, of all nodes."""
    kept = (
        each for each in given.slices if (name := each["spec"].get("nodeName")) is None or (nodes and name not in nodes)
    )
    return replace(given, slices=tuple(kept))


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} must be a number of nodes, at least 1")
    return int(text)
