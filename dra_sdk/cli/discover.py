"""`dra-sdk discover NAME`: what a driver finds on this machine, as a table or as the exact ResourceSlices."""

from __future__ import annotations

import argparse
import json

import yaml

from dra_sdk.cli.table import print_table
from dra_sdk.loader import load_driver
from dra_sdk.model.device import Capacity
from dra_sdk.model.node import Node
from dra_sdk.model.pool import ResourcePool
from dra_sdk.runtime.discovery import discover
from dra_sdk.runtime.settings import add_flags, read_settings
from dra_sdk.slices.objects import resource_slices


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("discover", help="show what a driver finds on this machine", description=__doc__)
    parser.add_argument("driver", help="a name that `dra-sdk drivers` lists, or module:Class")
    parser.add_argument("-o", "--output", choices=("table", "yaml", "json"), default="table")
    add_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Discover once and print; status 1 if a pool breaks a limit."""
    settings = read_settings(arguments)
    driver = load_driver(arguments.driver)
    pools = discover(driver, Node(settings.node_name, settings.host_root))
    slices = list(resource_slices(pools, driver=driver.info.name, node_name=settings.node_name))
    if arguments.output == "table":
        print_table(("POOL", "DEVICE", "ATTRIBUTES", "CAPACITY"), [row for pool in pools for row in _rows(pool)])
    elif arguments.output == "json":
        print(json.dumps({"apiVersion": "v1", "kind": "List", "items": slices}, indent=2))
    else:
        print(yaml.safe_dump_all(slices, sort_keys=False), end="")
    return 0


def _rows(pool: ResourcePool) -> list[tuple[str, str, str, str]]:
    return [
        (
            pool.name,
            device.name,
            " ".join(f"{key}={_attribute(value)}" for key, value in device.attributes.items()) or "-",
            " ".join(f"{key}={_amount(value)}" for key, value in device.capacity.items()) or "-",
        )
        for device in pool.devices
    ]


def _attribute(value: object) -> object:
    if isinstance(value, (list, tuple)):
        return ",".join(str(_attribute(each)) for each in value)
    return str(value).lower() if isinstance(value, bool) else value


def _amount(value: object) -> object:
    return value.value if isinstance(value, Capacity) else value
