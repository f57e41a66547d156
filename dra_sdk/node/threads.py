"""Threads that run a driver's open-ended hooks, again with back-off when they fail; and a timer for slow calls."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Event, Thread, Timer

from dra_sdk.errors import DraError, HookError

log = logging.getLogger(__name__)
FIRST_DELAY = 0.5  # seconds before the first restart
LAST_DELAY = 60.0  # seconds; the delay doubles up to this


Ended = Callable[[BaseException | None], None]
"""Called when a body ends without having been asked to, with the exception that it raised, or None if it returned."""


class RestartingThread:
    """A named thread that runs `body(stop)` until it returns, and again after each raise.

    It is a daemon: a hook that ignores `stop` must not keep the process from ending.

    delay: seconds before the next restart.
    """

    def __init__(self, name: str, body: Callable[[Event], None], ended: Ended = lambda _error: None) -> None:
        self._stop = Event()
        self._body, self._ended = body, ended
        self._thread = Thread(target=self._run, name=name, daemon=True)
        self.delay = FIRST_DELAY

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def request_stop(self) -> None:
        """Ask the body to return."""
        self._stop.set()

    def stop(self, timeout: float) -> bool:
        """Ask the body to return, and wait up to `timeout` seconds. False if it still runs."""
        self.request_stop()
        if self._thread.ident is None:
            return True
        return self.join(timeout)

    def join(self, timeout: float) -> bool:
        """Wait up to `timeout` seconds until the body has returned; False if it still runs."""
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def progressed(self) -> None:
        """Report that the body works, so that the next restart waits only FIRST_DELAY."""
        self.delay = FIRST_DELAY

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                self._body(self._stop)
            except BaseException as error:  # noqa: BLE001 (an author's code; a Ctrl-C reaches the main thread only)
                self._log(error)
                self._ended(error)
                self._stop.wait(self.delay)
                self.delay = min(2 * self.delay, LAST_DELAY)
            else:
                if not self._stop.is_set():
                    self._ended(None)
                return

    def _log(self, error: BaseException) -> None:
        """Log one sentence; with a traceback if an author's code raised."""
        expected = isinstance(error, DraError) and not (isinstance(error, HookError) and error.__cause__)
        what = " ".join(f"{self._thread.name} failed: {str(error) or type(error).__name__}".split())
        log.error("%s; it starts again in %.1f s", what, self.delay, exc_info=None if expected else error)


@contextmanager
def call_after(seconds: float, function: Callable[[], object]) -> Iterator[None]:
    """Call `function` on a thread of its own if the block still runs after some seconds."""
    timer = Timer(seconds, function)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()
