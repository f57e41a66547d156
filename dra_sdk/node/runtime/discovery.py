"""Running a driver's discovery: at the start, on demand, again after a failure; and remembering what it found."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from threading import Event
from typing import TYPE_CHECKING

from dra_sdk.errors import DraError, HookError, RetriableError, raised_at
from dra_sdk.loader import Driver
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.model.driver import Node
from dra_sdk.node.runtime.supervise import Supervised

if TYPE_CHECKING:
    from dra_sdk.node.overlay import Overlay

log = logging.getLogger(__name__)
FIRST_WAIT = 30.0  # seconds a prepare waits for the first discovery, out of the kubelet's 45


def discover(driver: Driver, node: Node) -> list[ResourcePool]:
    """Call `dra_discover` once; HookError if it raises or returns anything but devices or pools."""
    name = driver.info.name
    try:
        with driver.observe("dra_discover"):
            answer = driver.call("dra_discover", node=node)
        found = list(answer) if isinstance(answer, Iterable) and not isinstance(answer, str | bytes) else None
    except DraError:
        raise
    except BaseException as error:
        reason = f"{type(error).__name__}: {error}{raised_at(error)}"
        raise HookError(f"dra_discover of driver {name} failed: {reason}") from error
    if found is not None and all(isinstance(each, Device) for each in found):
        return [ResourcePool(node.name, found)]
    if found is not None and all(isinstance(each, ResourcePool) for each in found):
        return found
    raise HookError(
        f"dra_discover of driver {name} returned {_described(answer, found)}; "
        f"want Device values only, or ResourcePool only"
    )


def _described(answer: object, found: list[object] | None) -> str:
    """What a hook gave, in few words: the whole of a pool can be thousands of devices."""
    if isinstance(answer, Device | ResourcePool):
        return f"one {type(answer).__name__}, not a list of them"
    if isinstance(answer, Mapping):
        return f"a {type(answer).__name__}, not a list"
    if found is None:
        return repr(answer)
    return repr(sorted({type(each).__name__ for each in found}))


class Discovery:
    """Keeps the driver's pools current and hands each new set to `publish`."""

    def __init__(
        self,
        driver: Driver,
        node: Node,
        publish: Callable[[Sequence[ResourcePool]], None],
        overlay: Overlay | None = None,
    ) -> None:
        self._driver, self._node, self._publish, self._overlay = driver, node, publish, overlay
        self._wanted = Event()
        self._first = Event()
        self._devices: dict[str, dict[str, Device]] = {}
        self._threads = [Supervised("discover", self._discover)]
        if driver.implements("dra_watch"):
            self._threads.append(Supervised("watch", self._watch))

    def start(self) -> None:
        """Begin to discover, and to watch if the driver can."""
        self.again()
        for thread in self._threads:
            thread.start()

    def again(self) -> None:
        """Discover again; what `dra_watch` calls."""
        self._wanted.set()

    def stop(self, timeout: float) -> None:
        """End the threads."""
        for thread in self._threads:
            thread.ask()
        self._wanted.set()
        for thread in self._threads:
            thread.stop(timeout)

    def published(self, pool: str, name: str) -> Device | None:
        """What was discovered under this name; waits for the first discovery, RetriableError if that takes too long."""
        if not self._first.wait(FIRST_WAIT):
            raise RetriableError(f"driver {self._driver.info.name} has not finished discovering its devices")
        return self._devices.get(pool, {}).get(name)

    def _discover(self, stop: Event) -> None:
        while not stop.is_set():
            self._wanted.wait()
            if stop.is_set():
                return
            self._wanted.clear()
            try:
                self._once()
            except Exception:
                self._wanted.set()
                raise
            self._threads[0].progressed()

    def _once(self) -> None:
        pools = self._overlaid(discover(self._driver, self._node))
        found: dict[str, dict[str, Device]] = {}
        for pool in pools:
            found.setdefault(pool.name, {}).update((device.name, device) for device in pool.devices)
        self._devices = found
        self._first.set()
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
        self._driver.call("dra_watch", node=self._node, changed=self.again, stop=stop)
        if not stop.is_set():
            log.warning("dra_watch of driver %s returned; hardware changes go unnoticed now", self._driver.info.name)
