"""What hooks report about devices (`PodSandbox.report`), kept until the runtime has its answer.

A report is written to the disk and to the API server. The start of a pod does not wait for that: its reports are sent
after the answer, in the order in which hooks made them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from threading import Condition, local

from google.protobuf.message import Message

from dra_sdk.model.claim import HeldClaim, HeldDevice
from dra_sdk.model.container import Report
from dra_sdk.model.status import DeviceStatus
from dra_sdk.node.nri.session import EventResponse


class Reports:
    """Keeps the reports that hooks make in an event until it is answered. Safe for threads.

    report: takes one report.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._changed = Condition()
        self._waiting: deque[tuple[HeldClaim, HeldDevice, DeviceStatus]] = deque()
        self._sending = False
        self._thread = local()  # `keeps`: whether the thread handles an event

    def add(self, claim: HeldClaim, device: HeldDevice, status: DeviceStatus) -> None:
        """Take a report. One of a thread that handles no event is sent at once: no answer follows."""
        with self._changed:
            self._waiting.append((claim, device, status))
        if not getattr(self._thread, "keeps", False):
            self.send()

    def after_answer(
        self, handle: Callable[[], Message | EventResponse | None], empty: Callable[[], Message]
    ) -> EventResponse:
        """Handle an event. What this thread reports is sent after the answer; after an exception at once.

        empty: makes the answer if `handle` returns None.
        """
        self._thread.keeps = True
        try:
            answer = handle()
        except BaseException:
            self.send()
            raise
        finally:
            self._thread.keeps = False
        response = (
            answer if isinstance(answer, EventResponse) else EventResponse(answer or empty(), lambda _in_time: None)
        )
        return replace(response, sent=partial(self._sent, response.sent))

    def _sent(self, sent: Callable[[bool], None], in_time: bool) -> None:
        try:
            sent(in_time)
        finally:
            self.send()

    def send(self) -> None:
        """Send all reports that wait. If another thread is doing that, it sends these as well."""
        with self._changed:
            if self._sending:
                return
            self._sending = True
        try:
            while (report := self._next()) is not None:
                self._report(*report)
        except BaseException:
            with self._changed:
                self._sending = False
                self._changed.notify_all()
            raise

    def _next(self) -> tuple[HeldClaim, HeldDevice, DeviceStatus] | None:
        with self._changed:
            if self._waiting:
                return self._waiting.popleft()
            self._sending = False
            self._changed.notify_all()
            return None

    def wait(self, timeout: float) -> bool:
        """Wait until no report waits. False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._waiting and not self._sending, timeout)
