"""`dra-sdk completion SHELL`: a script with which a shell completes commands, flags and files.

For bash: `source <(dra-sdk completion bash)`; for zsh, write it as `_dra-sdk` to a directory of `$fpath`; for tcsh,
`dra-sdk completion tcsh | source /dev/stdin`. Exit status: 0, or 2 for bad input.
"""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final, cast

from dra_sdk.cli.arguments import Commands
from dra_sdk.cli.extras import require_tools

if TYPE_CHECKING:
    from collections.abc import Iterator

SHELLS: Final = ("bash", "zsh", "tcsh", "fish")
_PATHS: Final = {"FILE": "FILE", "DIR": "DIRECTORY"}
"""Words of metavariables, and what shtab calls their completion."""


def add_parser(commands: Commands) -> None:
    """Add the subcommand."""
    parser = commands.add_parser("completion", help="print a script for the completion of a shell", description=__doc__)
    parser.add_argument("shell", choices=SHELLS, metavar="SHELL", help=f"one of {', '.join(SHELLS)}")
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> int:
    """Print the script."""
    require_tools("completion")
    import shtab  # noqa: PLC0415 (of the extra)

    from dra_sdk.cli.main import make_parser  # noqa: PLC0415 (it imports the commands)

    parser = make_parser([])
    for action in _actions(parser):
        kind = next((kind for word, kind in _PATHS.items() if word in str(action.metavar or "")), None)
        if kind is not None:
            action.complete = getattr(shtab, kind)  # type: ignore[attr-defined]  # shtab's own protocol
    print(shtab.complete(parser, arguments.shell))
    return 0


def _actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """The arguments of a parser and of its subcommands."""
    for action in parser._actions:  # noqa: SLF001 (argparse has no public list, and shtab reads the same one)
        yield action
        if isinstance(action, argparse._SubParsersAction):  # noqa: SLF001
            for each in cast("dict[str, argparse.ArgumentParser]", action.choices).values():
                yield from _actions(each)
