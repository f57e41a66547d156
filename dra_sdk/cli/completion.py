"""`dra-sdk completion SHELL`: a script with which a shell completes commands, flags and files.

For bash: `source <(dra-sdk completion bash)`; for zsh, write it as `_dra-sdk` to a directory of `$fpath`; for tcsh,
`dra-sdk completion tcsh | source /dev/stdin`. Exit status: 0, or 2 for bad input.
"""

from __future__ import annotations

import argparse
from typing import Any, Final

from dra_sdk.cli.arguments import Commands, Parser
from dra_sdk.cli.packages import require_package

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
    require_package("completion", "shtab")
    import shtab  # noqa: PLC0415 (of the extra)

    from dra_sdk.cli.main import make_parser  # noqa: PLC0415 (it imports the commands)

    print(shtab.complete(make_parser([], kind=_CompletedParser), arguments.shell))
    return 0


class _Completed:
    """A part of actions of argparse: shells complete the value if the metavariable is a file or a directory."""

    metavar: str | tuple[str, ...] | None

    @property
    def complete(self) -> dict[str, str]:
        """How shells complete it, where shtab looks for that; AttributeError for other values."""
        import shtab  # noqa: PLC0415 (of the extra)

        for word, kind in _PATHS.items():
            if word in str(self.metavar or ""):
                completion: dict[str, str] = getattr(shtab, kind)
                return completion
        raise AttributeError("complete")


class _CompletedParser(Parser):
    """The parser as shtab reads it."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **keywords)
        for action in ("store", "append"):
            usual = type(argparse.ArgumentParser(add_help=False).add_argument("--name", action=action))
            completed = type(usual.__name__, (_Completed, usual), {})
            self.register("action", action, completed)
            if action == "store":
                self.register("action", None, completed)
