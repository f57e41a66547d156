"""Threads that run handlers, and one that notices when a handler is late."""

from __future__ import annotations

import heapq
import logging
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from threading import Condition, Lock, Thread, current_thread
from time import monotonic
from typing import Final

from dra_sdk.errors import NriError

log = logging.getLogger(__name__)
LIMIT: Final = 16
"""Threads at a time. The runtime sends one event at a time, so all but one are for handlers that are late."""


@dataclass(slots=True, order=True)
class _Task:
    """Work with the time by which it must have returned.

    due: of the monotonic clock, in seconds.
    """

    due: float
    number: int
    work: Callable[[], object] = field(compare=False)
    late: Callable[[], object] = field(compare=False)
    ended: bool = field(default=False, compare=False)

    def end(self) -> None:
        """Note that the work has returned, and drop what it was about, such as a message with all containers."""
        self.ended = True
        self.work = self.late = _nothing


class HandlerThreads:
    """Runs functions on threads of its own, so that a slow one delays no other.

    Threads start when they are needed and stay for the next function. They are daemons: a handler that never returns
    must not keep the process from ending.
    """

    def __init__(self, name: str, limit: int = LIMIT) -> None:
        self._name, self._limit = name, limit
        lock = Lock()
        self._changed = Condition(lock)  # for the threads that run functions
        self._watching = Condition(lock)  # for the thread that watches their time
        self._waiting: deque[_Task] = deque()
        self._watched: list[_Task] = []
        self._threads: list[Thread] = []
        self._idle = 0
        self._numbers = count()
        self._stopped = False

    def run(self, work: Callable[[], object], seconds: float, late: Callable[[], object] = lambda: None) -> None:
        """Run `work` on another thread as soon as one is free; after stop(), do nothing.

        If it has not returned `seconds` from now, `late` runs on another thread, also if no thread was free. Both may
        raise NriError, which is logged: the connection has ended.
        """
        with self._changed:
            if self._stopped:
                return
            task = _Task(monotonic() + seconds, next(self._numbers), work, late)
            heapq.heappush(self._watched, task)
            if self._watched[0] is task:
                self._watching.notify()
            self._waiting.append(task)
            if not self._threads:
                self._start("deadlines", self._watch)
            if self._idle >= len(self._waiting):
                self._changed.notify()
            elif len(self._threads) <= self._limit:
                self._start(str(len(self._threads)), self._work)

    def is_current(self) -> bool:
        """Return whether the caller runs on one of these threads."""
        return current_thread() in self._threads

    def stop(self, timeout: float) -> bool:
        """Drop what waits, and wait up to `timeout` seconds for what runs. False if a function still runs."""
        with self._changed:
            self._stopped = True
            self._waiting.clear()
            self._watched.clear()
            self._changed.notify_all()
            self._watching.notify_all()
        deadline = monotonic() + timeout
        others = [thread for thread in self._threads if thread is not current_thread()]
        for thread in others:
            thread.join(max(0.0, deadline - monotonic()))
        return not any(thread.is_alive() for thread in others)

    def _start(self, name: str, run: Callable[[], None]) -> None:
        thread = Thread(target=run, name=f"{self._name}-{name}", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            with _connection_may_end():
                task.work()
            task.end()
            del task  # or what it refers to would stay until the next one comes

    def _next(self) -> _Task | None:
        with self._changed:
            self._idle += 1
            self._changed.wait_for(lambda: self._stopped or self._waiting)
            self._idle -= 1
            return self._waiting.popleft() if self._waiting else None

    def _watch(self) -> None:
        while (task := self._late()) is not None:
            with _connection_may_end():
                task.late()

    def _late(self) -> _Task | None:
        """Wait for the next function that does not return in time. Return None after stop()."""
        with self._changed:
            while not self._stopped:
                while self._watched and self._watched[0].ended:
                    heapq.heappop(self._watched)
                if not self._watched:
                    self._watching.wait()
                elif (seconds := self._watched[0].due - monotonic()) > 0:
                    self._watching.wait(seconds)
                else:
                    return heapq.heappop(self._watched)
            return None


def _nothing() -> None:
    """Do what is left to do for work that has ended."""


@contextmanager
def _connection_may_end() -> Iterator[None]:
    try:
        yield
    except NriError as error:
        log.debug("%s", error)
