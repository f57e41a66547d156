"""Shows the progress of long steps: a live line on a terminal, and a line every half minute in a file.

A cold build takes a quarter of an hour. A person wants to see that it goes on, and a CI runner ends a job that prints
nothing for long.
"""

from __future__ import annotations

import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from collections.abc import Iterator

LIVE_INTERVAL = 0.25
PLAIN_INTERVAL = 30.0
CLEAR = "\r\x1b[K"


def duration(seconds: float) -> str:
    """Returns a length of time in words: `0.4 s`, `42 s`, `3 min 05 s`, `1 h 02 min`."""
    if seconds < 9.95:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Step:
    """A piece of work that is under way.

    title: what is done.
    detail: how far it is; the next line has it after the elapsed time.
    """

    def __init__(self, title: str) -> None:
        self.title = title
        self.detail = ""
        self._began = time.monotonic()

    def line(self) -> str:
        """Returns the title, the elapsed time and the detail."""
        elapsed = duration(time.monotonic() - self._began)
        return f"{self.title}: {elapsed}" + (f", {self.detail}" if self.detail else "")


class Progress:
    """Reports steps to a stream, standard error by default; in one changing line if it is a terminal."""

    def __init__(self, stream: TextIO | None = None, *, verbose: bool = False, interval: float | None = None) -> None:
        self.verbose = verbose
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._interval = interval or (LIVE_INTERVAL if self._live else PLAIN_INTERVAL)

    def note(self, text: str) -> None:
        """Prints one line."""
        self._write(f"{text}\n")

    def debug(self, text: str) -> None:
        """Prints one line if it is verbose."""
        if self.verbose:
            self.note(text)

    @contextmanager
    def step(self, title: str) -> Iterator[Step]:
        """Shows `title` with the elapsed time until the block ends, and then how it ended."""
        step, over = Step(title), threading.Event()
        ticker = threading.Thread(target=self._tick, args=(step, over), name="progress", daemon=True)
        ticker.start()
        outcome = "failed"
        try:
            yield step
            outcome = "done"
        finally:
            over.set()
            ticker.join()
            self._write(f"{CLEAR if self._live else ''}{outcome:6} {step.line()}\n")

    def _tick(self, step: Step, over: threading.Event) -> None:
        while not over.wait(self._interval):
            self._write(f"{CLEAR}...... {step.line()}" if self._live else f"...... {step.line()}\n")

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()
