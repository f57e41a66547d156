"""Events of Kubernetes about what the kubelet does not report: on the node, and on the pods whose devices fail.

The kubelet has events for calls that fail. It has none for a device that becomes unhealthy under a pod, for devices
that are not found or not published, for a state file that is damaged, and for what a claim that has ended left on the
node. A thread of its own writes them, so no call
waits and no failure here fails anything else. What happens again is counted in the same Event (its `series`), and at
most `BURST` Events are written at once, then one each `REFILL_SECONDS`; the rest is dropped, as the log has it.

Source: events.k8s.io/v1 Event; KEP-383.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from queue import Full, Queue
from secrets import token_hex
from threading import Thread
from time import monotonic
from typing import Final, Literal, Protocol

from dra_sdk.errors import ApiError, DraError, NotFoundError, one_line
from dra_sdk.kube import paths
from dra_sdk.kube.api import Params
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, HeldClaim
from dra_sdk.model.status import HealthStatus
from dra_sdk.model.undo import UndoStep, Verdict
from dra_sdk.node.health.feed import HealthChange
from dra_sdk.node.prepare.claim_users import scheduling_group

log = logging.getLogger(__name__)
BURST: Final = 25
REFILL_SECONDS: Final = 30.0
SERIES_SECONDS: Final = 60.0
"""Between two counts of the same Event: what happens again in between is added to the next count."""
KEPT: Final = 256
"""Events whose repetitions are counted; of older ones a new Event begins."""
WAITING: Final = 256
"""Events that wait for the thread."""
NOTE_LIMIT: Final = 1024  # bytes (events.k8s.io/v1)
_NAME_LIMIT: Final = 128  # bytes of reportingInstance; also what an event's name has of the object's
_FORBIDDEN: Final = 403
_GROUPS: Final = "scheduling.k8s.io/v1beta1"
Type = Literal["Normal", "Warning"]
Reason = Literal[
    "DeviceFieldsDropped",
    "DeviceHealthChanged",
    "DeviceUnhealthy",
    "DevicesNotDiscovered",
    "DevicesNotPublished",
    "DriverWarning",
    "ForeignSlice",
    "StateFileUnreadable",
    "TooManyStateFiles",
    "UndoStepRefused",
]
"""The reasons, for which operators have alerts: none is renamed."""


class EventApi(Protocol):
    """What the writer needs of an API client."""

    def get(self, path: str) -> JSON:
        """Read an object."""

    def list(self, path: str, params: Params | None = None) -> JSON:
        """Read a collection."""

    def create(self, path: str, body: JSON) -> JSON:
        """Create an object."""

    def patch(self, path: str, body: JSON) -> JSON:
        """JSON merge patch."""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """One thing that happened.

    reason: which kind of thing.
    note: a sentence for people.
    type: Warning, or Normal for good news.
    claim: the claim whose pods get it; None for the node.
    """

    reason: Reason
    note: str
    type: Type = "Warning"
    claim: ClaimRef | None = None


@dataclass(slots=True)
class _Written:
    """An Event that was written: its path, how often that happened, and when it was written last."""

    path: str
    count: int
    at: float


class EventWriter:
    """Writes Events in the background. Safe for threads.

    driver: the driver's name, which is the reporting controller.
    node: the name of its node.
    connect: returns the API client.
    clock: the monotonic clock, in seconds.
    """

    def __init__(
        self, driver: str, node: str, connect: Callable[[], EventApi], *, clock: Callable[[], float] = monotonic
    ) -> None:
        self._driver, self._node, self._connect, self._clock = driver, node, connect, clock
        self._waiting: Queue[NodeEvent | None] = Queue(WAITING)
        self._stopped = False
        self._written: OrderedDict[tuple[str, str, str], _Written] = OrderedDict()
        self._left, self._refilled = float(BURST), clock()
        self._dropped = 0
        self._thread = Thread(target=self._run, name="events", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; what waits is not written."""
        self._stopped = True
        with suppress(Full):  # then the thread does not wait
            self._waiting.put_nowait(None)
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def put(self, event: NodeEvent) -> None:
        """Write an Event soon. Never blocks; if too many wait, this one is dropped."""
        with suppress(Full):
            self._waiting.put_nowait(event)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None and not self._stopped:
            try:
                self._write(event)
            except DraError as error:  # of the API server; no connection, no credentials
                if isinstance(error, ApiError) and error.status == _FORBIDDEN and not error.temporary:
                    log.error("no events until the next start: the role needs create and patch of events: %s", error)
                    return
                log.info("event %s is not written: %s", event.reason, error)

    def _write(self, event: NodeEvent) -> None:
        api = self._connect()
        for regarding in self._objects(api, event.claim):
            key = (regarding["uid"], event.reason, event.note)
            known = self._written.get(key)
            if known is None or not self._again(api, known):
                self._create(api, key, regarding, event)

    def _objects(self, api: EventApi, claim: ClaimRef | None) -> Sequence[Mapping[str, str]]:
        """Return the node, or the pods that use a claim now; none if the claim was deleted."""
        if claim is None:  # its UID is its name, as in the kubelet's own events
            return [{"apiVersion": "v1", "kind": "Node", "name": self._node, "uid": self._node}]
        try:
            stored = api.get(paths.resource_claim(claim.namespace, claim.name))
        except NotFoundError:
            return []
        users = (stored.get("status") or {}).get("reservedFor") or () if stored["metadata"]["uid"] == claim.uid else ()
        groups = [user for user in users if user.get("resource") == "podgroups"]
        pods = [_regarding("v1", "Pod", claim, user) for user in users if user.get("resource") == "pods"]
        return [*pods, *(self._of_groups(api, claim, groups) if groups else ())]

    def _of_groups(self, api: EventApi, claim: ClaimRef, groups: Sequence[JSON]) -> list[Mapping[str, str]]:
        """Return the pods of PodGroups that use a claim on this node; the groups if the role may not list pods."""
        names = {group["name"] for group in groups}
        try:
            listed = api.list(paths.pods(claim.namespace), {"fieldSelector": f"spec.nodeName={self._node}"})
        except ApiError as error:
            if error.status != _FORBIDDEN:
                raise
            return [_regarding(_GROUPS, "PodGroup", claim, group) for group in groups]
        return [
            _regarding("v1", "Pod", claim, pod["metadata"])
            for pod in listed["items"]
            if scheduling_group(pod) in names and claim.name in _claims(pod)
        ]

    def _again(self, api: EventApi, known: _Written) -> bool:
        """Count one more; False if the Event was deleted, as Events are after an hour."""
        known.count += 1
        now = self._clock()
        if now - known.at < SERIES_SECONDS or not self._allowed(now):
            return True
        known.at = now
        try:
            api.patch(known.path, {"series": {"count": known.count, "lastObservedTime": _now()}})
        except NotFoundError:
            return False
        return True

    def _create(self, api: EventApi, key: tuple[str, str, str], regarding: Mapping[str, str], event: NodeEvent) -> None:
        now = self._clock()
        if not self._allowed(now):
            return
        namespace = regarding.get("namespace", "default")  # where events of objects without a namespace belong
        name = f"{regarding['name'][:_NAME_LIMIT].rstrip('.-')}.{token_hex(8)}"
        api.create(
            paths.events(namespace),
            {
                "apiVersion": paths.EVENTS_VERSION,
                "kind": "Event",
                "metadata": {"name": name, "namespace": namespace},
                "eventTime": _now(),
                "reportingController": self._driver,
                "reportingInstance": self._node[:_NAME_LIMIT],
                "action": event.reason,
                "reason": event.reason,
                "type": event.type,
                "regarding": dict(regarding),
                "note": one_line(event.note, NOTE_LIMIT).encode()[:NOTE_LIMIT].decode(errors="ignore"),
            },
        )
        self._written[key] = _Written(paths.event(namespace, name), 1, now)
        self._written.move_to_end(key)
        while len(self._written) > KEPT:
            self._written.popitem(last=False)

    def _allowed(self, now: float) -> bool:
        """Return whether one more request may be made now; what is dropped is logged when there is room again."""
        self._left = min(float(BURST), self._left + (now - self._refilled) / REFILL_SECONDS)
        self._refilled = now
        if self._left < 1:
            self._dropped += 1
            return False
        self._left -= 1
        if self._dropped:
            log.warning("%d events were not written: there were too many", self._dropped)
            self._dropped = 0
        return True


def health_events(driver: str, changes: Iterable[HealthChange], held: Sequence[HeldClaim]) -> Iterator[NodeEvent]:
    """Yield an event for each claim that holds a device which became unhealthy, or healthy again."""
    for change in changes:
        if HealthStatus.UNHEALTHY not in {change.old, change.new}:
            continue
        failed = change.new is HealthStatus.UNHEALTHY
        said = f": {change.message}" if change.message else ""
        note = f"device {change.pool}/{change.device} of driver {driver} is {change.new.name.lower()}{said}"
        for claim in held:
            if any((device.pool, device.name) == (change.pool, change.device) for device in claim.devices):
                ref = ClaimRef(claim.namespace, claim.name, claim.uid)
                reason: Reason = "DeviceUnhealthy" if failed else "DeviceHealthChanged"
                yield NodeEvent(reason, note, "Warning" if failed else "Normal", ref)


def undo_events(driver: str, claim: ClaimRef, steps: Iterable[UndoStep]) -> Iterator[NodeEvent]:
    """Yield an event on the node for each step that was refused and does not hold the claim: its pods have ended."""
    for step in steps:
        if step.verdict in {Verdict.HARMLESS, Verdict.SKIPPED}:
            said = "skipped" if step.verdict is Verdict.SKIPPED else "refused, which does no harm to the next claim"
            yield NodeEvent("UndoStepRefused", f"driver {driver}: {claim}: a step of its undo was {said}: {step}")


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def _regarding(version: str, kind: str, claim: ClaimRef, item: JSON) -> Mapping[str, str]:
    """Return the reference to an object in the namespace of a claim."""
    return {
        "apiVersion": version,
        "kind": kind,
        "namespace": claim.namespace,
        "name": item["name"],
        "uid": item["uid"],
    }


def _claims(pod: JSON) -> set[str]:
    """Return the names of the claims of a pod, those from templates included."""
    entries = pod["spec"].get("resourceClaims") or []
    generated = (pod.get("status") or {}).get("resourceClaimStatuses") or []
    return {entry["resourceClaimName"] for entry in [*entries, *generated] if entry.get("resourceClaimName")}
