"""A request that this process stops: by SIGTERM or SIGINT, or by one of its threads.

CPython calls a signal handler when the main thread executes its next instruction. A signal that arrives just before
this thread begins to wait for a lock does not end that wait, nor does one that the kernel gives to another thread. So
the main thread waits for a socket here, into which CPython writes the signal's number at once, in whichever thread it
arrives (signal.set_wakeup_fd).
"""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from types import FrameType
from typing import Final

SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)
_NO_SIGNAL: Final = b"\0"
"""What stands in the socket for a reason of a thread."""


class StopRequest:
    """Waits until this process is asked to stop. A context manager, which leaves handlers of signals in place."""

    def __init__(self) -> None:
        self._reasons: SimpleQueue[str] = SimpleQueue()
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)

    def put(self, reason: str) -> None:
        """Let `wait` return this reason; from any thread."""
        self._reasons.put(reason)
        with suppress(OSError):  # it is full, so `wait` has something to read; or closed, so the process ends
            self._sender.send(_NO_SIGNAL)

    def catch_signals(self) -> None:
        """Let `wait` return the name of the next signal; the one after it ends the process. In the main thread."""
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)
        on_signal(lambda _number, _frame: on_signal(exit_at_once))

    def wait(self) -> str:
        """Return why the process should stop; in the main thread."""
        while (number := self._receiver.recv(1)[0]) not in SIGNALS:  # drivers may handle other signals
            if number == _NO_SIGNAL[0]:
                return self._reasons.get()
        return signal.Signals(number).name

    def __enter__(self) -> StopRequest:
        return self

    def __exit__(self, *_: object) -> None:
        signal.set_wakeup_fd(-1)
        self._sender.close()
        self._receiver.close()


def exit_at_once(number: int, _frame: FrameType | None) -> None:
    """End the process without cleaning up; a signal handler."""
    os._exit(128 + number)


def on_signal(handler: Callable[[int, FrameType | None], None]) -> None:
    """Set the handler of both signals; in the main thread."""
    for number in SIGNALS:
        signal.signal(number, handler)
