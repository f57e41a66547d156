"""The what-if flags of `simulate` and `explain`, and how they change a cluster."""

from __future__ import annotations

import argparse
from typing import Final

from dra_sdk.cli.arguments import REPEATED, whole_number
from dra_sdk.cli.input import read_file, read_kinds
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.cluster import (
    DeviceTarget,
    NodeTemplate,
    Snapshot,
    add_nodes,
    add_taint,
    drain,
    read_snapshot,
)
from dra_sdk.tools.scheduling.cluster.losses import lose_hardware, lose_node
from dra_sdk.tools.scheduling.cluster.what_if import free_node_names, replaced
from dra_sdk.wire.profile import NEWEST, ServerProfile
from dra_sdk.wire.resource.slices import DeviceTaint
from dra_sdk.wire.validation.devices import taint as taint_problems
from dra_sdk.wire.validation.names import dns_subdomain

MAX_NODES: Final = 10_000
"""The most nodes that one flag adds."""
_ANY: Final = "*"


def add_what_if_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags, each of which may be repeated."""
    order = "first objects are replaced, then nodes are added, devices tainted and lost, nodes drained and lost"
    what_if = parser.add_argument_group("what if", order)
    what_if.add_argument(
        "--add-node",
        **REPEATED,
        type=_node_and_model,
        metavar="NAME=LIKE",
        help="add a node with devices like those of node LIKE",
    )
    what_if.add_argument(
        "--taint",
        **REPEATED,
        type=_taint,
        metavar="DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT",
        help=f"taint a device, or all devices of DRIVER/POOL or DRIVER; {_ANY} stands for any name",
    )
    what_if.add_argument(
        "--override", **REPEATED, metavar="FILE", help="objects of this file replace those of their name"
    )
    what_if.add_argument(
        "--add-nodes",
        **REPEATED,
        type=_number_and_model,
        metavar="COUNT=LIKE",
        help="add so many nodes with devices like those of node LIKE",
    )
    what_if.add_argument(
        "--lose",
        **REPEATED,
        type=_device_selector,
        metavar="DRIVER/POOL/DEVICE",
        help=f"a device breaks, with all parts of its hardware such as the partitions of a GPU; {_ANY}: any name",
    )
    what_if.add_argument(
        "--lose-node", **REPEATED, metavar="NODE", help="a node is lost with its devices and its DaemonSets"
    )
    what_if.add_argument("--drain", **REPEATED, metavar="NODE", help="cordon a node and move its pods to other nodes")


def add_wave_flag(parser: argparse.ArgumentParser) -> None:
    """Add the flag."""
    parser.add_argument(
        "--waves",
        type=whole_number(1),
        metavar="N",
        help="drain the nodes of --drain, or all nodes, N at a time, and uncordon them before the next ones; "
        "slices of --override replace those of a node when it is drained",
    )


def changed_cluster(snapshot: Snapshot, original: Snapshot, arguments: argparse.Namespace) -> Snapshot | None:
    """Return the cluster after the changes, None without these flags; new nodes as in `original`. WhatIfError."""
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
    """Return the objects of each --override file."""
    kinds = read_kinds(arguments.workloads)
    return [read_snapshot([read_file(file)], original.profile, kinds=kinds).snapshot for file in arguments.override]


def _node_and_model(text: str) -> tuple[str, str]:
    """Return the parts of `NAME=LIKE`."""
    name, equals, like = text.partition("=")
    if not (name and equals and like):
        raise argparse.ArgumentTypeError(f"{text!r} must be NAME=LIKE: the new node, and the node that it is like")
    for problem in dns_subdomain(name, "NAME"):
        raise argparse.ArgumentTypeError(f"{text!r:.80}: {problem}")
    return name, like


def _number_and_model(text: str) -> tuple[int, str]:
    """Return the parts of `COUNT=LIKE`."""
    count, equals, like = text.partition("=")
    if not (count.isdecimal() and 1 <= int(count) <= MAX_NODES and equals and like):
        raise argparse.ArgumentTypeError(f"{text!r} must be COUNT=LIKE with 1 to {MAX_NODES} nodes")
    return int(count), like


def _taint(text: str) -> tuple[DeviceTarget, JSON]:
    """Return the parts of `driver/pool/device=key=value:Effect`."""
    where, equals, taint = text.partition("=")
    key_and_value, colon, effect = taint.rpartition(":")
    key, _, value = key_and_value.partition("=")
    if not (where and equals and colon and key):
        raise argparse.ArgumentTypeError(f"{text!r} must be DRIVER/POOL/DEVICE=KEY[=VALUE]:EFFECT")
    spec = {"key": key, "value": value, "effect": effect} if value else {"key": key, "effect": effect}
    for problem in taint_problems(DeviceTaint.model_validate(spec), "taint", ServerProfile.of(f"1.{NEWEST}")):
        raise argparse.ArgumentTypeError(f"{text!r}: {problem}")
    return _device_selector(where), spec


def _device_selector(text: str) -> DeviceTarget:
    """Return the parts of `driver/pool/device`; the name of a pool may have slashes, so the last part is the device."""
    driver, *rest = text.split("/")
    pool, device = ("/".join(rest[:-1]), rest[-1]) if len(rest) > 1 else ("".join(rest), "")
    return DeviceTarget(driver, *(None if part in {"", _ANY} else part for part in (pool, device)))
