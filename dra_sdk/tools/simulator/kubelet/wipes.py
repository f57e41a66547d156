"""Deletes the node's ResourceSlices: of all drivers at the start, and of one driver 30 s after its loss.

Source: Kubernetes 1.36 pkg/kubelet/cm/dra/plugin/dra_plugin_manager.go (wipeResourceSlices).
"""

from __future__ import annotations

import threading
import time

from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.statuses import StatusError

ALL_DRIVERS = ""


class SliceWiper:
    """Deletes ResourceSlices in the background; each wipe is repeated until it succeeds or the driver is back."""

    def __init__(self, api: LocalClient, node: str, timing: KubeletTiming) -> None:
        self._api = api
        self._node = node
        self._timing = timing
        self._changed = threading.Condition()
        self._due: dict[str, float] = {}
        self._failures: dict[str, int] = {}
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="kubelet-wiper")

    def start(self) -> None:
        """Delete the slices of all drivers, none of which has registered yet."""
        self._attempt(ALL_DRIVERS)
        self._thread.start()

    def stop(self) -> None:
        """Drop pending wipes."""
        with self._changed:
            self._stopped = True
            self._changed.notify()
        self._thread.join()

    def schedule(self, driver: str) -> None:
        """Wipe after the delay; a wipe that is pending stays as it is."""
        with self._changed:
            self._due.setdefault(driver, time.monotonic() + self._timing.wipe_delay)
            self._changed.notify()

    def cancel(self, driver: str) -> None:
        """Drop the pending wipe of a driver that is back."""
        with self._changed:
            self._due.pop(driver, None)

    @property
    def pending(self) -> set[str]:
        """The drivers whose slices will be deleted."""
        with self._changed:
            return set(self._due)

    def _run(self) -> None:
        while (driver := self._next()) is not None:
            self._attempt(driver)

    def _next(self) -> str | None:
        with self._changed:
            while not self._stopped:
                now = time.monotonic()
                driver = min(self._due, key=self._due.__getitem__, default=None)
                if driver is not None and self._due[driver] <= now:
                    del self._due[driver]
                    return driver
                self._changed.wait(self._due[driver] - now if driver is not None else None)
        return None

    def _attempt(self, driver: str) -> None:
        fields = f"spec.nodeName={self._node}" + (f",spec.driver={driver}" if driver else "")
        try:
            self._api.delete_collection("resourceslices", fields=fields)
            self._failures.pop(driver, None)
        except StatusError:
            failures = self._failures[driver] = self._failures.get(driver, 0) + 1
            pause = min(self._timing.wipe_retry * 2 ** (failures - 1), self._timing.wipe_retry_last)
            with self._changed:
                self._due[driver] = time.monotonic() + pause
