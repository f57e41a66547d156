"""The command line: a parser that reports errors in one line, and types of arguments."""

from __future__ import annotations

import argparse
import math
import re
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from textwrap import wrap
from typing import Any, Final, NoReturn, Protocol

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.loader import find_settings
from dra_sdk.model.settings import SECTION, DriverSettings
from dra_sdk.texts import closest, did_you_mean, printable
from dra_sdk.wire.profile import DEFAULT_VERSION, NEWEST, OLDEST, gate_names

DEFAULT_NODE: Final = "node-1"
"""The name of the node where no cluster gives one."""
REPEATED: Final[dict[str, Any]] = {"action": "append", "default": []}
"""Options of a flag that may be repeated, whose values are a list."""
UNDER_KUBECTL: Final = "kubectl dra"
"""The name of the command as a plugin of kubectl."""
_FLAG: Final = re.compile(r"^ {2}(?:-\w[^,\n]*, )?(--[a-z-]+)", re.MULTILINE)
"""A long flag in a help text."""
_CHOICE: Final = re.compile(r"invalid choice: (.+) \(choose from (.+)\)$", re.DOTALL)
"""What argparse says of a value that is none of the choices, which have quotes before Python 3.12."""
_INDENT: Final = " " * 24
"""Where argparse begins the descriptions of flags."""


class Parser(argparse.ArgumentParser):
    """A parser without abbreviated flags, with files before and after flags, and with errors in one line."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **keywords})
        if self.prog.startswith(UNDER_KUBECTL):
            self.description = (self.description or "").replace("`dra-sdk ", f"`{UNDER_KUBECTL} ")
        self._has_files = False
        self._needs_files = False

    def add_files(self, description: str, *, required: bool = False) -> None:
        """Add the argument `files`, and `-f` for those who know it from kubectl."""
        self.add_argument("files", nargs="*", metavar="FILE", help=description)
        self.add_argument(
            "-f",
            "--filename",
            **REPEATED,
            metavar="FILE",
            help="one more FILE, or several with commas between them, as for kubectl; may be repeated",
        )
        self._has_files, self._needs_files = True, required

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """Parse as the base class; but words after flags are files if the command has files, and errors otherwise."""
        parsed, left = super().parse_known_args(args, namespace)
        if self._has_files:
            parsed.files += [word for word in left if not _is_flag(word)]
            parsed.files += [name for names in parsed.filename for name in _file_names(names)]
            left = [word for word in left if _is_flag(word)]
            if self._needs_files and not parsed.files and not left:
                self.error("the following arguments are required: FILE")
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}{self._suggestion(left)}")
        return parsed, left

    def error(self, message: str) -> NoReturn:
        """Print one line and exit with status 2; only `--help` prints the usage."""
        message = _CHOICE.sub(_wrong_choice, message)
        print(printable(f"{self.prog}: {message} (see `{self.prog} --help`)"), file=sys.stderr)
        self.exit(2)

    def _suggestion(self, words: Sequence[str]) -> str:
        """Return the known flags that are most like the unknown ones."""
        known = _FLAG.findall(self.format_help())
        flags = [flag for word in words if _is_flag(word) and (flag := closest(word.partition("=")[0], known))]
        return f"; did you mean {', '.join(dict.fromkeys(flags))}?" if flags else ""


class Commands(Protocol):
    """The subcommands of a parser."""

    def add_parser(
        self,
        name: str,
        *,
        help: str,  # noqa: A002 (as in argparse)
        description: str | None,
        add_help: bool = True,
    ) -> Parser:
        """Add a subcommand."""


def _wrong_choice(match: re.Match[str]) -> str:
    """Return argparse's sentence about a wrong choice, with the choice that is most like it."""
    value, known = match[1].strip("'\""), [choice.strip("'\"") for choice in match[2].split(", ")]
    return f"{value!r} is not one of {', '.join(known)}{did_you_mean(value, known)}"


def add_driver(parser: Parser) -> None:
    """Add the argument `driver`, and a `--help` that also shows the settings of the driver before it."""
    parser.add_argument("driver", help="a name that `dra-sdk drivers` lists, or module:Class")
    parser.add_argument(
        "-h",
        "--help",
        action=_DriverHelp,
        nargs=0,
        help="show this help message, and after a driver's name also the driver's settings, and exit",
    )


class _DriverHelp(argparse.Action):
    """Prints the help and the settings of the driver. It imports the driver, and touches no hardware."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, *_: Any) -> NoReturn:
        try:
            settings = find_settings(namespace.driver) if namespace.driver else None
        except DraError as error:
            parser.error(str(error))
        parser.print_help()
        if settings is not None:
            print(_settings_help(namespace.driver, settings))
        parser.exit()


def _settings_help(driver: str, settings: type[DriverSettings]) -> str:
    """Return the settings of a driver, laid out as the flags are."""
    width = shutil.get_terminal_size().columns - 2
    text = f"settings of driver {driver}, as environment variables or in section `{SECTION}` of the file of --config:"
    lines = ["", *wrap(text, width)]
    for setting in settings.documentation():
        default = (
            "required" if setting.default is None else f"default {setting.default}" if setting.default else "not set"
        )
        lines += [f"  {setting.variable}, {setting.key}: {setting.accepts} ({default})"]
        lines += wrap(setting.description, width, initial_indent=_INDENT, subsequent_indent=_INDENT)
    return "\n".join(lines)


def from_text(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Return a type of argument that reports the message of a ValueError, which argparse would omit."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

    return convert


def whole_number(minimum: int) -> Callable[[str], int]:
    """Return a type of argument for whole numbers from a minimum."""

    def read(text: str) -> int:
        if not (text.isdecimal() and int(text) >= minimum):
            raise ValueError(f"must be a whole number, {minimum} or more")
        return int(text)

    return from_text(read)


def positive_seconds(text: str) -> float:
    """Return a duration in seconds above 0; ArgumentTypeError for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds above 0")
    return value


def feature_gates(text: str) -> dict[str, bool]:
    """Return the gates of `A=true,B=false`, as for the API server; ArgumentTypeError for an unknown gate or value.

    Gates without an effect here are accepted, so that the flag can be that of the cluster.
    """
    gates = {}
    for pair in filter(None, text.split(",")):
        name, _, value = pair.partition("=")
        if name not in gate_names():
            unknown = f"Kubernetes 1.{OLDEST} to 1.{NEWEST} have no feature gate {name}"
            raise argparse.ArgumentTypeError(unknown + did_you_mean(name, gate_names()))
        if value not in {"true", "false"}:
            raise argparse.ArgumentTypeError(f"{pair!r} must be {name}=true or {name}=false")
        gates[name] = value == "true"
    return gates


def add_server_flags(parser: argparse.ArgumentParser, *, running: bool = False) -> None:
    """Add the flags for the release and the feature gates of the API server; the same default for all commands.

    running: whether there may be a running cluster, whose release is the default then.
    """
    versions = [f"1.{minor}" for minor in range(OLDEST, NEWEST + 1)]
    default = f"that of the running cluster, or {DEFAULT_VERSION}" if running else DEFAULT_VERSION
    parser.add_argument(
        "--server-version",
        choices=versions,
        default=None if running else DEFAULT_VERSION,
        help=f"release of the API server (default {default})",
    )
    parser.add_argument(
        "--feature-gates",
        type=feature_gates,
        default={},
        metavar="NAME=true,…",
        help="feature gates of the cluster that differ from the defaults",
    )


def is_directory(path: Path) -> bool:
    """Return whether a path is a directory; False if that cannot be found out."""
    try:
        return path.is_dir()
    except OSError:
        return False


def driver_data(directory: Path, driver: str) -> Path:
    """Return the directory of a driver's state; SettingsError if it does not exist."""
    if not is_directory(directory):
        raise SettingsError(
            f"there is no directory {directory}: driver {driver} never ran here, or the kubelet has another directory "
            f"(--kubelet-dir)"
        )
    return directory


def add_output(parser: argparse._ActionsContainer, formats: Sequence[str], description: str) -> None:
    """Add the flag for the format of the output; the first of the formats is the default."""
    parser.add_argument("-o", "--output", choices=formats, default=formats[0], help=description)


def add_host_root(parser: argparse.ArgumentParser) -> None:
    """Add the flag for the tree that a driver reads."""
    parser.add_argument(
        "--host-root",
        type=lambda text: Path(text).absolute(),  # drivers compare paths, and a kit's driver has a working directory
        default=Path("/"),
        metavar="DIR",
        help="the directory with /sys, /proc and /dev that the driver reads, or an archive of `dra-sdk capture` "
        "(default /)",
    )


def check_host_root(path: Path) -> None:
    """Raise SettingsError unless the directory with the host's files exists."""
    if not is_directory(path):
        raise SettingsError(f"--host-root {path} is not a directory; it must contain the host's /sys, /proc and /dev")


def opened_host_root(path: Path) -> AbstractContextManager[Path]:
    """Return the directory with the host's files: `path` itself, or a temporary one with the content of an archive.

    SettingsError if there is neither, or if the archive is refused.
    """
    if path.is_file():
        from dra_sdk.tools.node_archive.archive import opened_root  # noqa: PLC0415 (only for an archive)

        return opened_root(path)
    check_host_root(path)
    return nullcontext(path)


def _file_names(names: str) -> list[str]:
    """Return the files of one `-f`: kubectl separates them by commas."""
    return [names] if Path(names).exists() else [name for name in names.split(",") if name]


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")
