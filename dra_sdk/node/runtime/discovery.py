"""Runs a driver's discovery at the start, on demand and again after a failure, and keeps the result."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Event, Timer
from typing import TYPE_CHECKING

from dra_sdk.errors import RetriableError
from dra_sdk.loader import Driver
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import Node
from dra_sdk.node.threads import RestartingThread

if TYPE_CHECKING:
    from dra_sdk.node.overlay import Overlay

log = logging.getLogger(__name__)
FIRST_WAIT = 30.0  # seconds that a prepare waits for the first discovery; the kubelet waits 45

SLOW_SECONDS = 3.0  # after which a discovery that still runs is logged


@contextmanager
def _logged_if_slow(driver: str) -> Iterator[None]:
    """Log that a discovery still runs: until the first one ends, nothing is published and no claim is prepared."""
    said = ("dra_discover of driver %s has been running for %g s", driver, SLOW_SECONDS)
    timer = Timer(SLOW_SECONDS, log.warning, said)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


class Discovery:
    """Keeps the driver's pools up to date and passes each new set to `publish`.

    driver: the driver.
    node: the node it runs on.
    publish: takes all pools; must not block.
    overlay: an operator's rules that add to devices, None for none.
    """

    def __init__(
        self,
        driver: Driver,
        node: Node,
        publish: Callable[[Sequence[ResourcePool]], None],
        overlay: Overlay | None = None,
    ) -> None:
        self._driver, self._node, self._publish, self._overlay = driver, node, publish, overlay
        self._requested = Event()
        self._has_discovered = Event()
        self._devices: dict[str, dict[str, Device]] = {}
        self._threads = [RestartingThread("discover", self._discover)]
        if driver.implements("dra_watch"):
            self._threads.append(RestartingThread("watch", self._watch))

    def start(self) -> None:
        """Start discovery, and `dra_watch` if the driver has it."""
        self.again()
        for thread in self._threads:
            thread.start()

    def again(self) -> None:
        """Discover again; `dra_watch` calls it."""
        self._requested.set()

    def stop(self, timeout: float) -> bool:
        """End the threads, each within `timeout` seconds; False if one still runs."""
        for thread in self._threads:
            thread.request_stop()
        self._requested.set()
        ended = [thread.stop(timeout) for thread in self._threads]
        return all(ended)

    def published(self, pool: str, name: str) -> Device | None:
        """The discovered device of this name, or None. RetriableError if the first discovery takes too long."""
        if not self._has_discovered.wait(FIRST_WAIT):
            raise RetriableError(f"driver {self._driver.info.name} has not finished discovering its devices")
        return self._devices.get(pool, {}).get(name)

    def _discover(self, stop: Event) -> None:
        while not stop.is_set():
            self._requested.wait()
            if stop.is_set():
                return
            self._requested.clear()
            try:
                self._once()
            except Exception:
                self._requested.set()
                raise
            self._threads[0].progressed()

    def _once(self) -> None:
        with _logged_if_slow(self._driver.info.name):
            pools = self._overlaid(self._driver.discover(self._node))
        found: dict[str, dict[str, Device]] = {}
        for pool in pools:
            found.setdefault(pool.name, {}).update((device.name, device) for device in pool.devices)
        self._devices = found
        self._has_discovered.set()
        log.info("discovered %d devices in %d pools", sum(map(len, found.values())), len(pools))
        self._publish(pools)

    def _overlaid(self, pools: list[ResourcePool]) -> Sequence[ResourcePool]:
        if self._overlay is None:
            return pools
        done = self._overlay.apply(pools, driver=self._driver.info.name, node=self._node.name)
        for problem in done.problems:
            log.warning("overlay: %s", problem)
        return done.pools

    def _watch(self, stop: Event) -> None:
        self._driver.watch(self._node, self.again, stop)
        if not stop.is_set():
            log.warning("dra_watch of driver %s returned; hardware changes are not noticed now", self._driver.info.name)
