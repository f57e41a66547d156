"""When reports of hooks are sent: after the answer, in their order, and none is lost."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event as ThreadEvent
from threading import Thread

import pytest

from dra_sdk import DeviceStatus, HeldClaim, HeldDevice
from dra_sdk.node.nri.reports import Reports
from dra_sdk.node.nri.session import EventResponse
from dra_sdk.testing.waiting import LONG
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

DEVICE = HeldDevice("nic", "node-1", "eth1")
CLAIM = HeldClaim("shop", "nics", "11-22", (DEVICE,))


class Sent:
    """The statuses that were sent, by the numbers in their data; `before` is called before each."""

    def __init__(self, before: Callable[[int], None] = lambda _number: None) -> None:
        self.numbers: list[int] = []
        self._before = before

    def __call__(self, claim: HeldClaim, device: HeldDevice, status: DeviceStatus) -> None:
        assert (claim, device) == (CLAIM, DEVICE)
        number = int(status.data["number"])
        self._before(number)
        self.numbers.append(number)


def reporting(reports: Reports, *numbers: int) -> None:
    for each in numbers:
        reports.add(CLAIM, DEVICE, DeviceStatus(data={"number": each}))


def test_reports_of_an_event_are_sent_after_its_answer_and_others_at_once() -> None:
    sent = Sent()
    reports = Reports(sent)
    response = reports.after_answer(partial(reporting, reports, 1, 2), pb.Empty)
    assert (response.message, sent.numbers) == (pb.Empty(), [])
    assert not reports.wait(0.0)
    response.sent(True)
    assert sent.numbers == [1, 2]
    reporting(reports, 3)
    assert sent.numbers == [1, 2, 3]
    assert reports.wait(0.0)


def test_reports_are_sent_after_a_late_answer_and_the_handler_learns_it() -> None:
    sent, told = Sent(), list[bool]()
    reports = Reports(sent)

    def handle() -> EventResponse:
        reporting(reports, 1)
        return EventResponse(pb.CreateContainerResponse(), told.append)

    reports.after_answer(handle, pb.Empty).sent(False)
    assert (told, sent.numbers) == ([False], [1])


def test_reports_before_an_exception_are_sent() -> None:
    sent = Sent()
    reports = Reports(sent)

    def fail() -> None:
        reporting(reports, 1)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        reports.after_answer(fail, pb.Empty)
    assert sent.numbers == [1]


def test_reports_of_two_events_are_sent_in_their_order() -> None:
    """While one thread sends the report of the start, another event reports; it waits for nobody."""
    began, go_on = ThreadEvent(), ThreadEvent()

    def wait_for_test(number: int) -> None:
        if number == 1:
            began.set()
            assert go_on.wait(LONG)

    sent = Sent(wait_for_test)
    reports = Reports(sent)
    first = reports.after_answer(partial(reporting, reports, 1), pb.Empty)
    thread = Thread(target=first.sent, args=(True,))
    thread.start()
    assert began.wait(LONG)
    reports.after_answer(partial(reporting, reports, 2), pb.Empty).sent(True)
    assert sent.numbers == []
    go_on.set()
    assert reports.wait(LONG)
    thread.join(LONG)
    assert sent.numbers == [1, 2]


def test_a_report_that_cannot_be_sent_keeps_no_other_back() -> None:
    def refuse_first(number: int) -> None:
        if number == 1:
            raise OSError("disk full")

    sent = Sent(refuse_first)
    reports = Reports(sent)
    response = reports.after_answer(partial(reporting, reports, 1, 2), pb.Empty)
    with pytest.raises(OSError, match="disk full"):
        response.sent(True)
    reporting(reports, 3)
    assert sent.numbers == [2, 3]
