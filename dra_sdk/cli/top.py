"""`dra-sdk top`: devices, partitions, the claims and pods that have them, and their health.

From files, a running cluster (the default), or with --here from the node itself: what a driver finds on it and what its
state files hold, without any cluster. Health is that of the taints by which the scheduler goes. Exit status: 0 if it
could be shown, 2 if not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dra_sdk.cli.files import STDIN, check_host_root, printable
from dra_sdk.cli.parser import positive_seconds
from dra_sdk.cli.scenario import report
from dra_sdk.cli.table import print_table, terminal_width
from dra_sdk.cli.usage import DeviceUsage, usage
from dra_sdk.cli.usage_sources import of_cluster, of_files, of_node
from dra_sdk.cli.usage_table import HEADINGS, rows, summary
from dra_sdk.errors import SettingsError
from dra_sdk.node.runtime.settings import add_flags, read_settings
from dra_sdk.tools.scheduling.cluster import SnapshotReadError

_CLEAR = "\033[H\033[2J"
_OF_NODE = frozenset({"node_name", "kubelet_dir", "host_root", "unhealthy_taint"})


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("top", help="who has which device, and what is left", description=__doc__)
    parser.add_argument(
        "--driver",
        action="append",
        default=[],
        metavar="NAME",
        help="only devices of this driver, by its name in slices (dra.cpu); may be repeated",
    )
    add_top_flags(parser)
    parser.set_defaults(run=run)


def add_top_flags(parser: argparse.ArgumentParser) -> None:
    """Add the flags that `gpu top` has in common with it."""
    parser.add_argument("files", nargs="*", metavar="FILE", help=f"slices and claims; {STDIN} is standard input")
    parser.add_argument(
        "--here",
        action="append",
        default=[],
        metavar="NAME",
        help="what a driver has on this node: a name that `dra-sdk drivers` lists, or module:Class; may be repeated",
    )
    parser.add_argument("--node", metavar="NAME", help="only devices of this node")
    parser.add_argument("--all", action="store_true", help="every partition, also those that nobody has")
    parser.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help="again and again, until interrupted"
    )
    parser.add_argument(
        "--kubeconfig", type=Path, metavar="FILE", help="of the running cluster; by default as kubectl finds it"
    )
    add_flags(parser.add_argument_group("with --here"), _OF_NODE)


def run(arguments: argparse.Namespace) -> int:
    """Print once, or again and again."""
    chosen = ", ".join(arguments.driver)
    return show(
        arguments,
        lambda driver: not arguments.driver or driver in arguments.driver,
        f"driver {chosen}" if chosen else "any driver",
    )


def show(arguments: argparse.Namespace, wanted: Callable[[str], bool], whose: str) -> int:
    """Print the devices of the drivers that are `wanted`; `whose` says in words which these are."""
    if arguments.interval and STDIN in arguments.files:
        raise SettingsError("standard input can be read only once, so --interval does not go with it")
    _check_source(arguments)
    try:
        return _repeat(arguments, wanted, whose)
    except SnapshotReadError as error:
        return report(error)


def _check_source(arguments: argparse.Namespace) -> None:
    """There is one source: SettingsError for two, and for a flag that the one there is does not know."""
    given = {"--here": arguments.here, "files": arguments.files, "--kubeconfig": arguments.kubeconfig}
    if len(two := [name for name, value in given.items() if value]) > 1:
        raise SettingsError(f"{' and '.join(two)} do not go together: each says where the devices are read from")
    node_flags = [name for name in sorted(_OF_NODE | {"config"}) if getattr(arguments, name) is not None]
    if node_flags and not arguments.here:
        listed = ", ".join(f"--{name.replace('_', '-')}" for name in node_flags)
        raise SettingsError(f"{listed} says where a driver looks: give --here NAME too")


def _repeat(arguments: argparse.Namespace, wanted: Callable[[str], bool], whose: str) -> int:
    while True:
        everybodys = usage(_objects(arguments))
        devices = [each for each in everybodys if wanted(each.driver)]
        chosen = [each for each in devices if arguments.node in {None, each.node or each.pool}]
        if arguments.interval and sys.stdout.isatty():
            print(_CLEAR, end="")
        if chosen:
            _print(chosen, everything=arguments.all)
        elif devices:
            _nothing(f"node {arguments.node}", "those of", (each.node or each.pool for each in devices))
        else:
            _nothing(whose, "devices of", (each.driver for each in everybodys), here=arguments.here)
        if not arguments.interval:
            return 0
        sys.stdout.flush()
        time.sleep(arguments.interval)


def _objects(arguments: argparse.Namespace) -> Iterable[Mapping[str, Any]]:
    if arguments.here:
        settings = read_settings(arguments)
        check_host_root(settings.host_root)
        return [each for driver in arguments.here for each in of_node(driver, settings)]
    return of_files(arguments.files) if arguments.files else of_cluster(arguments.kubeconfig)


def _print(devices: list[DeviceUsage], *, everything: bool) -> None:
    cells = [[printable(cell) for cell in row] for row in rows(devices, everything=everything)]
    print_table(HEADINGS, cells, width=terminal_width())
    print(summary(devices), file=sys.stderr)


def _nothing(whose: str, what: str, others: Iterable[str], here: Sequence[str] = ()) -> None:
    there = ", ".join(sorted({printable(each) for each in others}))
    nothing = (
        f"{', '.join(here)} finds nothing on this node" if here else "nothing is published at all; does a driver run?"
    )
    told = f"there are {what} {there}" if there else nothing
    print(f"no devices of {whose}; {told}", file=sys.stderr)
