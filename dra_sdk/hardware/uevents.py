"""Watching for changes by the kernel's uevents: quick where they arrive, and sure where they do not.

    def dra_watch(self, node, changed, stop):
        uevents.watch(lambda: sorted(node.sys.glob("class/net/*")), changed, stop, {"net"})

A uevent only says that it is worth looking: when no further one has come for a while, a snapshot is taken and compared
with the one before. A snapshot is taken every few seconds too, so a change without an event is noticed later.

Which events arrive: the kernel sends them to every network namespace that belongs to the initial user namespace, so a
pod needs no `hostNetwork` for them. A pod in a user namespace of its own (`hostUsers: false`) gets none. Events of a
network interface go only to the network namespace of the interface, so for those of the host a pod needs `hostNetwork`.
What udev sends after its rules have run is not read.

Source: lib/kobject_uevent.c and Documentation/ABI/testing/sysfs-uevent of the kernel; netlink(7).
"""

from __future__ import annotations

import errno
import logging
import socket
from collections.abc import Callable, Collection, Hashable, Mapping
from contextlib import closing
from dataclasses import dataclass
from threading import Event
from time import monotonic
from typing import Final, Protocol

from dra_sdk.hardware import polling

log = logging.getLogger(__name__)
_NETLINK_KOBJECT_UEVENT: Final = 15
_FROM_THE_KERNEL: Final = 1  # the multicast group
_LARGEST: Final = 1 << 16  # bytes of one message; the kernel's buffer has 2048
_BUFFER: Final = 1 << 20
_STOP_SECONDS: Final = 0.25  # the longest wait without a check whether to stop
_QUIET_TIMES: Final = 10  # an endless series of events ends so many times later than a short one


@dataclass(frozen=True, slots=True)
class Uevent:
    """One event of the kernel.

    action: `add`, `remove`, `change`, `move`, `online`, `offline`, `bind` or `unbind`.
    devpath: the path of the device below /sys.
    subsystem: its subsystem, such as `pci`, `net`, `cpu` or `drm`. Empty if it has none.
    properties: all its properties, such as `DRIVER` and `PCI_SLOT_NAME`.
    """

    action: str
    devpath: str
    subsystem: str
    properties: Mapping[str, str]


def parse_uevent(message: bytes) -> Uevent | None:
    """Read a message of the kernel, `action@devpath` and lines `NAME=value`; None for anything else, as from udev."""
    head, *lines = message.rstrip(b"\0").decode("utf-8", errors="replace").split("\0")
    action, at, devpath = head.partition("@")
    if not (action and at and devpath.startswith("/")):
        return None
    properties = {name: value for name, _, value in (line.partition("=") for line in lines)}
    return Uevent(action, devpath, properties.get("SUBSYSTEM", ""), properties)


class UeventSource(Protocol):
    """Where uevents come from: `KernelUevents`, or `dra_sdk.testing.uevents.FakeUevents`."""

    def receive(self, seconds: float) -> bytes | None:
        """Return the next message, None if there is none within some seconds. Empty: messages were lost."""

    def close(self) -> None:
        """End receiving."""


class KernelUevents:
    """The kernel's uevents, from a netlink socket, which needs no privilege. OSError if there is none here."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_DGRAM, _NETLINK_KOBJECT_UEVENT)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER)
            self._socket.bind((0, _FROM_THE_KERNEL))
        except OSError:
            self._socket.close()
            raise

    @property
    def address(self) -> int:
        """The netlink port of the socket."""
        port: int = self._socket.getsockname()[0]
        return port

    def receive(self, seconds: float) -> bytes | None:
        """As `UeventSource.receive`. A message that another process has sent is not taken."""
        self._socket.settimeout(max(seconds, 0.001))
        try:
            message, (sender, _groups) = self._socket.recvfrom(_LARGEST)
        except TimeoutError:
            return None
        except OSError as error:
            if error.errno == errno.ENOBUFS:
                return b""
            raise
        return message if sender == 0 else None

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def watch(
    snapshot: Callable[[], Hashable],
    changed: Callable[[], None],
    stop: Event,
    subsystems: Collection[str],
    *,
    seconds: float = 10.0,
    quiet: float = 0.5,
    source: Callable[[], UeventSource] = KernelUevents,
) -> None:
    """Call `changed` as `polling.watch` does: at the beginning, and when a snapshot differs from the one before.

    A snapshot is taken when events of these subsystems have come and then none for `quiet` seconds, and every `seconds`
    in any case. If no events can be received, it is only taken every `seconds`; that is logged. Errors of `snapshot`
    are handled as by `polling.watch`.
    """
    try:
        events = source()
    except OSError as error:
        log.warning("uevents cannot be received, so hardware is read every %g s: %s", seconds, error)
        polling.watch(snapshot, changed, stop, seconds)
        return
    with closing(events):
        waiting = _Waiting(events, frozenset(subsystems), quiet, stop)
        polling.watch(snapshot, changed, stop, seconds, pause=waiting.pause)


@dataclass(frozen=True, slots=True)
class _Waiting:
    """Waits for events of some subsystems, and until no further one comes."""

    events: UeventSource
    subsystems: frozenset[str]
    quiet: float
    stop: Event

    def pause(self, seconds: float) -> None:
        """Wait until events have come and ended, at most some seconds unless they are just coming."""
        if self._comes_before(monotonic() + seconds):
            last = monotonic() + _QUIET_TIMES * self.quiet
            while self._comes_before(min(monotonic() + self.quiet, last)):
                pass

    def _comes_before(self, end: float) -> bool:
        while not self.stop.is_set() and (left := end - monotonic()) > 0:
            message = self.events.receive(min(left, _STOP_SECONDS))
            if message is not None and self._concerns(message):
                return True
        return False

    def _concerns(self, message: bytes) -> bool:
        event = parse_uevent(message)
        return not message or (event is not None and event.subsystem in self.subsystems)
