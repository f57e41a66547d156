"""`dra-sdk drivers`: what is installed, and whether it loads; what a driver's configuration may say.

Exit status: 0 if every driver loads, 1 if one does not, 2 for bad input.
"""

from __future__ import annotations

import argparse
import json
from importlib.metadata import EntryPoint

from dra_sdk.cli.table import print_table
from dra_sdk.errors import DraError, DriverLoadError
from dra_sdk.hookspecs import DriverHooks
from dra_sdk.loader import iter_drivers, load_driver, origin
from dra_sdk.model.config import json_schema

_SCHEMA = "print the JSON Schema of a driver's opaque configuration; NAME is one of the list, or module:Class"


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("drivers", help="list the installed drivers", description=__doc__)
    parser.add_argument("--schema", metavar="NAME", help=_SCHEMA)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print one row per driver, or a schema; status 1 if a driver does not load."""
    if arguments.schema is not None:
        info = load_driver(arguments.schema).info
        if not info.configs:
            raise DraError(f"driver {info.name} takes no configuration, so there is no schema of it")
        print(json.dumps(json_schema(info.configs, f"Opaque configuration of {info.name}"), indent=2))
        return 0
    rows = [_row(found) for found in iter_drivers()]
    print_table(("NAME", "DRIVER", "FROM", "HOOKS"), [row[1:] for row in rows])
    return 0 if all(row[0] for row in rows) else 1


def _row(found: EntryPoint) -> tuple[bool, str, str, str, str]:
    try:
        driver = load_driver(found.name)
    except DriverLoadError as error:
        return False, found.name, "-", origin(found), f"does not load: {error}"
    hooks = [name for name in vars(DriverHooks) if name.startswith("dra_") and driver.implements(name)]
    return True, found.name, driver.info.name, origin(found), " ".join(hook.removeprefix("dra_") for hook in hooks)
