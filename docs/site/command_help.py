"""The page of the reference about commands, made of their parsers: the same for every release of argparse."""

from __future__ import annotations

import argparse
import contextlib
import io
from collections.abc import Iterable
from typing import Any, Final

from docs.site.markdown import anchor, escaped, prose, table
from dra_sdk.cli.arguments import Parser
from dra_sdk.cli.main import COMMANDS, make_parser

_CALLS: Final = [[], *([command] for command in sorted(COMMANDS)), ["cpu", "top"]]


class MarkdownHelp(argparse.HelpFormatter):
    """Writes a parser's help as Markdown: prose, and a table for each group of arguments."""

    def __init__(self, prog: str, **_: Any) -> None:
        super().__init__(prog)
        self._parts: list[str] = []
        self._heading = ""

    def add_usage(self, usage: str | None, actions: Iterable[argparse.Action], *further: Any, **_: Any) -> None:
        """Add how the command is called, without its optional flags, which the table has.

        An empty prefix, the last of `further`, asks for the name alone, with which those of subcommands begin.
        """
        if further[-1] == "":
            self._parts.append(self._prog)
            return
        given = list(actions)
        flags = [action for action in given if action.option_strings]
        needed = [f"{action.option_strings[-1]} {_value(action)}" for action in flags if action.required]
        words = [*needed, *(_place(action) for action in given if not action.option_strings)]
        self._parts.append(f"```text\n{' '.join([usage or self._prog, '[flags]', *words])}\n```\n")

    def add_text(self, text: str | None) -> None:
        """Add prose."""
        if text and text != argparse.SUPPRESS:
            self._parts.append(prose(text))

    def start_section(self, heading: str | None) -> None:
        """Note the title of a table."""
        self._heading = heading or ""

    def end_section(self) -> None:
        """Forget the title of a table."""
        self._heading = ""

    def add_arguments(self, actions: Iterable[argparse.Action]) -> None:
        """Add a table of arguments, or of subcommands."""
        shown = [action for action in actions if action.help != argparse.SUPPRESS]
        if inner := [entry for action in shown for entry in self._iter_indented_subactions(action)]:
            names = [(str(entry.metavar or entry.dest), entry.help or "") for entry in inner]
            self._parts.append(table(("command", "what"), [(f"`{name}`", text) for name, text in names]))
        elif shown:
            rows = [(f"`{_spelled(action)}`", self._expand_help(action) if action.help else "") for action in shown]
            self._parts.append(table((self._heading, "what"), rows))

    def format_help(self) -> str:
        """Return the page."""
        return "\n".join(self._parts)


class _DocumentedParser(Parser):
    """A parser whose help is Markdown."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **{"formatter_class": MarkdownHelp, **keywords})


def _value(action: argparse.Action) -> str:
    """Return what stands for the value of an argument."""
    metavar = action.metavar[0] if isinstance(action.metavar, tuple) else action.metavar
    return metavar or ("|".join(map(str, action.choices)) if action.choices else action.dest.upper())


def _spelled(action: argparse.Action) -> str:
    """Return a flag with its short form and its value, or the name of a positional argument."""
    if not action.option_strings:
        return _value(action)
    spelled = ", ".join(action.option_strings)
    return spelled if action.nargs == 0 else f"{spelled} {_value(action)}"


def _place(action: argparse.Action) -> str:
    """Return a positional argument as it stands in the line."""
    value = _value(action)
    return {"?": f"[{value}]", "*": f"[{value}…]", "+": f"{value}…"}.get(str(action.nargs), value)


def commands() -> str:
    """Return the page of all commands and their flags."""
    titles = [" ".join(["dra-sdk", *call]) for call in _CALLS]
    links = ", ".join(f"[{title}](#{anchor(title)})" for title in titles[1:])
    parts = [f"# Flags of the commands\n\n{escaped('What each command takes, as its `--help` prints.')} {links}\n"]
    parts += [f"## {title}\n\n{_help(call)}" for title, call in zip(titles, _CALLS, strict=True)]
    return "\n".join(parts)


def _help(call: list[str]) -> str:
    """Return the help that a call prints."""
    out = io.StringIO()
    given = [*call, "--help"]
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        make_parser(given, kind=_DocumentedParser).parse_args(given)
    return out.getvalue()
