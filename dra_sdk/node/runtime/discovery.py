"""Runs a driver's discovery at the start, on demand and again after a failure, and keeps the result.

No change of the hardware is lost between the first discovery and the moment at which `dra_watch` notices changes. A
hook should call `changed()` once when it has begun to watch, as the blocks of `dra_sdk.hardware` do; then discovery
runs once more at that moment. For a hook that does not, discovery runs once more after `WATCH_BEGINS` seconds.
The same holds after a hook that failed has been started again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from threading import Condition, Event, Lock
from time import monotonic

from dra_sdk.errors import RetriableError
from dra_sdk.loader import Driver
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import Node
from dra_sdk.model.omissions import collecting_omissions
from dra_sdk.node.prepare.counters import PoolCounters
from dra_sdk.node.runtime.failures import DiscoveryFailures
from dra_sdk.node.runtime.omissions import OmissionReport
from dra_sdk.node.threads import Ended, RestartingThread, call_after

log = logging.getLogger(__name__)
Pools = Sequence[ResourcePool]
Stage = Callable[[Pools], Pools]
"""What pools pass between discovery and publication; returns them changed."""
FIRST_WAIT = 30.0  # seconds that a prepare waits for the first discovery; the kubelet waits 45
WATCH_BEGINS = 5.0  # seconds after which a `dra_watch` that was started notices changes
_NO_COUNTERS = PoolCounters()
SLOW_SECONDS = 3.0  # after which a discovery that still runs is logged


class Discovery:
    """Keeps the driver's pools up to date and passes each new set through `stages` to `publish`.

    driver: the driver.
    node: the node it runs on.
    publish: takes all pools; must not block.
    stages: what the pools pass first, in this order.
    watch_ended: called when `dra_watch` ends without having been asked to.
    failed: called for each discovery that failed, with the reason.
    omissions: what the last discovery left out.
    failures: whether discovery still works; what is published has a taint while it does not.
    """

    def __init__(
        self,
        driver: Driver,
        node: Node,
        publish: Callable[[Pools], None],
        stages: Sequence[Stage] = (),
        *,
        watch_ended: Ended = lambda _error: None,
        failed: Ended = lambda _error: None,
    ) -> None:
        self._driver, self._node, self._publish, self._stages = driver, node, publish, stages
        self.omissions = OmissionReport(driver.info.name)
        self.failures = DiscoveryFailures(driver.info.name)
        self._wake = Condition()  # guards the next two
        self._requested = False
        self._once_more_at: float | None = None  # while it is not known whether dra_watch notices changes
        self._has_discovered = Event()
        self._publishing = Lock()  # guards the next two
        self._discovered: Pools | None = None
        self._pools: dict[str, PoolCounters] = {}
        self._threads = [RestartingThread("discover", self._discover, failed)]
        if driver.implements("dra_watch"):
            self._threads.append(RestartingThread("watch", self._watch, watch_ended))

    def start(self) -> None:
        """Start discovery, and `dra_watch` if the driver has it."""
        self.request()
        for thread in self._threads:
            thread.start()

    def again(self) -> None:
        """Discover again; `dra_watch` calls it, so it does notice changes."""
        with self._wake:
            self._once_more_at = None
        self.request()

    def request(self) -> None:
        """Discover again soon; never waits. Any hook may ask for it (`Node.discover_again`)."""
        with self._wake:
            self._requested = True
            self._wake.notify_all()

    def publish_again(self) -> None:
        """Pass the pools through the stages again, because one of these has changed."""
        with self._publishing:
            if self._discovered is not None:
                self._pass_on(self._discovered)

    def stop(self, timeout: float) -> bool:
        """End the threads, each within `timeout` seconds; False if one still runs."""
        for thread in self._threads:
            thread.request_stop()
        self.request()
        ended = [thread.stop(timeout) for thread in self._threads]
        return all(ended)

    def published(self, pool: str, name: str) -> Device | None:
        """Return the published device of this name, or None. RetriableError if the first discovery takes too long."""
        if not self._has_discovered.wait(FIRST_WAIT):
            raise RetriableError(f"driver {self._driver.info.name} has not finished discovering its devices")
        return self.counters(pool).devices.get(name)

    def counters(self, pool: str) -> PoolCounters:
        """Return the counters of a published pool; empty ones for another."""
        return self._pools.get(pool, _NO_COUNTERS)

    def all_published(self) -> list[tuple[str, Device]]:
        """Return the published devices, each with its pool; none before the first discovery."""
        return [(pool, device) for pool, known in self._pools.items() for device in known.devices.values()]

    def _discover(self, stop: Event) -> None:
        while not stop.is_set():
            self._wait_for_request()
            if stop.is_set():
                return
            try:
                self._once()
            except Exception as error:
                self.request()
                if self.failures.add(error):
                    self.publish_again()
                raise
            self._threads[0].progressed()

    def _wait_for_request(self) -> None:
        with self._wake:
            while not self._requested:
                left = None if self._once_more_at is None else self._once_more_at - monotonic()
                if left is not None and left <= 0:
                    self._once_more_at = None
                    return
                self._wake.wait(left)
            self._requested = False

    def _once(self) -> None:
        with call_after(SLOW_SECONDS, self._log_slow), collecting_omissions() as omissions:
            pools = self._driver.discover(self._node)
        self.omissions.update(omissions)
        self.failures.worked()
        with self._publishing:
            self._discovered = pools
            self._pass_on(pools)
        found = self._pools
        log.info("discovered %d devices in %d pools", sum(len(pool.devices) for pool in found.values()), len(found))

    def _pass_on(self, pools: Pools) -> None:
        for stage in self._stages:
            pools = stage(pools)
        pools = self.failures.apply(pools)
        self._pools = {pool.name: PoolCounters.of(pool) for pool in pools}
        self._has_discovered.set()
        self._publish(pools)

    def _log_slow(self) -> None:
        """Warn: until the first discovery ends, nothing is published and no claim is prepared."""
        name = self._driver.info.name
        log.warning("dra_discover of driver %s has been running for %g s", name, SLOW_SECONDS)

    def _watch(self, stop: Event) -> None:
        with self._wake:
            self._once_more_at = monotonic() + WATCH_BEGINS
            self._wake.notify_all()
        self._driver.watch(self._node, self.again, stop)
        if not stop.is_set():
            log.warning("dra_watch of driver %s returned; hardware changes are not noticed now", self._driver.info.name)
