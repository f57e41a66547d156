"""From the driver's health hook to everybody who wants to know: kubelet streams, taints on published devices."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from threading import Event

from dra_sdk.errors import HookError
from dra_sdk.loader import Driver
from dra_sdk.model.device import ResourcePool
from dra_sdk.model.driver import Node
from dra_sdk.node.health.feed import HealthFeed
from dra_sdk.node.health.memory import UnhealthyFile
from dra_sdk.node.health.tainted import TaintedPools
from dra_sdk.node.health.taints import Effect, TaintPolicy
from dra_sdk.node.kubelet.health import HEALTH_VERSIONS, health_services
from dra_sdk.node.kubelet.server import Method
from dra_sdk.node.prepare.files import Files
from dra_sdk.node.runtime.supervise import Supervised

log = logging.getLogger(__name__)
Publish = Callable[[Sequence[ResourcePool]], None]


class Wellness:
    """Runs `dra_device_health` where the driver has it; without it nothing is offered and pools pass unchanged."""

    def __init__(self, driver: Driver, node: Node, effect: Effect | None, memory: Path, files: Files) -> None:
        self._driver, self._node = driver, node
        self.watched = driver.implements("dra_device_health")
        self.feed = HealthFeed(driver.info.name, node.name)
        self._effect = effect
        self._memory = UnhealthyFile(memory, files)
        self._source = Supervised("health", self._report)

    def services(self) -> dict[str, dict[str, Method]]:
        """The gRPC services, none for a driver without the hook: then the kubelet is told UNIMPLEMENTED."""
        return health_services(self.feed.follow, self.feed.wake) if self.watched else {}

    def versions(self) -> Sequence[str]:
        """What to advertise at registration."""
        return tuple(HEALTH_VERSIONS) if self.watched else ()

    def between(self, publish: Publish) -> Publish:
        """What discovery is to call in place of `publish`, so that unhealthy devices are published with a taint."""
        if not self.watched or self._effect is None:
            return publish
        tainted = TaintedPools(TaintPolicy(self._driver.info.name, self._effect), publish, self._memory)
        self.feed.subscribe(tainted.changed)
        return tainted.publish

    def start(self) -> None:
        """Begin to ask the driver."""
        if self.watched:
            self._source.start()

    def stop(self, timeout: float) -> None:
        """End the hook and all streams."""
        self.feed.close()
        self._source.stop(timeout)

    def _report(self, stop: Event) -> None:
        reports = self._driver.call("dra_device_health", node=self._node, stop=stop)
        if isinstance(reports, str | Mapping) or not isinstance(reports, Iterable):
            name = self._driver.info.name
            raise HookError(
                f"dra_device_health of driver {name} returned {reports!r}, want to iterate over its reports"
            )
        for devices in reports:
            self.feed.report(devices)
            self._source.progressed()
            if stop.is_set():
                return
        if not stop.is_set():
            log.warning("dra_device_health of driver %s ended; its devices become Unknown", self._driver.info.name)
