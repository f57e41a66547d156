"""`dra-sdk discover NAME`: what a driver finds on this machine, as a table or as the exact ResourceSlices.

The slices are those that `dra-sdk run` publishes with the same settings, including the overlay of --overlay-file. Exit
status: 0 if an API server would accept them, 1 if not or if the driver fails, 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from dra_sdk.cli.arguments import Commands, add_driver, add_output, opened_host_root
from dra_sdk.cli.hook_calls import discover, load_driver
from dra_sdk.cli.output import (
    print_error,
    print_lines,
    print_notes,
    print_objects,
    print_table,
    terminal_width,
    wrapped,
)
from dra_sdk.errors import DraError
from dra_sdk.loader import Driver
from dra_sdk.model.device import Capacity, ResourcePool
from dra_sdk.model.driver import Node
from dra_sdk.node.runtime.settings import Settings, add_flags, read_settings
from dra_sdk.node.slices.plan import resource_slices

if TYPE_CHECKING:
    from dra_sdk.node.overlay import Overlay

MAX_WIDTH: Final = 120
"""Columns of the table: longer lines are hard to read on a wide terminal, and wrapped by a viewer of logs."""
_NARROWEST: Final = 20
_HEADINGS: Final = ("POOL", "DEVICE", "ATTRIBUTES", "CAPACITY")
_OUTPUT: Final = (
    "table: a row for each device (default); yaml, json: the ResourceSlices, for `dra-sdk validate` or a file"
)
SETTINGS: Final = frozenset({"node_name", "kubelet_dir", "host_root", "overlay_file"})
"""The settings that change what is found."""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "discover", help="show what a driver finds on this machine", description=__doc__, add_help=False
    )
    add_driver(parser)
    add_output(parser, ("table", "yaml", "json"), _OUTPUT)
    add_flags(parser, SETTINGS)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Discover once and print; status 1 if the driver fails or a pool breaks a limit."""
    settings = read_settings(arguments)
    with opened_host_root(settings.host_root) as root:
        driver, overlay = load_driver(arguments.driver, settings.driver, settings.kubelet_dir), _overlay(settings)
        try:
            pools, slices = _pools_and_slices(driver, Node(settings.node_name, root), overlay)
        except DraError as error:  # every error here is the driver's
            print_error(error)
            return 1
    if arguments.output == "table":
        print_table(_HEADINGS, list(_table(pools)))
    else:
        print_objects(slices, arguments.output)
    if not any(pool.devices for pool in pools):
        print_lines([f"driver {driver.info.name} finds no device under {settings.host_root}"], sys.stderr)
    return 0


def _overlay(settings: Settings) -> Overlay | None:
    if settings.overlay_file is None:
        return None
    from dra_sdk.node.overlay import load  # noqa: PLC0415 (imports CEL)

    return load(settings.overlay_file)


def _pools_and_slices(
    driver: Driver, node: Node, overlay: Overlay | None
) -> tuple[Sequence[ResourcePool], list[dict[str, Any]]]:
    """Return the pools and their slices. The driver's pools are validated before the overlay changes them."""
    name = driver.info.name
    pools: Sequence[ResourcePool] = discover(driver, node)
    slices = list(resource_slices(pools, driver=name, node_name=node.name))
    if overlay is not None:
        result = overlay.apply(pools, driver=name, node=node.name)
        print_notes(map(str, result.problems))
        pools, slices = result.pools, list(resource_slices(result.pools, driver=name, node_name=node.name))
    return pools, slices


def _table(pools: Sequence[ResourcePool]) -> Iterator[list[str]]:
    """Yield the rows of the table, with attributes and capacity in as many lines as the width needs."""
    width = min(terminal_width() or MAX_WIDTH, MAX_WIDTH)
    names = [(pool.name, device.name) for pool in pools for device in pool.devices]
    fixed = [max(map(len, (_HEADINGS[column], *(row[column] for row in names)))) for column in range(2)]
    left = max(width - sum(fixed) - 6, 2 * _NARROWEST)  # three gaps of two spaces
    for pool in pools:
        for device in pool.devices:
            attributes = [f"{key}={_attribute(value)}" for key, value in device.attributes.items()]
            capacity = [f"{key}={_amount(value)}" for key, value in device.capacity.items()]
            widths = [*fixed, left - left // 3, left // 3]
            yield from wrapped((pool.name, device.name, attributes, capacity), widths)


def _attribute(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return ",".join(str(_attribute(element)) for element in value)
    return str(value).lower() if isinstance(value, bool) else value


def _amount(value: object) -> object:
    return value.value if isinstance(value, Capacity) else value
