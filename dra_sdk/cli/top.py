"""`dra-sdk top`: devices, partitions, the claims and pods that have them, and their health.

From files, a running cluster (the default), or with --here from the node itself: what a driver finds on it and what its
state files hold, without any cluster. Health is that of the taints by which the scheduler goes.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable

from dra_sdk.cli.files import STDIN, printable
from dra_sdk.cli.scenario import report
from dra_sdk.cli.table import print_table
from dra_sdk.cli.usage import DeviceUsage, usage
from dra_sdk.cli.usage_sources import JSON, of_cluster, of_files, of_node
from dra_sdk.cli.usage_table import HEADINGS, rows, summary
from dra_sdk.errors import SettingsError
from dra_sdk.runtime.settings import add_flags, read_settings
from dra_sdk.scheduling.cluster import ReadingError

_CLEAR = "\033[H\033[2J"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("top", help="who has which device, and what is left", description=__doc__)
    parser.add_argument("--driver", action="append", default=[], metavar="NAME", help="only devices of this driver")
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
        help="what this installed driver has on this node; repeat",
    )
    parser.add_argument("--node", metavar="NAME", help="only devices of this node")
    parser.add_argument("--all", action="store_true", help="every partition, also those that nobody has")
    parser.add_argument("--interval", type=_interval, metavar="SECONDS", help="again and again, until interrupted")
    add_flags(parser)


def run(arguments: argparse.Namespace) -> int:
    """Print once, or again and again."""
    return show(arguments, lambda driver: not arguments.driver or driver in arguments.driver)


def show(arguments: argparse.Namespace, wanted: Callable[[str], bool]) -> int:
    """Print the devices of the drivers that are `wanted`."""
    if arguments.interval and STDIN in arguments.files:
        raise SettingsError("standard input can be read only once, so --interval does not go with it")
    try:
        return _repeat(arguments, wanted)
    except ReadingError as error:
        return report(error)


def _repeat(arguments: argparse.Namespace, wanted: Callable[[str], bool]) -> int:
    while True:
        devices = [each for each in usage(_objects(arguments)) if wanted(each.driver)]
        chosen = [each for each in devices if arguments.node in {None, each.node or each.pool}]
        if arguments.interval and sys.stdout.isatty():
            print(_CLEAR, end="")
        _print(chosen, everything=arguments.all)
        if not arguments.interval:
            return 0
        sys.stdout.flush()
        time.sleep(arguments.interval)


def _objects(arguments: argparse.Namespace) -> Iterable[JSON]:
    if arguments.here:
        settings = read_settings(arguments)
        return [each for driver in arguments.here for each in of_node(driver, settings)]
    return of_files(arguments.files) if arguments.files else of_cluster(arguments.kubeconfig)


def _print(devices: list[DeviceUsage], *, everything: bool) -> None:
    print_table(HEADINGS, [[printable(cell) for cell in row] for row in rows(devices, everything=everything)])
    print(summary(devices), file=sys.stderr)


def _interval(text: str) -> float:
    value = float(text)
    if not value > 0:
        raise ValueError("must be above 0")
    return value
