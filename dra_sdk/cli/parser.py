"""Reading the command line: one sentence for what is wrong, files wherever they stand, numbers with their limits."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence
from typing import Any, Final, NoReturn

_FILES: Final = "files"


class Parser(argparse.ArgumentParser):
    """Unlike its parent it takes no abbreviated flags, takes files on both sides of flags, and errs in one line."""

    def __init__(self, *arguments: Any, **keywords: Any) -> None:
        super().__init__(*arguments, **{"allow_abbrev": False, **keywords})

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> tuple[Any, list[str]]:
        """As its parent, and the words that are left over are files, where the command takes files."""
        found, left = super().parse_known_args(args, namespace)
        if hasattr(found, _FILES) and any(each.dest == _FILES for each in self._actions):
            found.files += [each for each in left if not _is_flag(each)]
            left = [each for each in left if _is_flag(each)]
        if left:
            self.error(f"unrecognized arguments: {' '.join(left)}{self._meant(left)}")
        return found, left

    def error(self, message: str) -> NoReturn:
        """End with status 2; the long usage stays where it is asked for."""
        print(f"{self.prog}: {message} (`{self.prog} --help` lists what there is)", file=sys.stderr)
        self.exit(2)

    def _meant(self, words: Sequence[str]) -> str:
        """The flags that look most like those that there are not."""
        from difflib import get_close_matches  # noqa: PLC0415 (for those who mistype)

        known = [flag for each in self._actions for flag in each.option_strings]
        close = [get_close_matches(word.partition("=")[0], known, 1) for word in words if _is_flag(word)]
        found = ", ".join(dict.fromkeys(flag for flags in close for flag in flags))
        return f"; did you mean {found}?" if found else ""


def from_text(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """For a flag's `type`: what `read` says in a ValueError is told, which argparse by itself keeps to itself."""

    def convert(text: str) -> Any:
        try:
            return read(text)
        except ValueError as error:
            raise argparse.ArgumentTypeError(f"{text!r}: {error}") from error

    return convert


def whole_number(least: int) -> Callable[[str], int]:
    """A whole number, `least` or more."""

    def read(text: str) -> int:
        if not (text.isdecimal() and int(text) >= least):
            raise ValueError(f"must be a whole number, {least} or more")
        return int(text)

    return from_text(read)


def positive_seconds(text: str) -> float:
    """A time span above 0; ArgumentTypeError for anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 < value < math.inf:
        raise argparse.ArgumentTypeError(f"{text!r}: must be a number of seconds above 0")
    return value


def _is_flag(word: str) -> bool:
    return len(word) > 1 and word.startswith("-")
