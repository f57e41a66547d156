"""The driver's connection to the container runtime (NRI): its settings, its metrics, and when it begins.

Loaded only for drivers with hooks about pods and containers. In a rolling update the new process waits until the old
one has ended its connection, because a runtime refuses what two plugins set in one container.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from pathlib import Path
from threading import Event
from typing import Final

from dra_sdk.loader import Driver
from dra_sdk.model.driver import Node
from dra_sdk.model.undo import AtOnce
from dra_sdk.node.nri.driver_plugin import DriverPlugin
from dra_sdk.node.nri.plugin import ConnectOptions, Launch, socket_below
from dra_sdk.node.prepare.dependencies import Undone
from dra_sdk.node.prepare.engine import Preparer
from dra_sdk.node.runtime.instance import NRI_LOCK, InstanceLock
from dra_sdk.node.runtime.metrics import Metrics
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.threads import RestartingThread

log = logging.getLogger(__name__)
CONNECT_SECONDS: Final = 2.0
"""How long a start waits for the runtime, so that containers that start right afterwards are not missed."""
_LOCK_SECONDS: Final = 0.2  # between two attempts to lock


class ContainerHooks:
    """Calls the driver's hooks about pods and containers, from `start` to `stop`.

    driver: the driver.
    node: the node.
    settings: the process's settings.
    preparer: knows the claims that hold devices, and takes the statuses that hooks report.
    metrics: gets the events and the state of the connection.
    ended: called when the connection ends that the runtime gave to this process when it started it.
    undone: takes what became of the steps by which devices of pods that stop come back.
    """

    def __init__(
        self,
        driver: Driver,
        node: Node,
        settings: Settings,
        preparer: Preparer,
        metrics: Metrics,
        *,
        ended: Callable[[], None],
        undone: Undone = lambda _claim, _steps: None,
    ) -> None:
        self._socket = nri_socket(settings)
        self._launch = Launch.take(os.environ)
        options = ConnectOptions(settings.nri_index, self._socket, launch=self._launch, ended=ended)
        self._plugin = DriverPlugin(
            driver,
            node,
            preparer.held,
            options,
            measure=metrics.nri_event,
            report=preparer.report,
            undo=AtOnce(undone),
            admit=preparer.admit,
        )
        metrics.add_nri_gauges(
            lambda: self._plugin.connection.runtime is not None,
            lambda: self._plugin.connection.connections,
            lambda: self._plugin.updates.failed,
        )
        shared = bool(settings.pod_uid)
        self._lock = InstanceLock(settings.plugin_data(driver.info.name) / NRI_LOCK) if shared else None
        self._take_over_thread = RestartingThread(f"NRI of {driver.info.name}", self._take_over)

    def start(self) -> None:
        """Connect; waits a short time for a runtime whose socket exists. Without a socket it goes on trying."""
        if self._lock is not None:
            self._take_over_thread.start()
            return
        self._plugin.start()
        listens = self._launch or self._socket.exists()
        if listens and not self._plugin.connection.wait_synchronized(CONNECT_SECONDS):
            log.warning(
                "%s: not connected after %g s; containers start without the driver", self._socket, CONNECT_SECONDS
            )

    def stop(self, timeout: float) -> bool:
        """Disconnect, and wait up to `timeout` seconds for hooks. False if one still runs."""
        ended = self._take_over_thread.stop(timeout)
        ended = self._plugin.stop(timeout) and ended
        if self._lock is not None:
            self._lock.release()
        return ended

    def synchronize_soon(self) -> None:
        """Apply soon what the driver wants now that claims or devices have changed. Return at once."""
        self._plugin.updates.claims_changed()

    def _take_over(self, stop: Event) -> None:
        """Connect as soon as no other process of the driver is connected."""
        assert self._lock is not None
        while not stop.is_set():
            if self._lock.try_acquire():
                self._plugin.start()
                return
            stop.wait(_LOCK_SECONDS)


def nri_socket(settings: Settings) -> Path:
    """Return the runtime's socket: that of the settings, else the usual one of the host."""
    return settings.nri_socket or socket_below(settings.host_root)
