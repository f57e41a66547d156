"""Entry point of the `dra-sdk` command."""

from __future__ import annotations

import os
import sys
from importlib import import_module
from importlib.metadata import version
from typing import Final

from dra_sdk.cli.arguments import UNDER_KUBECTL, Parser
from dra_sdk.cli.output import print_error, print_lines
from dra_sdk.cli.streams import OutputError, give_up, guard
from dra_sdk.errors import DraError
from dra_sdk.loader.finding import iter_drivers

NAME: Final = "dra-sdk"
COMMANDS: Final = (
    "new",
    "run",
    "drivers",
    "discover",
    "validate",
    "convert",
    "simulate",
    "explain",
    "top",
    "claims",
    "state",
    "demo",
    "capture",
    "conformance",
    "manifests",
    "doctor",
    "completion",
)
FAILED: Final = 2
INTERRUPTED: Final = 130
"""As in a shell: 128 and the number of SIGINT."""
_EXIT_STATUS: Final = (
    "Exit status of every command: 0 it is done, and the answer is yes; 1 it is done, and the answer is no; "
    "2 it could not be done, and the message names the flag, setting, file, driver or cluster that is wrong."
)


def kubectl_plugin() -> int:
    """Run one command as `kubectl dra`, where the running cluster is a source of objects unless it is excluded."""
    return main(prog=UNDER_KUBECTL)


def main(arguments: list[str] | None = None, prog: str = NAME) -> int:
    """Run one command; returns the exit status."""
    os.environ.setdefault("GRPC_VERBOSITY", "ERROR")  # otherwise each connection that a peer closes is logged
    given = _without_help(sys.argv[1:] if arguments is None else arguments)
    guard()
    try:
        return _run(given, prog)
    except OutputError as error:
        give_up()
        if not isinstance(error.__cause__, BrokenPipeError):  # `… | head` has read what it wants
            print_error(error)
        return FAILED
    except DraError as error:
        print_error(error)
        return FAILED
    except KeyboardInterrupt:
        return INTERRUPTED
    except OSError as error:
        if error.filename is None:
            raise
        print_lines([f"dra-sdk: {error.filename}: {error.strerror}"], sys.stderr)
        return FAILED


def _run(given: list[str], prog: str) -> int:
    try:
        parsed = make_parser(given, prog).parse_args(given)
        return int(parsed.run(parsed))
    finally:  # also after --help, which raises SystemExit
        sys.stdout.flush()


def _without_help(given: list[str]) -> list[str]:
    """Return `help` and `help COMMAND` as `--help` and `COMMAND --help`."""
    return [*given[1:2], "--help"] if given[:1] == ["help"] else given


def make_parser(arguments: list[str], prog: str = NAME, kind: type[Parser] = Parser) -> Parser:
    """Return the parser for these arguments: with the command that they name, or with all; `run` imports no other.

    An installed driver is a command too, if no other command has its name. `kind` is the class of all parsers.
    """
    parser = kind(prog, description="Kubernetes DRA drivers in Python", epilog=_EXIT_STATUS)
    parser.add_argument("--version", action="version", version=f"{NAME} {version(NAME)}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    first = arguments[0] if arguments else ""
    if first not in COMMANDS and first in {driver.name for driver in iter_drivers()}:
        import_module("dra_sdk.cli.driver_top").add_parser(commands, first)
    else:
        for name in (first,) if first in COMMANDS else COMMANDS:
            import_module(f"dra_sdk.cli.{name}").add_parser(commands)
    return parser


if __name__ == "__main__":
    sys.exit(main())
