"""What the kubelet asked of drivers and what it made of the answers, for assertions."""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

REMEMBERED = 100_000

GET_INFO = "get_info"
NOTIFY = "notify"
PREPARE = "prepare"
UNPREPARE = "unprepare"
HEALTH = "health"


@dataclass(frozen=True)
class ClaimRef:
    """A claim as it goes over the wire."""

    namespace: str
    name: str
    uid: str

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}"


@dataclass(frozen=True)
class PreparedDevice:
    """A device as the driver answered it."""

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None

    def serves(self, request: str) -> bool:
        """Whether a container that asks for `request` gets this device; "" asks for the whole claim."""
        return not request or not self.requests or request in self.requests


@dataclass(frozen=True)
class Call:
    """One call to a driver.

    `kind` is get_info, notify, prepare, unprepare or health (one per stream). `driver` is "" while it is not known yet.
    `started` is by `time.monotonic()`. `error` is "" for success. `devices` are what a prepare answered, by claim UID.
    `registered` is what a notify told the driver.
    """

    kind: str
    driver: str
    socket: str
    started: float
    seconds: float
    error: str = ""
    claims: tuple[ClaimRef, ...] = ()
    devices: dict[str, tuple[PreparedDevice, ...]] = field(default_factory=dict)
    registered: bool | None = None


@dataclass(frozen=True)
class Finding:
    """Something in an answer that the kubelet lets pass but that leaves a container without what it should get.

    Rules: base-request (a request named with its subrequest), known-request, allocated-device, share-id, cdi-name.
    """

    rule: str
    driver: str
    claim: str
    why: str


class Records:
    """A thread-safe journal of calls and findings, that can be waited on."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: deque[Call] = deque(maxlen=REMEMBERED)
        self._findings: list[Finding] = []

    def add(self, call: Call) -> None:
        """Adds a call that has ended."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def find(self, finding: Finding) -> None:
        """Adds a finding, once."""
        with self._changed:
            if finding not in self._findings:
                self._findings.append(finding)

    def calls(self, kind: str = "", driver: str = "") -> list[Call]:
        """The calls so far, oldest first, of this kind and driver ("" for any)."""
        with self._changed:
            return [call for call in self._calls if kind in {"", call.kind} and driver in {"", call.driver}]

    @property
    def findings(self) -> list[Finding]:
        """The findings so far."""
        with self._changed:
            return list(self._findings)

    def wait(self, predicate: Callable[[list[Call]], bool], timeout: float) -> bool:
        """Waits until the list of calls satisfies `predicate`; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(list(self._calls)), timeout)
