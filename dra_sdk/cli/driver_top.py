"""`dra-sdk DRIVER top`: what claims use of the hardware of this node, in the words and pictures of the driver.

For installed drivers with the hook `dra_top`, such as `dra-sdk cpu top`. It needs no cluster: the driver reads the
hardware, and the claims are those of its state files. Exit status: 0 if it could be shown, 2 if not.
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from functools import partial
from time import sleep
from typing import Final

from dra_sdk.cli.arguments import Commands, add_output, driver_data, opened_host_root, positive_seconds
from dra_sdk.cli.hook_calls import load_driver, top
from dra_sdk.cli.output import CLEAR, print_json, print_lines
from dra_sdk.errors import SettingsError
from dra_sdk.model.claim import HeldClaim
from dra_sdk.model.driver import Node
from dra_sdk.node.prepare.state_files import read_checkpoints
from dra_sdk.node.runtime.instance import read_boot_id
from dra_sdk.node.runtime.settings import add_flags, read_settings

_SETTINGS: Final = frozenset({"node_name", "kubelet_dir", "host_root"})


def add_parser(commands: Commands, name: str) -> None:
    """Add the subcommand of an installed driver and its own."""
    parser = commands.add_parser(name, help=f"driver {name}: `{name} top`", description=__doc__)
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    top_parser = inner.add_parser("top", help="what claims use of this node's hardware", description=__doc__)
    top_parser.add_argument(
        "--interval", type=positive_seconds, metavar="SECONDS", help="repeat until interrupted, with this pause"
    )
    add_output(top_parser, ("text", "json"), "how the picture is shown (default text)")
    add_flags(top_parser.add_argument_group("settings"), _SETTINGS)
    top_parser.set_defaults(run=partial(run, name))


def run(name: str, arguments: argparse.Namespace) -> int:
    """Print once, or repeatedly."""
    settings = read_settings(arguments)
    with opened_host_root(settings.host_root) as root:
        settings = replace(settings, host_root=root)
        driver = load_driver(name, settings.driver, settings.kubelet_dir)
        if not driver.implements("dra_top"):
            raise SettingsError(f"driver {name} has no picture of its own; `dra-sdk top --here {name}` has its devices")
        boot_id = read_boot_id(root)
        data = driver_data(settings.plugin_data(driver.info.name), driver.info.name)
        while True:
            states = read_checkpoints(data)
            held = [state.held(boot_id) for state in states]
            lines = top(driver, Node(settings.node_name, root), held)
            if arguments.output == "json":
                devices = [{"claim": f"{claim.namespace}/{claim.name}", "devices": _devices(claim)} for claim in held]
                print_json({"driver": driver.info.name, "lines": lines, "claims": devices})
                lines = []
            elif arguments.interval and sys.stdout.isatty():
                print(CLEAR, end="")
            print_lines(lines)
            if not arguments.interval:
                return 0
            sys.stdout.flush()
            sleep(arguments.interval)


def _devices(claim: HeldClaim) -> list[dict[str, str]]:
    return [{"request": device.request, "pool": device.pool, "device": device.name} for device in claim.devices]
