"""Uevents: how a message is read, when they make a watch look, and what happens where none can be received."""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from threading import Event, Thread
from typing import Any

import pytest

from dra_sdk.hardware import uevents
from dra_sdk.hardware.uevents import KernelUevents, parse_uevent, watch
from dra_sdk.testing.uevents import FakeUevents
from dra_sdk.testing.waiting import LONG, wait

VETH = (
    b"add@/devices/virtual/net/v1\0ACTION=add\0DEVPATH=/devices/virtual/net/v1\0SUBSYSTEM=net\0INTERFACE=v1\0"
    b"IFINDEX=2\0SEQNUM=15433\0"
)
FORGED = VETH.replace(b"v1", b"forged")


def test_a_message_of_the_kernel_is_read() -> None:
    event = parse_uevent(VETH)
    assert event is not None
    assert (event.action, event.devpath, event.subsystem) == ("add", "/devices/virtual/net/v1", "net")
    assert event.properties["INTERFACE"] == "v1"


@pytest.mark.parametrize(
    "message",
    [b"", b"\0", b"libudev\0\xfe\xed\xca\xfe\0", b"add", b"@/devices/x", b"add@devices/x", b"\xff\xff", b"a=b\0c=d\0"],
)
def test_what_is_no_message_of_the_kernel_is_nothing(message: bytes) -> None:
    assert parse_uevent(message) is None


def test_odd_lines_do_no_harm() -> None:
    event = parse_uevent(b"change@/devices/x\0nonsense\0A=b=c\0=d\0\xff=e\0")
    assert event is not None
    assert (event.subsystem, event.properties["A"], event.properties["nonsense"]) == ("", "b=c", "")


# -- watching


class Watched:
    """A watch in a thread: what it looks at, how often it has looked, and how often it has called `changed`."""

    def __init__(self, **options: Any) -> None:
        self.state, self.looks, self.reports = "a", 0, 0
        self.uevents = FakeUevents()
        self.stop = Event()
        arguments = {"seconds": LONG, "quiet": 0.01, "source": self.uevents.open, **options}
        self.thread = Thread(target=watch, args=(self.look, self.changed, self.stop, {"cpu"}), kwargs=arguments)

    def look(self) -> str:
        self.looks += 1
        return self.state

    def changed(self) -> None:
        self.reports += 1


@pytest.fixture
def start() -> Iterator[Callable[..., Watched]]:
    running: list[Watched] = []

    def begin(**options: Any) -> Watched:
        made = Watched(**options)
        running.append(made)
        made.thread.start()
        wait(lambda: made.reports >= 1)
        made.uevents.send("change", "/devices/system/cpu/cpu0", "cpu")
        wait(lambda: made.reports >= 2)  # once more after the beginning
        return made

    yield begin
    for watching in running:
        watching.stop.set()
        watching.thread.join(LONG)
        assert not watching.thread.is_alive()
        assert watching.uevents.closed == watching.uevents.opened


def test_an_event_of_the_subsystem_makes_it_look(start: Callable[..., Watched]) -> None:
    watched = start()
    watched.state = "b"
    watched.uevents.send("offline", "/devices/system/cpu/cpu7", "cpu")
    wait(lambda: watched.reports >= 3)


def test_events_without_a_difference_or_of_another_subsystem_are_no_change(
    start: Callable[..., Watched],
) -> None:
    watched = start()
    watched.uevents.send("change", "/devices/virtual/mem/full", "mem")
    watched.uevents.send("offline", "/devices/system/cpu/cpu7", "cpu")
    wait(lambda: watched.looks == 3)
    watched.uevents.send("offline", "/devices/system/cpu/cpu7", "cpu")
    wait(lambda: watched.looks == 4)
    assert watched.reports == 2


class ScheduledUevents:
    """Events of CPUs at given times of a clock of their own, on which waiting takes no time; then it stops the watch.

    at: the times in seconds.
    end: when the watch stops.
    now: the time.
    stop: the event that ends `watch`.
    """

    def __init__(self, at: Sequence[float], end: float) -> None:
        self.at, self.end = sorted(at), end
        self.now, self.stop = 0.0, Event()

    def receive(self, seconds: float) -> bytes | None:
        if self.at and self.at[0] <= self.now + seconds:
            self.now = self.at.pop(0)
            return b"change@/devices/system/cpu/cpu0\0SUBSYSTEM=cpu\0"
        self.now += seconds
        if self.now >= self.end:
            self.stop.set()
        return None

    def close(self) -> None:
        """As `UeventSource.close`; there is nothing to close."""


@pytest.mark.parametrize(
    ("at", "looks"),
    [
        ([], []),
        ([2.0], [2.5]),
        ([2.0, 2.25, 2.5, 2.75], [3.25]),
        ([2.0, 2.75], [2.5, 3.25]),
        ([2.0 + 0.25 * n for n in range(25)], [7.0, 8.5]),  # the first 5 s of it, then the rest
    ],
)
def test_a_series_of_events_is_looked_at_once(
    monkeypatch: pytest.MonkeyPatch, at: list[float], looks: list[float]
) -> None:
    source = ScheduledUevents(at, 20.0)
    looked: list[float] = []

    def look() -> str:
        looked.append(source.now)
        return "a"

    monkeypatch.setattr(uevents, "monotonic", lambda: source.now)
    watch(look, lambda: None, source.stop, {"cpu"}, seconds=100.0, quiet=0.5, source=lambda: source)
    assert looked == [0.0, *looks]


def test_an_endless_series_of_events_does_not_keep_it_from_looking(start: Callable[..., Watched]) -> None:
    watched = start(quiet=0.02)
    watched.state = "b"

    def sent_again() -> bool:
        watched.uevents.send("change", "/devices/system/cpu/cpu0", "cpu")
        return watched.reports >= 3

    wait(sent_again)


def test_events_that_were_lost_make_it_look(start: Callable[..., Watched]) -> None:
    watched = start()
    watched.state = "b"
    watched.uevents.overflow()
    wait(lambda: watched.reports >= 3)


def test_a_change_without_event_is_noticed_later(start: Callable[..., Watched]) -> None:
    watched = start(seconds=0.02)
    watched.state = "b"
    wait(lambda: watched.reports >= 3)


def test_where_no_events_can_be_received_it_polls_and_says_so(
    start: Callable[..., Watched], caplog: pytest.LogCaptureFixture
) -> None:
    none = FakeUevents(OSError(errno.EAFNOSUPPORT, "Address family not supported by protocol"))
    with caplog.at_level(logging.WARNING):
        watched = start(seconds=0.02, source=none.open)
        watched.state = "b"
        wait(lambda: watched.reports >= 3)
    assert "uevents cannot be received, so hardware is read every 0.02 s: [Errno" in caplog.text


# -- the kernel's


def test_the_kernels_socket_takes_nothing_from_other_processes() -> None:
    """Any process may send to the socket, as here; what the kernel sends at the same time does no harm."""
    source = KernelUevents()
    try:
        with socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, 15) as other:
            try:
                other.sendto(FORGED, (source.address, 0))
            except PermissionError:
                pytest.skip("this kernel lets no process send to another's socket")
        received = [source.receive(0.01) for _ in range(10)]
    finally:
        source.close()
    assert FORGED not in received


def test_a_source_that_is_closed_receives_nothing() -> None:
    source = KernelUevents()
    source.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        source.receive(0.01)
