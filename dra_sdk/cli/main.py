"""Entry point of the `dra-sdk` command."""

from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module
from importlib.metadata import version

from dra_sdk.errors import DraError

COMMANDS = ("run", "drivers", "discover", "validate", "simulate", "explain", "top", "gpu", "demo", "conformance")


def main(arguments: list[str] | None = None) -> int:
    """Run one command; exit status 0, 1 for an error that was explained, 2 for wrong usage."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # else every connection that a peer closes is a line on stderr
    parser = argparse.ArgumentParser("dra-sdk", description="Kubernetes DRA drivers in Python")
    parser.add_argument("--version", action="version", version=f"dra-sdk {version('dra-sdk')}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    given = sys.argv[1:] if arguments is None else arguments
    for name in given[:1] if given and given[0] in COMMANDS else COMMANDS:  # `run` starts without the others' imports
        import_module(f"dra_sdk.cli.{name}").add_parser(commands)
    parsed = parser.parse_args(arguments)
    try:
        return int(parsed.run(parsed))
    except DraError as error:
        print(f"dra-sdk: {error}", file=sys.stderr)
        return 1
    except (KeyboardInterrupt, BrokenPipeError):
        return 1


if __name__ == "__main__":
    sys.exit(main())
