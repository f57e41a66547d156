"""Running a command of `dra-sdk` in this process."""

from __future__ import annotations

import logging
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from dra_sdk.cli.main import main

EXAMPLES = Path(__file__).parents[2] / "docs" / "examples"


@dataclass(frozen=True)
class Result:
    """Exit status, stdout and stderr."""

    status: int
    out: str
    err: str

    @property
    def cells(self) -> list[list[str]]:
        """The rows of a table on stdout, without its headings, up to the first empty line."""
        lines = self.out.partition("\n\n")[0].splitlines()[1:]
        return [re.split(" {2,}", line) for line in lines]


Run = Callable[..., Result]


def runner(capsys: pytest.CaptureFixture[str]) -> Run:
    """A function that runs `dra-sdk` with its arguments; wrong usage is status 2, as for a process.

    Logging is as before afterwards: `demo` and `run` set it up for a process of their own.
    """

    def run(*arguments: object) -> Result:
        root = logging.getLogger()
        handlers, level = root.handlers[:], root.level
        try:
            status = main([str(argument) for argument in arguments])
        except SystemExit as stop:
            status = int(stop.code or 0)
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
        captured = capsys.readouterr()
        return Result(status, captured.out, captured.err)

    return run
