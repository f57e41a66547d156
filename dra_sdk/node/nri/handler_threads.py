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
_CROWDED: Final = 64


@dataclass(slots=True, order=True)
class _Task:
    """Work with the time by which it must have returned.

    due: of the monotonic clock, in seconds.
    owner: what it is dropped with.
    """

    due: float
    number: int
    owner: object = field(compare=False)
    work: Callable[[], object] = field(compare=False)
    late: Callable[[], object] = field(compare=False)
    returned: Callable[[], object] = field(compare=False)
    ended: bool = field(default=False, compare=False)

    def end(self) -> None:
        """Note that the work has returned, and drop what it was about, such as a message with all containers."""
        self.ended = True
        self.work = self.late = self.returned = _nothing


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
        self._crowded = _CROWDED  # how many are watched before those that have ended are taken out
        self._threads: list[Thread] = []
        self._idle = 0
        self._numbers = count()
        self._stopped = False

    def run(
        self,
        work: Callable[[], object],
        seconds: float,
        late: Callable[[], object] = lambda: None,
        *,
        owner: object = None,
        returned: Callable[[], object] = lambda: None,
    ) -> None:
        """Run `work` on another thread as soon as one is free; after stop(), do nothing.

        If it has not returned `seconds` from now, `late` runs on another thread, also if no thread was free. Both may
        raise NriError, which is logged: the connection has ended. `drop` of the owner drops what has not begun.
        `returned` is called when `work` has returned.
        """
        with self._changed:
            if self._stopped:
                return
            task = _Task(monotonic() + seconds, next(self._numbers), owner, work, late, returned)
            if len(self._watched) >= self._crowded:
                self._keep(lambda watched: not watched.ended)
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

    def drop(self, owner: object) -> None:
        """Drop what this owner has asked for and no thread has begun."""
        with self._changed:
            for task in self._waiting:
                if task.owner is owner:
                    task.end()
            self._waiting = deque(task for task in self._waiting if not task.ended)
            self._keep(lambda watched: not watched.ended and watched.owner is not owner)

    def _keep(self, wanted: Callable[[_Task], bool]) -> None:
        """Watch only these functions: one that has ended would else be watched until its time is over."""
        self._watched = [task for task in self._watched if wanted(task)]
        heapq.heapify(self._watched)
        self._crowded = max(_CROWDED, 2 * len(self._watched))

    @property
    def watched(self) -> int:
        """How many functions are watched, with some that have ended."""
        return len(self._watched)

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
                try:
                    task.work()
                finally:
                    task.returned()
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
