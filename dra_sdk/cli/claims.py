"""`dra-sdk claims`: which claims of a cluster have devices of these drivers, with their pods.

Only the driver can give them back, so there must be none before a driver is removed: a pod that uses one would stay in
Terminating. It reads ResourceClaims alone. Exit status: 0 if there are none, 1 if there are some, 2 for bad input.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import closing
from typing import Any

from dra_sdk.cli.arguments import Commands, add_output
from dra_sdk.cli.live_cluster import add_connection_flags
from dra_sdk.cli.output import print_json, print_lines
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.texts import counted


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser(
        "claims", help="which claims of a cluster have devices of these drivers", description=__doc__
    )
    parser.add_argument(
        "drivers",
        nargs="*",
        metavar="DRIVER",
        help="the name of a driver in slices, such as dra.cpu; several may be given (default: every driver)",
    )
    add_output(parser, ("text", "json"), "how the claims are shown (default text)")
    add_connection_flags(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the claims; status 1 if there are any."""
    client = KubeClient.connect(arguments.kubeconfig, context=arguments.context, agent="dra-sdk-claims")
    with closing(client):
        claims = client.list(paths.resource_claims())["items"]
    held = list(held_claims(claims, arguments.drivers))
    if arguments.output == "json":
        print_json(held)
    else:
        print_lines(map(_line, held))
        print_lines([_summary(held, arguments.drivers, claims)], sys.stderr)
    return 1 if held else 0


def held_claims(claims: Iterable[Mapping[str, Any]], drivers: Collection[str]) -> Iterator[dict[str, Any]]:
    """Yield each claim with devices of these drivers, or of any if none is named: its name, devices and users."""
    for claim in claims:
        devices = [
            f"{result['driver']}/{result['pool']}/{result['device']}"
            for result in _results(claim)
            if not drivers or result["driver"] in drivers
        ]
        if devices:
            users = [user["name"] for user in claim["status"].get("reservedFor") or ()]
            name = f"{claim['metadata']['namespace']}/{claim['metadata']['name']}"
            yield {"claim": name, "devices": devices, "users": users}


def _results(claim: Mapping[str, Any]) -> list[dict[str, str]]:
    allocation = claim.get("status", {}).get("allocation") or {}
    return allocation.get("devices", {}).get("results") or []


def _line(held: Mapping[str, Any]) -> str:
    users = f"for {', '.join(held['users'])}" if held["users"] else "for no pod"
    return f"{held['claim']} {users}: {', '.join(held['devices'])}"


def _summary(held: Collection[Mapping[str, Any]], drivers: Collection[str], claims: Iterable[Mapping[str, Any]]) -> str:
    """Return the last line; if there are none, with the drivers that do have claims, as a name may be misspelt."""
    chosen = ", ".join(drivers) or "any driver"
    if held:
        have = "has" if len(held) == 1 else "have"
        return f"{counted(len(held), 'claim')} {have} devices of {chosen}: end their pods before a driver is removed"
    others = sorted({result["driver"] for claim in claims for result in _results(claim)})
    return f"no claim has devices of {chosen}" + (f"; there are claims of {', '.join(others)}" if others else "")
