"""`dra-sdk drivers`: the installed drivers, and whether each one loads; what a driver's configuration may be.

Exit status: 0 if every driver loads, 1 if one does not, 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from importlib.metadata import EntryPoint
from typing import Final

from dra_sdk.cli.arguments import Commands, add_output
from dra_sdk.cli.hook_calls import load_driver
from dra_sdk.cli.output import print_json, print_lines, print_objects, print_table
from dra_sdk.errors import DraError, DriverLoadError, SettingsError
from dra_sdk.loader import iter_drivers, origin
from dra_sdk.loader.contract import HOOKS, PREFIX
from dra_sdk.model.config import json_schema
from dra_sdk.tools.configuration.policy import config_policy

_POLICY: Final = "print an admission policy that refuses claims with wrong opaque configuration of this driver"
_SCHEMA: Final = "print the JSON Schema of a driver's opaque configuration; NAME is in the list, or module:Class"


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("drivers", help="list the installed drivers", description=__doc__)
    shown = parser.add_mutually_exclusive_group()
    shown.add_argument("--schema", metavar="NAME", help=_SCHEMA)
    shown.add_argument("--policy", metavar="NAME", help=_POLICY)
    add_output(shown, ("table", "json"), "how the list is shown (default table)")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print a row for each driver, or a schema or policy; status 1 if a driver does not load."""
    if arguments.policy is not None:
        print_objects(config_policy(load_driver(arguments.policy).info), "yaml")
        return 0
    if arguments.schema is not None:
        info = load_driver(arguments.schema).info
        if not info.configs:
            raise DraError(f"driver {info.name} takes no configuration, so it has no schema")
        print_json(json_schema(info.configs, f"Opaque configuration of {info.name}"))
        return 0
    rows = [_row(driver) for driver in iter_drivers()]
    if arguments.output == "json":
        print_json([_as_json(row) for row in rows])
    else:
        print_table(("NAME", "DRIVER", "FROM", "HOOKS"), [row[1:] for row in rows])
    for driver, number in Counter(row[2] for row in rows if row[0]).items():
        if number > 1:
            names = " and ".join(row[1] for row in rows if row[2] == driver)
            print_lines([f"warning: {names} are both driver {driver}: only one of them can run on a node"], sys.stderr)
    return 0 if all(row[0] for row in rows) else 1


def _as_json(row: tuple[bool, str, str, str, str]) -> dict[str, object]:
    loads, name, driver, source, hooks = row
    about: dict[str, object] = {"hooks": hooks.split()} if loads else {"error": hooks}
    return {"name": name, "driver": driver if loads else None, "from": source, **about}


def _row(entry_point: EntryPoint) -> tuple[bool, str, str, str, str]:
    """Return whether a driver loads, and its cells of the table."""
    try:
        driver = load_driver(entry_point.name)
    except (DriverLoadError, SettingsError) as error:
        return False, entry_point.name, "-", origin(entry_point), f"does not load: {error}"
    hooks = [hook.removeprefix(PREFIX) for hook in HOOKS if driver.implements(hook)]
    return True, entry_point.name, driver.info.name, origin(entry_point), " ".join(hooks)
