"""Publishing: from what a driver discovers and reports of its devices' health to the ResourceSlices in the API server.

`Publisher.stages` is what lies between discovery and the slices: the overlay, then taints of unhealthy devices.

Nothing is published before the kubelet has registered the driver. The scheduler may bind a pod as soon as there are
slices, and the kubelet refuses a pod of a driver that it does not know yet, and looks at the pod again 90 s later. For
the same reason, slices that a kubelet deletes at its start are published again when it has registered the driver.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Final

from dra_sdk.kube.client import KubeClient
from dra_sdk.loader import Driver
from dra_sdk.model.driver import Node
from dra_sdk.node.health.feed import HealthChange, HealthFeed, HealthThread
from dra_sdk.node.health.tainting import Tainting, TaintPolicy
from dra_sdk.node.health.unhealthy_store import UnhealthyStore
from dra_sdk.node.kubelet.health import HEALTH_VERSIONS, health_services
from dra_sdk.node.kubelet.registration import Registration
from dra_sdk.node.runtime.discovery import Discovery, Pools, Stage
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.node.slices.controller import SliceController, log_error
from dra_sdk.node.slices.foreign import ForeignSlice, ForeignSlices, node_pools
from dra_sdk.rpc.server import Method

if TYPE_CHECKING:
    from dra_sdk.node.overlay import Overlay

log = logging.getLogger(__name__)
REGISTRATION_SECONDS: Final = 30.0
"""For which slices wait for the registration. Then they are published, and the pods' events say what is missing."""


class HealthService:
    """Runs `dra_device_health` and serves the kubelet's health streams, if the driver has the hook.

    is_offered: whether the driver has the hook.
    feed: what it reports.
    """

    def __init__(self, driver: Driver, node: Node) -> None:
        self.is_offered = driver.implements("dra_device_health")
        self.feed = HealthFeed(driver.info.name, node.name)
        self._thread = HealthThread(driver, node, self.feed)

    def services(self) -> dict[str, dict[str, Method]]:
        """Return the gRPC services. None for a driver without the hook; the kubelet then gets UNIMPLEMENTED."""
        return health_services(self.feed.follow, self.feed.wake) if self.is_offered else {}

    def versions(self) -> Sequence[str]:
        """Return the names of the services for the registration."""
        return tuple(HEALTH_VERSIONS) if self.is_offered else ()

    def start(self) -> None:
        """Start the hook."""
        if self.is_offered:
            self._thread.start()

    def stop(self, timeout: float) -> None:
        """End the hook, within `timeout` seconds, and all streams."""
        self.feed.close()
        self._thread.stop(timeout)


class Publisher:
    """Discovery, health and the slice controller of one driver, connected.

    stages: what the discovered pools pass before they are published, in this order.
    discovery: knows the devices.
    health: knows their health.
    slices: publishes what both know.
    """

    def __init__(
        self,
        driver: Driver,
        node: Node,
        settings: Settings,
        connect: Callable[[], KubeClient],
        store: UnhealthyStore,
        *,
        failed: Callable[[str, BaseException], None] = lambda _pool, _error: None,
        foreign: Callable[[ForeignSlice], None] = lambda _slice: None,
    ) -> None:
        """`failed` is called with the pool that is not published and the reason; with "" for a discovery that failed,
        and for a problem with all pools. `foreign` is called with slices of others in its pools. Neither may block.
        """
        self._driver, self._node, self._connect, self._failed = driver.info.name, node.name, connect, failed
        self._registration: Registration | None = None
        self._published_by = 0.0
        self._listeners: list[Callable[[], None]] = []
        self.health = HealthService(driver, node)
        self.stages: list[Stage] = []
        if settings.overlay_file is not None:
            self.stages.append(partial(self._overlaid, _overlay(settings.overlay_file)))
        if self.health.is_offered and settings.taint_effect is not None:
            tainting = Tainting(TaintPolicy(self._driver, settings.taint_effect), store)
            self.stages.append(tainting.apply)
            self.health.feed.subscribe(partial(self._taint_again, tainting))
        self.discovery = Discovery(driver, node, self._publish, self.stages, failed=self._report_discovery)
        self.slices = SliceController(
            self._driver,
            self._node,
            self._connect_when_registered,
            self._report_pool,
            kubelet_restarted=self._wait_for_kubelet_restart,
        )
        self._node_pools: frozenset[str] = frozenset()
        self._foreign = ForeignSlices(self._driver, self._node, connect, lambda: self._node_pools, foreign)

    def subscribe(self, listener: Callable[[], None]) -> None:
        """Call `listener` whenever pools are published; it must not block."""
        self._listeners.append(listener)

    def start(self, registration: Registration | None = None) -> None:
        """Start, health first, so that a device that is known to be unhealthy is published with its taint.

        `registration` says when the kubelet knows the driver; None if another process serves it.
        """
        self._registration = registration
        self._published_by = monotonic() + REGISTRATION_SECONDS
        self.health.start()
        self.discovery.start()
        self.slices.start()
        self._foreign.start()

    def stop(self, timeout: float) -> None:
        """End the threads, each within `timeout` seconds; slices stay published."""
        if self._registration is not None:
            self._registration.end_waits()
        self.health.stop(timeout)
        self.discovery.stop(timeout)
        self._foreign.stop(timeout)
        self.slices.stop(timeout)

    def _overlaid(self, overlay: Overlay, pools: Pools) -> Pools:
        overlaid = overlay.apply(pools, driver=self._driver, node=self._node)
        for problem in overlaid.problems:
            log.warning("overlay: %s", problem)
        return overlaid.pools

    def _taint_again(self, tainting: Tainting, changes: Sequence[HealthChange]) -> None:
        if tainting.changed(changes):
            self.discovery.publish_again()

    def _publish(self, pools: Pools) -> None:
        self.health.feed.published.add(pools)
        self._node_pools = node_pools(pools)
        self.slices.publish(pools)
        for listener in self._listeners:
            listener()

    def _report_pool(self, pool: str, error: Exception) -> None:
        log_error(pool, error)
        self._failed(pool, error)

    def _report_discovery(self, error: BaseException | None) -> None:
        if error is not None:
            self._failed("", error)

    def _connect_when_registered(self) -> KubeClient:
        if self._registration and not self._registration.wait_registered(self._published_by - monotonic()):
            log.warning(
                "the kubelet has not registered driver %s within %g s; its devices are published all the same",
                self._driver,
                REGISTRATION_SECONDS,
            )
        return self._connect()

    def _wait_for_kubelet_restart(self) -> bool:
        return self._registration is not None and self._registration.wait_for_kubelet_restart()


def _overlay(file: Path) -> Overlay:
    from dra_sdk.node.overlay import load  # noqa: PLC0415 (brings CEL along, which few processes need)

    return load(file)
