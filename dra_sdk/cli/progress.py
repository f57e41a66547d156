"""On a terminal, a line on stderr that says what takes long, for how long already, and how far it is."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from time import monotonic
from typing import Final, TextIO

from dra_sdk.texts import printable

FIRST_SECONDS: Final = 2.0
"""What takes no longer than this is not shown."""
_INTERVAL: Final = 0.5
_CLEAR_LINE: Final = "\r\033[K"


class Progress:
    """A part of a command's work.

    done, total: how many things are done, and of how many; 0 if that is not known.
    """

    def __init__(self, what: str) -> None:
        self.what = what
        self.done = self.total = 0
        self._began = monotonic()

    def count(self, done: int, total: int = 0) -> None:
        """Say how far it is."""
        self.done, self.total = done, total

    def count_bytes(self, done: int, total: int) -> None:
        """Say how many bytes of a file are read; shown in percent."""
        self.count(100 * done // max(1, total), 100)

    @property
    def line(self) -> str:
        """What is shown: `scheduling pods: 4200 of 10000, 12 s`."""
        counts = f" of {self.total}" if self.total else ""
        far = f"{self.done}{counts}, " if self.done else ""
        return f"{self.what}: {far}{monotonic() - self._began:.0f} s"


@contextmanager
def phase(what: str, *, first: float = FIRST_SECONDS, stream: TextIO | None = None) -> Iterator[Progress]:
    """Show, while the block runs, how far it is, if stderr is a terminal and the block takes longer than `first`.

    The line disappears when the block ends, so what is printed afterwards stands alone.
    """
    stream = stream or sys.stderr
    shown, ended = Progress(what), Event()
    if not stream.isatty() or os.environ.get("TERM") == "dumb":
        yield shown
        return
    thread = Thread(target=_show, args=(shown, ended, first, stream), daemon=True)
    thread.start()
    try:
        yield shown
    finally:
        ended.set()
        thread.join()


def _show(shown: Progress, ended: Event, first: float, stream: TextIO) -> None:
    if ended.wait(first):
        return
    while True:
        stream.write(f"{_CLEAR_LINE}{printable(shown.line)}")
        stream.flush()
        if ended.wait(_INTERVAL):
            break
    stream.write(_CLEAR_LINE)
    stream.flush()
