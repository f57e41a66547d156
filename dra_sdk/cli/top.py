"""`dra-sdk top`: devices and partitions, the claims and pods that use them, and their health.

It reads files, a running cluster (the default) or, with --here, this node: what a driver finds on it and what its state
files contain, without a cluster. Health is read from the taints, as by the scheduler. With --watch it shows the devices
again when something changes. Exit status: 0 if the devices could be shown, 2 if not.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from time import sleep
from typing import Any, Final

from dra_sdk.cli.arguments import REPEATED, Commands, add_output, is_directory, opened_host_root, positive_seconds
from dra_sdk.cli.hook_calls import discover, load_driver
from dra_sdk.cli.input import STDIN, file_names, read_file
from dra_sdk.cli.live_cluster import add_connection_flags, add_selection_flags, opened_cluster
from dra_sdk.cli.output import (
    CLEAR,
    Color,
    has_colors,
    print_json,
    print_lines,
    print_notes,
    print_table,
    terminal_width,
)
from dra_sdk.errors import SettingsError
from dra_sdk.model.claim import HeldClaim
from dra_sdk.model.driver import Node
from dra_sdk.node.health.tainting import TaintPolicy, with_taints
from dra_sdk.node.health.unhealthy_store import UNHEALTHY_FILE
from dra_sdk.node.health.unhealthy_store import decode as decode_unhealthy
from dra_sdk.node.prepare.state_files import read_checkpoints
from dra_sdk.node.runtime.settings import Settings, add_flags, read_settings
from dra_sdk.node.slices.plan import resource_slices
from dra_sdk.texts import counted
from dra_sdk.tools.scheduling.cluster import ObjectSource, read_snapshot
from dra_sdk.tools.usage.device_usage import DeviceUsage, device_usage, unknown_devices, usage_summary
from dra_sdk.tools.usage.table import NONE, usage_json, usage_table
from dra_sdk.wire.profile import NEWEST, ServerProfile
from dra_sdk.wire.selectors import labels_match

_NODE_SETTINGS: Final = frozenset({"node_name", "kubelet_dir", "host_root", "unhealthy_taint"})
"""The settings for --here."""
WATCH_SECONDS: Final = 2.0
"""The pause of --watch for a source that does not report its changes."""
_REPEATED: Final = ("interval", "watch")
_COLORS: Final = {"in use": Color.BLUE, "shared": Color.BLUE, "free": Color.GREEN, "tainted": Color.RED}


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("top", help="which claims use which devices, and what is left", description=__doc__)
    parser.add_argument(
        "--driver",
        **REPEATED,
        metavar="NAME",
        help="only devices of this driver, by its name in slices (dra.cpu); may be repeated",
    )
    parser.add_files(f"slices and claims; {STDIN} is standard input")
    parser.add_argument(
        "--here",
        **REPEATED,
        metavar="NAME",
        help="the devices of a driver on this node: a name that `dra-sdk drivers` lists, or module:Class; "
        "may be repeated",
    )
    parser.add_argument("--node", metavar="NAME", help="only devices of this node")
    parser.add_argument("--all", action="store_true", help="every partition, also those without claims")
    repeated = parser.add_mutually_exclusive_group()
    repeated.add_argument(
        "-w",
        "--watch",
        action="store_true",
        help=f"show a running cluster again when it changes, other sources every {WATCH_SECONDS:g} seconds",
    )
    repeated.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help="repeat until interrupted, with this pause"
    )
    add_output(parser, ("table", "json"), "how the devices are shown (default table)")
    add_connection_flags(parser)
    add_selection_flags(parser, "devices that claims use", "devices of nodes")
    add_flags(parser.add_argument_group("with --here"), _NODE_SETTINGS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the devices of the drivers of --driver, once or repeatedly."""
    _check_source(arguments)
    with closing(_readings(arguments)) as readings:
        for objects in readings:
            _show(objects, arguments)
    return 0


def _check_source(arguments: argparse.Namespace) -> None:
    """Raise SettingsError for more than one source, and for flags that do not go with the source."""
    if STDIN in arguments.files and (repeated := [f"--{flag}" for flag in _REPEATED if getattr(arguments, flag)]):
        raise SettingsError(f"standard input can be read only once, so {repeated[0]} cannot be used with it")
    given = {
        "--here": arguments.here,
        "files": arguments.files,
        "--kubeconfig": arguments.kubeconfig,
        "--context": arguments.context,
    }
    if arguments.kubeconfig:
        del given["--context"]
    if len(sources := [name for name, value in given.items() if value]) > 1:
        raise SettingsError(f"{' and '.join(sources)} cannot be combined: each is a source of devices")
    names = [name for name in sorted(_NODE_SETTINGS | {"config"}) if getattr(arguments, name) is not None]
    if names and not arguments.here:
        flags = ", ".join(f"--{name.replace('_', '-')}" for name in names)
        raise SettingsError(f"--here NAME is needed for {flags}")


def _show(objects: list[Mapping[str, Any]], arguments: argparse.Namespace) -> None:
    """Print the selected devices once."""
    every = device_usage(objects)
    devices = [device for device in every if not arguments.driver or device.driver in arguments.driver]
    chosen = [device for device in devices if _is_chosen(device, arguments, objects)]
    if arguments.output == "json":
        print_json(usage_json(chosen))
        return
    if (arguments.interval or arguments.watch) and sys.stdout.isatty():
        print(CLEAR, end="")
    if chosen:
        _print(chosen, all_partitions=arguments.all)
        _print_unknown(unknown_devices(objects, {device.driver for device in devices}), devices)
    elif devices:
        _print_none(_selection(arguments), "those of", (device.place for device in devices))
    else:
        drivers = f"driver {', '.join(arguments.driver)}" if arguments.driver else "any driver"
        _print_none(drivers, "devices of", (device.driver for device in every), here=arguments.here)
    sys.stdout.flush()


def _is_chosen(device: DeviceUsage, arguments: argparse.Namespace, objects: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a device is one of --node, --namespace and --selector."""
    if arguments.node not in {None, device.place}:
        return False
    if arguments.namespace and not any(use.claim.startswith(f"{arguments.namespace}/") for use in device.uses):
        return False
    if not arguments.selector:
        return True
    nodes = (obj["metadata"] for obj in objects if obj.get("kind") == "Node")
    labels = next((metadata.get("labels") for metadata in nodes if metadata["name"] == device.node), None)
    return labels_match(arguments.selector, labels)


def _selection(arguments: argparse.Namespace) -> str:
    parts = [f"node {arguments.node}"] if arguments.node else []
    parts += [f"claims of namespace {arguments.namespace}"] if arguments.namespace else []
    parts += ["nodes with the labels of --selector"] if arguments.selector else []
    return " and ".join(parts)


def _print(devices: list[DeviceUsage], *, all_partitions: bool) -> None:
    """Print a table for each driver, with the columns that fit it."""
    by_driver: dict[str, list[DeviceUsage]] = {}
    for device in devices:
        by_driver.setdefault(device.driver, []).append(device)
    tables: dict[tuple[str, ...], list[list[str]]] = {}
    for some in by_driver.values():
        headings, rows = usage_table(some, all_partitions=all_partitions)
        tables.setdefault(tuple(headings), []).extend(rows)
    for number, (columns, rows) in enumerate(tables.items()):
        if number:
            print()
        print_table(columns, rows, width=terminal_width(), color=_cell_color if has_colors() else None)
    print_lines([usage_summary(devices)], sys.stderr)


def _cell_color(heading: str, cell: str) -> Color | None:
    """Return the colour of a cell on a terminal: states, and health other than `ok`."""
    if heading == "HEALTH" and cell not in {"ok", NONE, ""}:
        return Color.RED if cell.startswith("unhealthy") else Color.YELLOW
    if heading != "STATE":
        return None
    return next((color for word, color in _COLORS.items() if cell.startswith(word)), None)


def _print_unknown(unknown: Sequence[tuple[str, str]], devices: Sequence[DeviceUsage]) -> None:
    """Say that claims hold devices that no slice has, which is so if the two are of different nodes."""
    if unknown:
        (device, claim), pools = unknown[0], ", ".join(sorted({usage.pool for usage in devices}))
        said = f"{counted(len(unknown), 'device')} of claims in no slice, such as {device} of claim {claim}"
        print_notes([f"{said}; the slices have pools {pools}"])


def _print_none(selection: str, what: str, others: Iterable[str], here: Sequence[str] = ()) -> None:
    """Say that there are no selected devices, and which others exist."""
    existing = ", ".join(sorted(set(others)))
    nothing = f"{', '.join(here)} finds nothing on this node" if here else "no slices exist; is a driver running?"
    print_lines([f"no devices of {selection}; {f'there are {what} {existing}' if existing else nothing}"], sys.stderr)


# -- the sources of slices and claims


def _readings(arguments: argparse.Namespace) -> Generator[list[Mapping[str, Any]], None, None]:
    """Yield the slices, claims and nodes: once, after each change, or again and again. To be closed."""
    if not (arguments.here or arguments.files) and not arguments.interval:
        with opened_cluster(arguments, follow=arguments.watch) as cluster:
            for _ in cluster.moments():
                yield _valid_objects([cluster.source()], cluster.version)
        return
    pause = arguments.interval or (WATCH_SECONDS if arguments.watch else 0)
    yield _objects(arguments)
    while pause:
        sleep(pause)
        yield _objects(arguments)


def _objects(arguments: argparse.Namespace) -> list[Mapping[str, Any]]:
    if arguments.here:
        settings = read_settings(arguments)
        with opened_host_root(settings.host_root) as root:
            return [
                obj for driver in arguments.here for obj in _node_objects(driver, replace(settings, host_root=root))
            ]
    if arguments.files:
        return _valid_objects([read_file(name) for name in file_names(arguments.files)], f"1.{NEWEST}")
    with opened_cluster(arguments) as cluster:
        return _valid_objects([cluster.source()], cluster.version)


def _valid_objects(sources: Sequence[ObjectSource], version: str) -> list[Mapping[str, Any]]:
    """Return the slices, claims and nodes; SnapshotReadError if an API server would refuse one."""
    snapshot = read_snapshot(sources, ServerProfile.of(version)).snapshot
    return [*snapshot.slices, *snapshot.claims, *snapshot.nodes]


def _node_objects(driver: str, settings: Settings) -> Iterator[Mapping[str, Any]]:
    """Yield what a driver discovers here, with the taints that it remembers, and the claims in its state files."""
    loaded = load_driver(driver, settings.driver, settings.kubelet_dir)
    name, data = loaded.info.name, settings.plugin_data(loaded.info.name)
    pools = discover(loaded, Node(settings.node_name, settings.host_root))
    if settings.taint_effect is not None:
        pools = with_taints(pools, _unhealthy_devices(data / UNHEALTHY_FILE), TaintPolicy(name, settings.taint_effect))
    yield from resource_slices(pools, driver=name, node_name=settings.node_name)
    if any(pool.devices for pool in pools) and not is_directory(data):
        print_notes([f"there is no directory {data}: which claims have devices of {name} is not known (--kubelet-dir)"])
    for state in read_checkpoints(data):
        yield _claim(name, state.claim)


def _unhealthy_devices(path: Path) -> dict[tuple[str, str], Any]:
    try:
        return decode_unhealthy(path.read_bytes(), str(path))
    except FileNotFoundError:
        return {}


def _claim(driver: str, claim: HeldClaim) -> Mapping[str, Any]:
    """Return the claim as in its state file; only the API server knows its pods."""
    results = [
        {
            "driver": driver,
            "pool": device.pool,
            "device": device.name,
            "adminAccess": device.admin_access,
            "consumedCapacity": {key: str(amount) for key, amount in device.consumed_capacity.items()},
        }
        for device in claim.devices
    ]
    metadata = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
    return {"kind": "ResourceClaim", "metadata": metadata, "status": {"allocation": {"devices": {"results": results}}}}
