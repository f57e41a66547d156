"""Writing `status.devices` of claims behind the kubelet's back: prepare never waits for it.

One thread, latest entry per claim wins, failures are retried with back-off. A refusal is final for that claim and
logged once with the permission that is missing; the claim works without its status.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition, Thread
from time import monotonic
from typing import Any

from dra_sdk.errors import ApiError, ConflictError, InvalidError, NotFoundError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.wire.device_status import status_apply
from dra_sdk.wire.dra import ClaimRef

log = logging.getLogger(__name__)
FORBIDDEN = 403
REPLACED = ("metadata.uid", "UID in precondition")  # how the server says that the claim of this name is another one
FIRST_DELAY = 0.5
LAST_DELAY = 60.0
Entries = Sequence[dict[str, Any]]


class StatusWriter:
    """Applies what was last `put` for each claim, with the driver's name as field manager."""

    def __init__(self, driver: str, connect: Callable[[], KubeClient]) -> None:
        self._driver = driver
        self._connect = connect
        self._changed = Condition()
        self._waiting: dict[ClaimRef, Entries] = {}
        self._stopped = False
        self._thread = Thread(target=self._run, name="status")

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the thread; what is still waiting is put again when its claim is prepared again."""
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)

    def put(self, ref: ClaimRef, entries: Entries) -> None:
        """Make `entries` our part of the claim's `status.devices`, soon; an empty list takes our part away."""
        with self._changed:
            self._waiting[ref] = entries
            self._changed.notify_all()

    def _run(self) -> None:
        delay = FIRST_DELAY
        while (found := self._next()) is not None:
            ref, entries = found
            try:
                self._apply(ref, entries)
                delay = FIRST_DELAY
            except Exception as error:  # noqa: BLE001 (no connection, no credentials, a busy server: all may pass)
                log.warning("%s: status.devices not written yet: %s", ref, error)
                with self._changed:
                    self._waiting.setdefault(ref, entries)  # unless something newer was put meanwhile
                self._pause(delay)
                delay = min(2 * delay, LAST_DELAY)

    def _next(self) -> tuple[ClaimRef, Entries] | None:
        with self._changed:
            self._changed.wait_for(lambda: self._waiting or self._stopped)
            if self._stopped:
                return None
            ref = next(iter(self._waiting))
            return ref, self._waiting.pop(ref)

    def _apply(self, ref: ClaimRef, entries: Entries) -> None:
        path = paths.resource_claim_status(ref.namespace, ref.name)
        try:
            self._connect().apply(path, status_apply(ref, entries), field_manager=self._driver)
        except (NotFoundError, ConflictError, InvalidError) as error:
            if isinstance(error, NotFoundError) or any(each in str(error) for each in REPLACED):
                log.debug("%s is gone or replaced, its status is not wanted any more: %s", ref, error)
            elif isinstance(error, ConflictError):
                raise  # many write to the claim at the same time
            else:
                log.error("%s: status.devices refused: %s", ref, error)
        except ApiError as error:
            if error.status != FORBIDDEN or error.temporary:
                raise
            log.error(
                "%s: status.devices refused; the role needs resourceclaims/status and resourceclaims/driver: %s",
                ref,
                error,
            )

    def _pause(self, seconds: float) -> None:
        deadline = monotonic() + seconds
        with self._changed:
            while not self._stopped and (left := deadline - monotonic()) > 0:
                self._changed.wait(left)
