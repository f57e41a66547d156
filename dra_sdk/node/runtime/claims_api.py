"""What a driver reads and writes of ResourceClaims in the API server: the claim to prepare, and its `status.devices`.

The API client is made when it is first needed, because making it takes longer than registering with the kubelet.

Source of the status entries: resource.k8s.io/v1 AllocatedDeviceStatus; KEP-555 server-side apply: the list is a map by
driver, pool, device and shareID, so an apply with our field manager never touches another driver's entries.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition, Lock, Thread
from time import monotonic
from typing import Final

from dra_sdk.errors import ApiError, ClaimError, ConflictError, InvalidError, NotFoundError, UnreachableError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef, Deadline

log = logging.getLogger(__name__)
FETCH_SECONDS: Final = 10.0  # for reading a claim, with retries; the kubelet waits 45
SETTLE_SECONDS: Final = 1.0
"""How long a status waits for a newer one: what prepare tells is usually replaced when the pod's sandbox starts."""
FIRST_DELAY: Final = 0.5  # seconds before a failed write is repeated
LAST_DELAY: Final = 60.0  # seconds; the delay doubles up to this
_FORBIDDEN: Final = 403
_REPLACED: Final = ("metadata.uid", "UID in precondition")  # in the server's message if the claim has another UID
_REWRITTEN: Final = (
    ", because the claim's opaque parameters have spaces or keys that are not sorted, and the API server takes its own "
    "order for a change; kubectl writes them right"
)
Entries = Sequence[JSON]


class ApiConnection:
    """Shares one API client among the services of a process. Safe for threads."""

    def __init__(self, connect: Callable[[], KubeClient]) -> None:
        self._connect = connect
        self._lock = Lock()
        self._client: KubeClient | None = None
        self._closed = False

    def get(self) -> KubeClient:
        """Return the client. Raises the error of connecting; the next call tries again."""
        with self._lock:
            if self._client is None:
                if self._closed:
                    raise UnreachableError("the driver ends, so it connects to the API server no more")
                self._client = self._connect()
            return self._client

    def fetch(self, ref: ClaimRef, deadline: Deadline) -> JSON:
        """Read a ResourceClaim within FETCH_SECONDS and the deadline; ClaimError if `ref` cannot be a claim's."""
        try:
            path = paths.resource_claim(ref.namespace, ref.name)
        except ValueError as error:
            raise ClaimError(str(error)) from error
        return self.get().get(path, patience=max(0.001, min(FETCH_SECONDS, deadline.remaining())))

    def fetch_pod(self, namespace: str, name: str, deadline: Deadline) -> JSON:
        """Read a pod within FETCH_SECONDS and the deadline."""
        patience = max(0.001, min(FETCH_SECONDS, deadline.remaining()))
        return self.get().get(paths.pod(namespace, name), patience=patience)

    def close(self, _timeout: float = 0.0) -> None:
        """Close the client if there is one. Never waits for a thread that is connecting."""
        self._closed = True
        if self._client is not None:
            self._client.close()


class ClaimStatusWriter:
    """Writes `status.devices` of claims in the background; prepare does not wait for it.

    One thread writes the latest entries of each claim, a moment after the first of them; failures are retried with
    back-off. If the server refuses, that claim is given up and the missing permission is logged; the claim works
    without its status.

    driver: the driver's name, which is the field manager.
    connect: returns the API client.
    """

    def __init__(self, driver: str, connect: Callable[[], KubeClient]) -> None:
        self._driver = driver
        self._connect = connect
        self._changed = Condition()
        self._waiting: dict[ClaimRef, tuple[float, Entries]] = {}  # with the time from which they may be written
        self._stopped = False
        self._thread = Thread(target=self._run, name="status")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread. Entries that are not written yet are put again at the claim's next prepare."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def put(self, ref: ClaimRef, entries: Entries) -> None:
        """Write `entries` as our part of the claim's `status.devices` soon; an empty list removes our part."""
        with self._changed:
            since, _ = self._waiting.get(ref, (monotonic() + SETTLE_SECONDS, entries))
            self._waiting[ref] = since, entries
            self._changed.notify_all()

    def _run(self) -> None:
        delay = FIRST_DELAY
        while (ready := self._next()) is not None:
            ref, entries = ready
            try:
                self._apply(ref, entries)
                delay = FIRST_DELAY
            except Exception as error:  # noqa: BLE001 (no connection, no credentials, a busy server: all may pass)
                log.warning("%s: status.devices not written yet: %s", ref, error)
                with self._changed:
                    self._waiting.setdefault(ref, (monotonic(), entries))  # unless newer ones were put
                with self._changed:
                    self._changed.wait_for(lambda: self._stopped, delay)
                delay = min(2 * delay, LAST_DELAY)

    def _next(self) -> tuple[ClaimRef, Entries] | None:
        with self._changed:
            while not self._stopped:
                ref, (since, entries) = next(iter(self._waiting.items()), (None, (0.0, ())))
                left = since - monotonic()
                if ref is not None and left <= 0:
                    del self._waiting[ref]
                    return ref, entries
                self._changed.wait(None if ref is None else left)
            return None

    def _apply(self, ref: ClaimRef, entries: Entries) -> None:
        path = paths.resource_claim_status(ref.namespace, ref.name)
        try:
            self._connect().apply(path, status_apply(ref, entries), field_manager=self._driver)
        except (NotFoundError, ConflictError, InvalidError) as error:
            if isinstance(error, NotFoundError) or any(text in str(error) for text in _REPLACED):
                log.debug("%s was deleted or replaced, its status is not needed: %s", ref, error)
            elif isinstance(error, ConflictError):
                raise  # others write to the claim at the same time
            else:
                why = _REWRITTEN if "status.allocation" in str(error) else ""
                log.error("%s: status.devices refused%s: %s", ref, why, error)
        except ApiError as error:
            if error.status != _FORBIDDEN or error.temporary:
                raise
            log.error(
                "%s: status.devices refused; the role needs resourceclaims/status and resourceclaims/driver: %s",
                ref,
                error,
            )


def status_apply(ref: ClaimRef, entries: Entries) -> JSON:
    """Return the apply that replaces all our entries; the server refuses it if the claim has another UID."""
    return {
        "apiVersion": paths.API_VERSION,
        "kind": "ResourceClaim",
        "metadata": {"namespace": ref.namespace, "name": ref.name, "uid": ref.uid},
        "status": {"devices": list(entries)},
    }
