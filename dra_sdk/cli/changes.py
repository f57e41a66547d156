"""What-if flags: how to read them, what they change, and how the difference is told."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from dra_sdk.model import JSON
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
    suggest_nodes,
)
from dra_sdk.wire.profile import NEWEST, ServerProfile
from dra_sdk.wire.resource.slices import DeviceTaint
from dra_sdk.wire.validation.devices import taint as taint_problems
from dra_sdk.wire.validation.names import dns_subdomain

_ANY = "*"


def add_what_if_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags; each may be given more than once. They act in the order --add-node, --taint, --drain."""
    what_if = parser.add_argument_group("what if", "nodes are added first, then devices tainted, then nodes drained")
    what_if.add_argument(
        "--add-node",
        action="append",
        default=[],
        type=_addition,
        metavar="NAME=LIKE",
        help="one more node, with devices like those of node LIKE",
    )
    what_if.add_argument(
        "--taint",
        action="append",
        default=[],
        type=_taint,
        metavar="DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT",
        help=f"taint a device, all of a pool or of a driver (DRIVER/POOL, DRIVER, or {_ANY} for a part)",
    )
    what_if.add_argument(
        "--drain", action="append", default=[], metavar="NODE", help="cordon a node and move its pods elsewhere"
    )


def apply(snapshot: Snapshot, original: Snapshot, arguments: argparse.Namespace) -> Snapshot | None:
    """The changed cluster, None without such flags; nodes are copied from `original`. WhatIfError."""
    if not (arguments.add_node or arguments.taint or arguments.drain):
        return None
    for name, like in arguments.add_node:
        snapshot = add_nodes(snapshot, NodeTemplate.of(original, like), [name])
    for target, taint in arguments.taint:
        snapshot = add_taint(snapshot, target, taint)
    for node in arguments.drain:
        snapshot = drain(snapshot, node)
    return snapshot


def changes(before: SchedulingOutcome, after: SchedulingOutcome) -> list[str]:
    """A line for each pod or claim that is not as before."""
    found = [_line(each) for each in compare_outcomes(before, after)]
    return ["What changes:", *(f"  {each}" for each in found)] if found else ["Nothing changes."]


def advice(outcome: SchedulingOutcome, original: Snapshot) -> list[str]:
    """Whether new nodes would help those without a place; nothing if there are none, or if nodes are not the reason."""
    reasons = [*(each.reason for each in outcome.unplaced), *(each.reason for each in outcome.unallocated)]
    if not any(reason.startswith(NO_NODE_PREFIX) for reason in reasons):
        return []
    found = suggest_nodes(outcome, original)
    if not found:
        return ["Would a new node help? No: no node like those that are there would change anything."]
    best = [each for each in found if len(each.placed) == len(found[0].placed) and each.nodes == found[0].nodes]
    return [f"Would a new node help? {_sentence(found[0], [each.like for each in best])}"]


def _sentence(found: NodeSuggestion, likes: Sequence[str]) -> str:
    nodes = "1 more node" if found.nodes == 1 else f"{found.nodes} more nodes"
    like = " or ".join(likes)
    if not found.left:
        return f"Yes: {nodes} like {like} would do for {_names(found.placed)}."
    return f"In part: {nodes} like {like} would do for {_names(found.placed)}, not for {_names(found.left)}."


def _names(keys: Sequence[ObjectKey], limit: int = 8) -> str:
    names = [display_name(each) for each in keys]
    return ", ".join(names) if len(names) <= limit else f"{', '.join(names[:limit])} and {len(names) - limit} more"


def _line(change: PlacementChange) -> str:
    who = f"{'pod' if change.is_pod else 'claim'} {display_name(change.subject)}"
    if change.after is None:
        return f"{who}: gone"
    was = _situation(change.before) if change.before else "did not exist"
    told = f"{who}: {was} → {_situation(change.after, change.reason)}"
    return f"{told} (evicted: {change.evicted})" if change.evicted else told


def _situation(situation: PlacementState, reason: str = "") -> str:
    if situation.node is None:
        return f"no place, {reason}" if reason else "no place"
    devices = ", ".join(f"{request} {' + '.join(names)}" for request, names in situation.devices.items())
    return f"{situation.node} with {devices}" if devices else situation.node


def _addition(text: str) -> tuple[str, str]:
    name, equals, like = text.partition("=")
    if not (name and equals and like):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=LIKE, the new node's name and the one it is like")
    for problem in dns_subdomain(name, "NAME"):
        raise argparse.ArgumentTypeError(f"{text!r:.80}: {problem}")
    return name, like


def _taint(text: str) -> tuple[DeviceTaintSelector, JSON]:
    """`driver/pool/device=key=value:Effect`; a pool's name may have slashes, so the last part is the device."""
    where, equals, taint = text.partition("=")
    what, colon, effect = taint.rpartition(":")
    key, _, value = what.partition("=")
    if not (where and equals and colon and key):
        raise argparse.ArgumentTypeError(f"{text!r} must be DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT")
    found = {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}
    for problem in taint_problems(DeviceTaint.model_validate(found), "taint", ServerProfile.of(f"1.{NEWEST}")):
        raise argparse.ArgumentTypeError(f"{text!r}: {problem}")
    return _target(where), found


def _target(text: str) -> DeviceTaintSelector:
    driver, *rest = text.split("/")
    pool, device = ("/".join(rest[:-1]), rest[-1]) if len(rest) > 1 else ("".join(rest), "")
    return DeviceTaintSelector(driver, *(None if part in {"", _ANY} else part for part in (pool, device)))
