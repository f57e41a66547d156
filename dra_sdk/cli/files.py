"""Files that a command is given, and text that goes to a terminal."""

from __future__ import annotations

import sys
from pathlib import Path

from dra_sdk.errors import SettingsError

STDIN = "-"


def read_content(name: str) -> bytes:
    """What is in a file, or comes from standard input for `-`; SettingsError if it cannot be read."""
    try:
        return sys.stdin.buffer.read() if name == STDIN else Path(name).read_bytes()
    except IsADirectoryError as error:
        raise SettingsError(
            f"cannot read {name}: it is a directory; name its files, as in {name.rstrip('/')}/*.yaml"
        ) from error
    except OSError as error:
        raise SettingsError(f"cannot read {name}: {error.strerror}") from error


def shown_name(name: str) -> str:
    """How a file is named in messages."""
    return "<stdin>" if name == STDIN else name


def printable(text: str) -> str:
    """One line that every terminal takes, whatever names a file brings along."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)


def is_directory(path: Path) -> bool:
    """Whether it is one, as far as we are allowed to know."""
    try:
        return path.is_dir()
    except OSError:
        return False


def check_host_root(path: Path) -> None:
    """SettingsError unless the directory is there in which a driver is to look."""
    if not is_directory(path):
        raise SettingsError(
            f"--host-root {path} is no directory; it is where the host's /sys, /proc and /dev are found"
        )
