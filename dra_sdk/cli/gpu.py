"""`dra-sdk gpu top`: the GPUs of a cluster or of this node, whoever made them.

It is `dra-sdk top` for drivers whose name begins with `gpu.`, which is what NVIDIA's, AMD's and Intel's are called;
nothing in it knows a particular driver.
"""

from __future__ import annotations

import argparse

from dra_sdk.cli import top

PREFIX = "gpu."


def add_parser(commands: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add the subcommand and its own."""
    parser = commands.add_parser("gpu", help="the GPUs of all drivers: `gpu top`", description=__doc__)
    inner = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    shown = inner.add_parser("top", help="GPUs, partitions, claims, health", description=__doc__)
    top.add_top_flags(shown)
    shown.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the GPUs."""
    return top.show(arguments, lambda driver: driver.startswith(PREFIX), f"drivers named {PREFIX}…")
