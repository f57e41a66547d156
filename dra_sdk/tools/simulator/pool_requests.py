"""The controller that answers ResourcePoolStatusRequests on the embedded API server.

It answers as that of kube-controller-manager: each request once; later when slices of a pool are missing, and not at
all if they stay away. Answered requests are not removed after an hour. Source: the controller
resourcepoolstatusrequest of Kubernetes 1.36 and 1.37.
"""

from __future__ import annotations

from contextlib import suppress
from threading import Event, Thread
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.tools.simulator import metadata
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.statuses import StatusError
from dra_sdk.tools.simulator.watch_cache import Watcher
from dra_sdk.tools.usage.pool_status import PoolObjects, is_incomplete, pool_status
from dra_sdk.wire.profile import ServerProfile

REQUESTS: Final = "resourcepoolstatusrequests"
RETRIES: Final = 5
FIRST_DELAY: Final = 0.005
"""Seconds before the first repetition; each further one takes twice as long."""
_READ: Final = ("resourceslices", "resourceclaims", "devicetaintrules")  # in the order of PoolObjects


class PoolRequests:
    """Answers requests from `start` to `stop`."""

    def __init__(self, api: LocalClient, profile: ServerProfile) -> None:
        self._api, self._profile = api, profile
        self._served = {resource.plural for resource in api.store.catalog}
        self._watch: Watcher | None = None
        self._thread: Thread | None = None
        self._stopped = Event()

    def start(self) -> None:
        """Begin, if the server has such requests."""
        if REQUESTS in self._served:
            self._stopped.clear()
            self._watch = self._api.watch(REQUESTS)
            self._thread = Thread(target=self._run, args=(self._watch,), name="resourcepoolstatusrequest-controller")
            self._thread.start()

    def stop(self) -> None:
        """End, and wait for the thread."""
        if self._watch is not None and self._thread is not None:
            self._stopped.set()
            self._api.close(self._watch)
            self._thread.join()
        self._watch = self._thread = None

    def _run(self, watch: Watcher) -> None:
        for event in watch:
            if event.type in {"ADDED", "MODIFIED"} and "status" not in event.object:
                self._answer(event.object)

    def _answer(self, request: JSON) -> None:
        """Write the answer; nothing if the request is gone or answered, or if slices stay away."""
        for attempt in range(RETRIES + 1):
            status = pool_status(request["spec"], self._objects(), self._profile, metadata.now())
            if not is_incomplete(status):
                with suppress(StatusError):  # it was deleted
                    self._api.update_status(REQUESTS, {**request, "status": status})
                return
            self._stopped.wait(FIRST_DELAY * 2**attempt)

    def _objects(self) -> PoolObjects:
        lists = [self._api.list(plural) if plural in self._served else [] for plural in _READ]
        return PoolObjects(*lists)
