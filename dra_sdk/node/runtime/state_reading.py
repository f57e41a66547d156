"""The state files at the start of a driver: those that take longer than a moment are read while it serves."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Event
from time import monotonic
from typing import Final

from dra_sdk.node.prepare.engine import Preparer
from dra_sdk.node.threads import RestartingThread

log = logging.getLogger(__name__)
READ_SECONDS: Final = 0.5
"""How long a start reads state files before it serves."""


class StateReading:
    """Reads the state files of a driver; once all are read, calls `done`.

    preparer: has the files.
    """

    def __init__(self, preparer: Preparer, done: Callable[[], None]) -> None:
        self._preparer, self._done = preparer, done
        self._thread = RestartingThread("state files", self._read)

    def start(self) -> None:
        """Read for READ_SECONDS; a thread reads the rest. SettingsError or StateError if there is no directory."""
        ends = monotonic() + READ_SECONDS
        if self._preparer.recover(lambda: monotonic() >= ends):
            self._done()
        else:
            log.info("the driver serves while the rest of its state files is read")
            self._thread.start()

    def stop(self, timeout: float) -> bool:
        """End the thread. False if it has not ended within `timeout` seconds."""
        return self._thread.stop(timeout)

    def _read(self, stop: Event) -> None:
        if self._preparer.read_state(stop.is_set):
            self._done()
