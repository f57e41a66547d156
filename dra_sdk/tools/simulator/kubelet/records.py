"""What the kubelet asked of drivers and what it found: calls, findings and errors, for tests to read.

```
KubeletError
├── RegistrationError     an attempt to register failed (recorded, and tried again)
├── NotRegisteredError    no instance of the driver is registered
├── DriverCallError       the gRPC call itself failed; `code` is its status
├── ResponseError         the answer breaks a rule or reports an error for a claim
├── PodClaimError         the pod may not use the claim; the driver was not called
├── CheckpointError       the kubelet's state file cannot be read
└── StoppedError          the kubelet is not running
```
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from dra_sdk.errors import DraError
from dra_sdk.model.claim import ClaimRef

RECORDED_CALLS = 100_000

GET_INFO = "get_info"
NOTIFY = "notify"
PREPARE = "prepare"
UNPREPARE = "unprepare"
HEALTH = "health"


def claim_name(claim: ClaimRef) -> str:
    """Return the claim as the kubelet names it: `namespace/name`."""
    return f"{claim.namespace}/{claim.name}"


@dataclass(frozen=True)
class AnsweredDevice:
    """A device of a prepare answer, as the driver sent it.

    It is a class of its own, because the emulator judges the SDK from outside and must also hold wrong answers.

    driver: the driver that answered.
    pool: the device's pool.
    device: the device's name.
    requests: the requests that the device belongs to; none means all.
    cdi_ids: qualified CDI device names.
    share_id: of a device that is allocated several times; v1 only.
    """

    driver: str
    pool: str
    device: str
    requests: tuple[str, ...] = ()
    cdi_ids: tuple[str, ...] = ()
    share_id: str | None = None

    def serves(self, request: str) -> bool:
        """Return whether a container with this request gets the device; "" is the whole claim."""
        return not request or not self.requests or request in self.requests


@dataclass(frozen=True)
class DriverCall:
    """One call to a driver.

    kind: get_info, notify, prepare, unprepare or health (one per stream).
    driver: the driver, "" if it is not known yet.
    socket: the path of the socket.
    started: by `time.monotonic()`.
    seconds: how long it took.
    error: "" for success.
    claims: the claims of a prepare or unprepare.
    devices: the devices of a prepare answer, by claim UID.
    registered: what a notify said to the driver.
    """

    kind: str
    driver: str
    socket: str
    started: float
    seconds: float
    error: str = ""
    claims: tuple[ClaimRef, ...] = ()
    devices: dict[str, tuple[AnsweredDevice, ...]] = field(default_factory=dict)
    registered: bool | None = None


@dataclass(frozen=True)
class AnswerFinding:
    """A mistake in an answer that the kubelet accepts, but that gives a container not what it should get.

    rule: base-request (a request named with its subrequest), known-request, allocated-device, share-id or cdi-name.
    driver: the driver that answered.
    claim: `namespace/name` of the claim.
    why: the device and what is wrong with it.
    """

    rule: str
    driver: str
    claim: str
    why: str


class CallRecords:
    """The calls and findings so far. Thread-safe."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._calls: deque[DriverCall] = deque(maxlen=RECORDED_CALLS)
        self._findings: list[AnswerFinding] = []

    def add_call(self, call: DriverCall) -> None:
        """Add a call that has ended."""
        with self._changed:
            self._calls.append(call)
            self._changed.notify_all()

    def add_finding(self, finding: AnswerFinding) -> None:
        """Add a finding, unless the same one is there."""
        with self._changed:
            if finding not in self._findings:
                self._findings.append(finding)

    def calls(self, kind: str = "", driver: str = "") -> list[DriverCall]:
        """Return the calls of this kind and driver ("" for any), oldest first."""
        with self._changed:
            return [call for call in self._calls if kind in {"", call.kind} and driver in {"", call.driver}]

    @property
    def findings(self) -> list[AnswerFinding]:
        """The findings."""
        with self._changed:
            return list(self._findings)

    def wait(self, predicate: Callable[[list[DriverCall]], bool], timeout: float) -> bool:
        """Wait until `predicate` is true for the list of calls; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(list(self._calls)), timeout)


class KubeletError(DraError):
    """Base of all. `rule` is a stable name of the broken rule; other attributes are "" if they do not apply."""

    def __init__(self, rule: str, why: str, *, driver: str = "", socket: str = "", claim: str = "") -> None:
        named = (("driver", driver), ("socket", socket), ("claim", claim))
        super().__init__(f"{why} [{', '.join([*(f'{what} {value}' for what, value in named if value), rule])}]")
        self.rule = rule
        self.why = why
        self.driver = driver
        self.socket = socket
        self.claim = claim


class RegistrationError(KubeletError):
    """An attempt to register failed. Rules: dial, get-info, plugin-type, supported-versions, endpoint-taken, notify."""


class NotRegisteredError(KubeletError):
    """No instance of the driver is registered. Rule: registered."""


class DriverCallError(KubeletError):
    """The call failed as a whole. Rule: call; `code` is the gRPC status, such as DEADLINE_EXCEEDED."""

    def __init__(self, why: str, *, code: str, driver: str, socket: str) -> None:
        super().__init__("call", why, driver=driver, socket=socket)
        self.code = code


class ResponseError(KubeletError):
    """The kubelet does not accept the answer. Rules: unknown-claim, missing-claim, claim-error."""


class PodClaimError(KubeletError):
    """The pod may not use the claim.

    Rules: claim-exists, claim-owner, claim-reserved, claim-allocated, claim-replaced.
    """


class CheckpointError(KubeletError):
    """The kubelet's state file is damaged. Rule: checkpoint."""


class StoppedError(KubeletError):
    """The kubelet is not running. Rule: running."""
