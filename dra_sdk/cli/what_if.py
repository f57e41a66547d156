"""The what-if flags of `simulate` and `explain`: how they change the cluster, and the lines about what changes."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Final

from dra_sdk.cli.sources import read_file, read_kinds
from dra_sdk.model import JSON
from dra_sdk.texts import counted, shortened
from dra_sdk.tools.scheduling.cluster import (
    NO_NODE_PREFIX,
    DeviceTaintSelector,
    NodeSuggestion,
    NodeTemplate,
    ObjectKey,
    PlacementChange,
    PlacementState,
    SchedulingOutcome,
    Snapshot,
    add_nodes,
    add_taint,
    compare_outcomes,
    display_name,
    drain,
    read_snapshot,
    suggest_nodes,
)
from dra_sdk.tools.scheduling.cluster.losses import lose_hardware, lose_node, replaced
from dra_sdk.tools.scheduling.cluster.snapshot import Count, no_count
from dra_sdk.tools.scheduling.cluster.what_if import free_node_names
from dra_sdk.wire.profile import NEWEST, ServerProfile
from dra_sdk.wire.resource.slices import DeviceTaint
from dra_sdk.wire.validation.devices import taint as taint_problems
from dra_sdk.wire.validation.names import dns_subdomain

MAX_NAMES: Final = 8
"""The most names in one line."""
MAX_NODES: Final = 10_000
"""The most nodes that one flag adds."""
_ANY: Final = "*"


def add_what_if_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags, each of which may be repeated."""
    order = "first objects are replaced, then nodes are added, devices tainted and lost, nodes drained and lost"
    what_if = parser.add_argument_group("what if", order)
    what_if.add_argument(
        "--add-node",
        action="append",
        default=[],
        type=_node_and_model,
        metavar="NAME=LIKE",
        help="add a node with devices like those of node LIKE",
    )
    what_if.add_argument(
        "--taint",
        action="append",
        default=[],
        type=_taint,
        metavar="DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT",
        help=f"taint a device, or all devices of DRIVER/POOL or DRIVER; {_ANY} stands for any name",
    )
    what_if.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="FILE",
        help="objects of this file replace those of their name",
    )
    what_if.add_argument(
        "--add-nodes",
        action="append",
        default=[],
        type=_number_and_model,
        metavar="COUNT=LIKE",
        help="add so many nodes with devices like those of node LIKE",
    )
    what_if.add_argument(
        "--lose",
        action="append",
        default=[],
        type=_device_selector,
        metavar="DRIVER/POOL/DEVICE",
        help=f"a device breaks, with all parts of its hardware such as the partitions of a GPU; {_ANY}: any name",
    )
    what_if.add_argument(
        "--lose-node",
        action="append",
        default=[],
        metavar="NODE",
        help="a node is lost with its devices and its DaemonSets",
    )
    what_if.add_argument(
        "--drain", action="append", default=[], metavar="NODE", help="cordon a node and move its pods to other nodes"
    )


def changed_cluster(snapshot: Snapshot, original: Snapshot, arguments: argparse.Namespace) -> Snapshot | None:
    """The cluster after the changes, None without these flags. New nodes are like those of `original`. WhatIfError."""
    flags = ("override", "add_node", "add_nodes", "taint", "lose", "drain", "lose_node")
    if not any(getattr(arguments, flag) for flag in flags):
        return None
    for given in overrides(original, arguments):
        snapshot, original = replaced(snapshot, given), replaced(original, given)
    for count, like in arguments.add_nodes:
        template = NodeTemplate.of(original, like)
        snapshot = add_nodes(snapshot, template, free_node_names(snapshot, like, count))
    for name, like in arguments.add_node:
        snapshot = add_nodes(snapshot, NodeTemplate.of(original, like), [name])
    for devices, taint in arguments.taint:
        snapshot = add_taint(snapshot, devices, taint)
    for devices in arguments.lose:
        snapshot = lose_hardware(snapshot, devices)
    for node in arguments.drain:
        snapshot = drain(snapshot, node)
    for node in arguments.lose_node:
        snapshot = lose_node(snapshot, node)
    return snapshot


def overrides(original: Snapshot, arguments: argparse.Namespace) -> list[Snapshot]:
    """The objects of each --override file."""
    kinds = read_kinds(arguments.workloads)
    return [read_snapshot([read_file(each)], original.profile, kinds=kinds).snapshot for each in arguments.override]


def change_lines(before: SchedulingOutcome, after: SchedulingOutcome, when: str = "") -> list[str]:
    """A line for each pod or claim whose placement differs; `when` is added to the heading."""
    found = [change_line(each) for each in compare_outcomes(before, after)]
    return [f"What changes{when}:", *(f"  {each}" for each in found)] if found else [f"Nothing changes{when}."]


def advice_lines(outcome: SchedulingOutcome, original: Snapshot, count: Count = no_count) -> list[str]:
    """Whether new nodes would help the pods and claims that are not placed; empty if nodes are not the reason."""
    reasons = [*(each.reason for each in outcome.unplaced), *(each.reason for each in outcome.unallocated)]
    if not any(reason.startswith(NO_NODE_PREFIX) for reason in reasons):
        return []
    found = suggest_nodes(outcome, original, count)
    if not found:
        return ["Would a new node help? No: no node like the existing ones would change anything."]
    best = [each for each in found if len(each.placed) == len(found[0].placed) and each.nodes == found[0].nodes]
    return [f"Would a new node help? {_advice(found[0], [each.like for each in best])}"]


def _advice(found: NodeSuggestion, likes: Sequence[str]) -> str:
    nodes = counted(found.nodes, "more node")
    like = " or ".join(likes)
    if not found.left:
        return f"Yes: {nodes} like {like} would be enough for {_names(found.placed)}."
    return f"In part: {nodes} like {like} would be enough for {_names(found.placed)}, not for {_names(found.left)}."


def _names(keys: Sequence[ObjectKey]) -> str:
    return shortened([display_name(each) for each in keys], MAX_NAMES)


def change_line(change: PlacementChange) -> str:
    """One pod or claim, with its node and devices before and after."""
    subject = f"{'pod' if change.is_pod else 'claim'} {display_name(change.subject)}"
    if change.after is None:
        return f"{subject}: no longer exists"
    before = _placement(change.before) if change.before else "did not exist"
    line = f"{subject}: {before} → {_placement(change.after, change.reason)}"
    return f"{line} (evicted: {change.evicted})" if change.evicted else line


def _placement(situation: PlacementState, reason: str = "") -> str:
    if situation.node is None:
        return f"not placed, {reason}" if reason else "not placed"
    devices = ", ".join(f"{request} {' + '.join(names)}" for request, names in situation.devices.items())
    return f"{situation.node} with {devices}" if devices else situation.node


def _node_and_model(text: str) -> tuple[str, str]:
    """`NAME=LIKE`."""
    name, equals, like = text.partition("=")
    if not (name and equals and like):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=LIKE: the new node, and the node that it is like")
    for problem in dns_subdomain(name, "NAME"):
        raise argparse.ArgumentTypeError(f"{text!r:.80}: {problem}")
    return name, like


def _number_and_model(text: str) -> tuple[int, str]:
    """`COUNT=LIKE`."""
    count, equals, like = text.partition("=")
    if not (count.isdecimal() and 1 <= int(count) <= MAX_NODES and equals and like):
        raise argparse.ArgumentTypeError(f"{text!r} must be COUNT=LIKE with 1 to {MAX_NODES} nodes")
    return int(count), like


def _taint(text: str) -> tuple[DeviceTaintSelector, JSON]:
    """`driver/pool/device=key=value:Effect`."""
    where, equals, taint = text.partition("=")
    key_and_value, colon, effect = taint.rpartition(":")
    key, _, value = key_and_value.partition("=")
    if not (where and equals and colon and key):
        raise argparse.ArgumentTypeError(f"{text!r} must be DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT")
    found = {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}
    for problem in taint_problems(DeviceTaint.model_validate(found), "taint", ServerProfile.of(f"1.{NEWEST}")):
        raise argparse.ArgumentTypeError(f"{text!r}: {problem}")
    return _device_selector(where), found


def _device_selector(text: str) -> DeviceTaintSelector:
    """`driver/pool/device`; the name of a pool may have slashes, so the last part is the device."""
    driver, *rest = text.split("/")
    pool, device = ("/".join(rest[:-1]), rest[-1]) if len(rest) > 1 else ("".join(rest), "")
    return DeviceTaintSelector(driver, *(None if part in {"", _ANY} else part for part in (pool, device)))
