"""Calls that stand still between any two effects, so that a test decides what happens in between.

A call has a thread of its own, but only one thread ever runs: `advance` lets a call go on and waits until it stands
still again or has ended. So a run is the same each time, and the code under test is the real one, locks and all.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Lock
from typing import Any, Final

from dra_sdk.model.claim import ClaimRef, Deadline
from dra_sdk.testing.waiting import LONG

TO_THE_END: Final = 1 << 30


class Killed(BaseException):
    """Ends a call whose process was killed. What its `finally` and `except` blocks still do, the node takes back."""


class Call:
    """One call of the kubelet, or the start of a process.

    ref: its claim; None for a start.
    kind: prepare, unprepare or start.
    deadline: until when its caller waits; over once the call is `cancelled`.
    ended: whether it has ended; then `answer` or `error` is set.
    began: whether it has changed anything.
    late: whether nobody waited for it any more when it began.
    strikes: how often a disk or an undo failed in it.
    changes: how often something had happened to the node when it was made.
    troubled: whether a disk or an undo failed in it.
    """

    def __init__(self, threads: ThreadPoolExecutor, kind: str, ref: ClaimRef | None) -> None:
        self.kind, self.ref = kind, ref
        self.work: Callable[[], Any] = lambda: None
        self.answer: Any = None
        self.error: BaseException | None = None
        self.ended = self.killed = self.cancelled = self.timed_out = False
        self.began = self.late = self.troubled = False
        self.strikes = 0
        self.changes = 0
        self.deadline = Deadline(lambda: 0.0 if self.timed_out else 45.0, lambda: not self.cancelled)
        self._threads = threads
        self._left = 0
        self._go, self._still = Lock(), Lock()
        self._go.acquire()
        self._still.acquire()
        self._submitted = False

    @property
    def given_up(self) -> bool:
        """Whether its caller has left or its deadline has passed."""
        return self.cancelled or self.timed_out

    def advance(self, effects: int) -> None:
        """Let it have so many effects, fewer if it ends or waits for a lock."""
        self._left = effects
        if self._submitted:
            self._go.release()
        else:
            self._submitted = True
            self._threads.submit(self._run)
        assert self._still.acquire(timeout=LONG), f"{self.kind} of {self.ref} hangs"

    def kill(self) -> None:
        """End it as far as that is possible: no effect that is announced takes place any more."""
        self.killed = True
        if self._submitted and not self.ended:
            self.advance(0)

    def pause(self) -> None:
        """Before an effect, by the call itself."""
        if self._left <= 0:
            self.wait()
        self._left -= 1
        if self.killed:
            raise Killed

    def wait(self) -> None:
        """Stand still until `advance`, by the call itself."""
        if self.killed:
            raise Killed
        self._still.release()
        assert self._go.acquire(timeout=20 * LONG), "nobody goes on with this call"
        if self.killed:
            raise Killed

    def _run(self) -> None:
        try:
            self.answer = self.work()
        except BaseException as error:  # noqa: BLE001 (whatever it is, the test is told)
            self.error = error.with_traceback(None)
        finally:
            self.ended = True
            self._still.release()
