"""Calls of a driver's code by commands: what it prints goes to stderr, and a call that takes long is reported.

Stdout has the command's answer, such as the JSON of `discover -o json`, so a driver's `print()` must not reach it.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from threading import current_thread
from typing import Final, TextIO, cast

from dra_sdk import loader
from dra_sdk.loader import Driver
from dra_sdk.model.claim import HeldClaim
from dra_sdk.model.device import ResourcePool
from dra_sdk.model.driver import Node
from dra_sdk.model.settings import KUBELET_DIR, SettingsFile
from dra_sdk.node.threads import call_after
from dra_sdk.texts import printable

SLOW_SECONDS: Final = 3.0
"""After this time a command says what it waits for."""


def load_driver(name: str, file: SettingsFile | None = None, kubelet_dir: str | Path = KUBELET_DIR) -> Driver:
    """See `dra_sdk.loader.load_driver`; an import and a constructor are a driver's code too."""
    with _to_stderr(), reported_if_slow(f"loading driver {name}"):
        return loader.load_driver(name, file, kubelet_dir)


def discover(driver: Driver, node: Node) -> list[ResourcePool]:
    """See `Driver.discover`."""
    with _to_stderr(), reported_if_slow(f"dra_discover of driver {driver.info.name}"):
        return driver.discover(node)


def top(driver: Driver, node: Node, held: Sequence[HeldClaim]) -> list[str]:
    """See `Driver.top`."""
    with _to_stderr(), reported_if_slow(f"dra_top of driver {driver.info.name}"):
        return driver.top(node, held)


@contextmanager
def reported_if_slow(what: str) -> Iterator[None]:
    """Say on stderr that `what` still runs after SLOW_SECONDS."""
    stderr, text = sys.stderr, f"note: still waiting for {what} after {SLOW_SECONDS:g} s"
    with call_after(SLOW_SECONDS, lambda: print(printable(text), file=stderr, flush=True)):
        yield


@contextmanager
def threads_print_to_stderr() -> Iterator[None]:
    """Let only this thread print to stdout: hooks run in other threads."""
    with redirect_stdout(cast("TextIO", _StdoutOfThisThread())):
        yield


@contextmanager
def _to_stderr() -> Iterator[None]:
    """Let this process and the programs that it starts print to stderr."""
    sys.stdout.flush()
    saved = os.dup(1)
    try:
        os.dup2(2, 1)
        with redirect_stdout(sys.stderr):
            yield
    finally:
        os.dup2(saved, 1)
        os.close(saved)


class _StdoutOfThisThread:
    """Stdout for the thread that makes it, stderr for all others."""

    def __init__(self) -> None:
        self._owner = current_thread()
        self._stdout = sys.stdout

    def write(self, text: str) -> int:
        return self._stream().write(text)

    def flush(self) -> None:
        self._stream().flush()

    def isatty(self) -> bool:
        return self._stdout.isatty()

    def _stream(self) -> TextIO:
        return self._stdout if current_thread() is self._owner else sys.stderr
