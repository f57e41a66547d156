"""`dra-sdk gpu top`: the GPUs of a cluster or of this node, from every vendor.

It is `dra-sdk top` for drivers whose name starts with `gpu.`, as those of NVIDIA, AMD and Intel do. It knows nothing
about a particular driver.
"""

from __future__ import annotations

import argparse
from typing import Final

from dra_sdk.cli import top
from dra_sdk.cli.arguments import Commands

PREFIX: Final = "gpu."


def add_parser(commands: Commands) -> None:
    """Add the subcommand and its own."""
    parser = commands.add_parser("gpu", help="the GPUs of all drivers: `gpu top`", description=__doc__)
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    top_parser = inner.add_parser("top", help="GPUs, partitions, claims, health", description=__doc__)
    top.add_top_flags(top_parser)
    top_parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the GPUs."""
    return top.show(arguments, lambda driver: driver.startswith(PREFIX), f"drivers named {PREFIX}…")
