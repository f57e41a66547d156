"""`dra-sdk top`: devices and partitions, the claims and pods that use them, and their health.

It reads files, a running cluster (the default) or, with --here, this node: what a driver finds on it and what its state
files contain, without a cluster. Health is read from the taints, as by the scheduler. Exit status: 0 if the devices
could be shown, 2 if not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any, Final

from dra_sdk.cli.arguments import Commands, Parser, opened_host_root, positive_seconds
from dra_sdk.cli.extras import require_tools
from dra_sdk.cli.hook_calls import discover, load_driver
from dra_sdk.cli.output import CLEAR, counted, print_table, printable, terminal_width
from dra_sdk.cli.scenario import print_bad_input
from dra_sdk.cli.sources import STDIN, read_cluster, read_file
from dra_sdk.cli.usage import DeviceUsage, device_usage, unknown_devices, usage_summary, usage_table
from dra_sdk.errors import SettingsError, StateError
from dra_sdk.model.driver import Node
from dra_sdk.node.health.tainting import TaintPolicy, with_taints
from dra_sdk.node.health.unhealthy_store import UNHEALTHY_FILE
from dra_sdk.node.health.unhealthy_store import decode as decode_unhealthy
from dra_sdk.node.prepare.checkpoint import Checkpoint
from dra_sdk.node.prepare.state_files import read_checkpoints
from dra_sdk.node.runtime.settings import Settings, add_flags, read_settings
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.tools.scheduling.cluster import ObjectSource, SnapshotReadError, read_snapshot
from dra_sdk.wire.profile import NEWEST, ServerProfile

_NODE_SETTINGS: Final = frozenset({"node_name", "kubelet_dir", "host_root", "unhealthy_taint"})
"""The settings for --here."""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("top", help="which claims use which devices, and what is left", description=__doc__)
    parser.add_argument(
        "--driver",
        action="append",
        default=[],
        metavar="NAME",
        help="only devices of this driver, by its name in slices (dra.cpu); may be repeated",
    )
    add_top_flags(parser)
    parser.set_defaults(run=run)


def add_top_flags(parser: Parser) -> None:
    """Add the flags that `top` and `gpu top` have in common."""
    parser.add_files(f"slices and claims; {STDIN} is standard input")
    parser.add_argument(
        "--here",
        action="append",
        default=[],
        metavar="NAME",
        help="the devices of a driver on this node: a name that `dra-sdk drivers` lists, or module:Class; "
        "may be repeated",
    )
    parser.add_argument("--node", metavar="NAME", help="only devices of this node")
    parser.add_argument("--all", action="store_true", help="every partition, also those without claims")
    parser.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help="repeat until interrupted, with this pause"
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="kubeconfig of the running cluster (default: as for kubectl)"
    )
    add_flags(parser.add_argument_group("with --here"), _NODE_SETTINGS)


def run(arguments: argparse.Namespace) -> int:
    """Print once, or repeatedly."""
    names = ", ".join(arguments.driver)
    return show(
        arguments,
        lambda driver: not arguments.driver or driver in arguments.driver,
        f"driver {names}" if names else "any driver",
    )


def show(arguments: argparse.Namespace, selected: Callable[[str], bool], selection: str) -> int:
    """Print the devices of the selected drivers; `selection` names these drivers in messages."""
    _check_source(arguments)
    if not arguments.here:
        require_tools("top")
    try:
        _repeat(arguments, selected, selection)
    except SnapshotReadError as error:
        return print_bad_input(error)
    return 0


def _check_source(arguments: argparse.Namespace) -> None:
    """SettingsError for more than one source, and for flags that do not go with the source."""
    if arguments.interval and STDIN in arguments.files:
        raise SettingsError("standard input can be read only once, so --interval cannot be used with it")
    given = {"--here": arguments.here, "files": arguments.files, "--kubeconfig": arguments.kubeconfig}
    if len(sources := [name for name, value in given.items() if value]) > 1:
        raise SettingsError(f"{' and '.join(sources)} cannot be combined: each is a source of devices")
    names = [name for name in sorted(_NODE_SETTINGS | {"config"}) if getattr(arguments, name) is not None]
    if names and not arguments.here:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise SettingsError(f"--here NAME is needed for {flags}")


def _repeat(arguments: argparse.Namespace, selected: Callable[[str], bool], selection: str) -> None:
    while True:
        objects = _objects(arguments)
        every = device_usage(objects)
        devices = [each for each in every if selected(each.driver)]
        chosen = [each for each in devices if arguments.node in {None, each.place}]
        if arguments.interval and sys.stdout.isatty():
            print(CLEAR, end="")
        if chosen:
            _print(chosen, all_partitions=arguments.all)
            _print_unknown(unknown_devices(objects, {each.driver for each in devices}), devices)
        elif devices:
            _print_none(f"node {arguments.node}", "those of", (each.place for each in devices))
        else:
            _print_none(selection, "devices of", (each.driver for each in every), here=arguments.here)
        if not arguments.interval:
            return
        sys.stdout.flush()
        sleep(arguments.interval)


def _print(devices: list[DeviceUsage], *, all_partitions: bool) -> None:
    headings, rows = usage_table(devices, all_partitions=all_partitions)
    print_table(headings, [[printable(cell) for cell in row] for row in rows], width=terminal_width())
    print(usage_summary(devices), file=sys.stderr)


def _print_unknown(unknown: Sequence[tuple[str, str]], devices: Sequence[DeviceUsage]) -> None:
    """Say that claims hold devices that no slice has, which is so if the two are of different nodes."""
    if unknown:
        (device, claim), pools = unknown[0], ", ".join(sorted({each.pool for each in devices}))
        said = f"{counted(len(unknown), 'device')} of claims in no slice, such as {device} of claim {claim}"
        print(printable(f"note: {said}; the slices have pools {pools}"), file=sys.stderr)


def _print_none(selection: str, what: str, others: Iterable[str], here: Sequence[str] = ()) -> None:
    """Say that there are no selected devices, and which others exist."""
    existing = ", ".join(sorted({printable(each) for each in others}))
    nothing = f"{', '.join(here)} finds nothing on this node" if here else "no slices exist; is a driver running?"
    print(f"no devices of {selection}; {f'there are {what} {existing}' if existing else nothing}", file=sys.stderr)


# -- the sources of slices and claims


def _objects(arguments: argparse.Namespace) -> list[Mapping[str, Any]]:
    if arguments.here:
        settings = read_settings(arguments)
        with opened_host_root(settings.host_root) as root:
            return [
                each for driver in arguments.here for each in _node_objects(driver, replace(settings, host_root=root))
            ]
    if arguments.files:
        return _valid_objects([read_file(name) for name in arguments.files], f"1.{NEWEST}")
    source, version = read_cluster(arguments.kubeconfig)
    return _valid_objects([source], version)


def _valid_objects(sources: Sequence[ObjectSource], version: str) -> list[Mapping[str, Any]]:
    """The slices and claims; SnapshotReadError if an API server would refuse one."""
    snapshot = read_snapshot(sources, ServerProfile.of(version)).snapshot
    return [*snapshot.slices, *snapshot.claims]


def _node_objects(driver: str, settings: Settings) -> Iterator[Mapping[str, Any]]:
    """What a driver finds on this node, with the taints that it remembers, and the claims in its state files."""
    loaded = load_driver(driver, settings.driver)
    name, data = loaded.info.name, settings.plugin_data(loaded.info.name)
    pools = discover(loaded, Node(settings.node_name, settings.host_root))
    if settings.taint_effect is not None:
        pools = with_taints(pools, _unhealthy_devices(data / UNHEALTHY_FILE), TaintPolicy(name, settings.taint_effect))
    yield from resource_slices(pools, driver=name, node_name=settings.node_name)
    for claim in read_checkpoints(data):
        yield _claim(name, claim)


def _unhealthy_devices(path: Path) -> dict[tuple[str, str], Any]:
    return decode_unhealthy(_read_state(path), str(path)) if path.exists() else {}


def _read_state(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise StateError(f"cannot read state file {path}: {error.strerror}") from error


def _claim(driver: str, state: Checkpoint) -> Mapping[str, Any]:
    """The claim as in its state file; only the API server knows its pods."""
    results = [
        {
            "driver": driver,
            "pool": each.pool,
            "device": each.name,
            "adminAccess": each.admin_access,
            "consumedCapacity": {key: str(amount) for key, amount in each.consumed_capacity.items()},
        }
        for each in state.devices
    ]
    metadata = {"namespace": state.namespace, "name": state.name, "uid": state.uid}
    return {"kind": "ResourceClaim", "metadata": metadata, "status": {"allocation": {"devices": {"results": results}}}}
