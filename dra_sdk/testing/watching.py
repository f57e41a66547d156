"""`dra_watch` and `dra_device_health` in a test, run by the node's own code: in threads, and again after they raise.

    with driver.watching() as watch:
        node.remove("/sys/class/lamps/lamp-0")
        watch.wait_changed()
    assert list(driver.devices) == ["lamp-1"]

    with driver.watching_health() as health:
        node.file("/sys/class/lamps/lamp-1/state", "broken")
        assert "broken" in health.wait("lamp-1", HealthStatus.UNHEALTHY).message

The end of a block sets `stop` and waits until the hook has returned. What a hook raises is raised by the next wait, or
at the end of the block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from threading import Condition
from time import monotonic
from types import TracebackType
from typing import Any, Final, Self

from dra_sdk.errors import HookError
from dra_sdk.loader import Driver
from dra_sdk.model.device import ResourcePool
from dra_sdk.model.driver import Node
from dra_sdk.model.status import DeviceHealth, HealthStatus
from dra_sdk.node.health.feed import HealthFeed, HealthThread
from dra_sdk.node.health.published import KnownDevices
from dra_sdk.node.runtime.discovery import Discovery

LIMIT: Final = 30.0
"""Seconds that a wait takes at most, unless the test says otherwise."""
_RECHECK: Final = 0.2  # seconds after which a wait looks again, because a report may have become too old


class _RunningHook:
    """One hook in its thread: what it raised, and waiting for what it does."""

    _thread: Discovery | HealthThread

    def __init__(self, driver: Driver, hook: str) -> None:
        if not driver.implements(hook):
            raise AssertionError(f"driver {driver.info.name} has no hook {hook}")
        self._name = f"driver {driver.info.name}"
        self._hook = hook
        self._errors: list[BaseException] = []
        self._happened = Condition()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        ended = self._thread.stop(LIMIT)
        if error is None:
            self._raise_error()
            if not ended:
                raise AssertionError(f"{self._hook} of {self._name} still runs {LIMIT:g} s after stop was set")

    def _ended(self, error: BaseException | None) -> None:
        with self._happened:
            text = f"{self._hook} of {self._name} ended before stop was set, so later changes are not noticed"
            self._errors.append(error or HookError(text))
            self._happened.notify_all()

    def _raise_error(self) -> None:
        if self._errors:
            raise self._errors.pop(0)

    def _wait(
        self, done: Callable[[], bool], seconds: float, describe: Callable[[], str], *, raises: bool = True
    ) -> None:
        """Wait until `done`. AssertionError with `describe()` after some seconds; if `raises`, what the hook raised."""
        end = monotonic() + seconds
        with self._happened:
            while not done():
                if raises:
                    self._raise_error()
                left = end - monotonic()
                if left <= 0:
                    raise AssertionError(describe())
                self._happened.wait(min(left, _RECHECK))


class Watching(_RunningHook):
    """`dra_watch` while it runs, and discovery whenever it calls `changed()`. `DriverHarness.watching` makes it.

    `discovered` is called with the pools of each discovery.
    """

    def __init__(self, driver: Driver, node: Node, discovered: Callable[[Sequence[ResourcePool]], None]) -> None:
        super().__init__(driver, "dra_watch")
        self._discovered = discovered
        self._pools: Sequence[ResourcePool] | None = None
        self._known: Sequence[ResourcePool] | None = None
        self._running = False
        self._thread = self._discovery = _CountingDiscovery(driver, node, self._publish, watch_ended=self._ended)

    def __enter__(self) -> Self:
        """Start `dra_watch`, and wait for the first discovery."""
        super().__enter__()
        self._running = True
        try:
            text = f"{self._name} has not discovered its devices within {LIMIT:g} s"
            self._wait(lambda: self._pools is not None, LIMIT, lambda: text, raises=False)
        except BaseException:
            self._thread.stop(LIMIT)
            raise
        self._known = self._pools
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: TracebackType | None) -> None:
        self._running = False
        super().__exit__(kind, error, traceback)

    @property
    def reports(self) -> int:
        """How often `dra_watch` has called `changed()`, the call with which it begins included."""
        return self._discovery.reports

    @property
    def is_running(self) -> bool:
        """Whether the `with` block has begun and not ended."""
        return self._running

    def discover_again(self) -> None:
        """Discover again soon, as when a hook asks for it (`Node.discover_again`)."""
        self._discovery.request()

    def wait_changed(self, seconds: float = LIMIT) -> Sequence[ResourcePool]:
        """Wait until the driver reports a change and discovers other devices than at the last call; its pools.

        AssertionError if that takes longer. A call of `changed()` after which the devices are the same does not count.
        """
        self._wait(
            lambda: self._discovery.reports > 0 and self._pools != self._known, seconds, lambda: self._why(seconds)
        )
        self._known = self._pools
        return self._pools or ()

    def _why(self, seconds: float) -> str:
        text = f"{self._name} reported no change within {seconds:g} s"
        if not self.reports:
            return f"{text}: dra_watch has never called changed()"
        return f"{text}: dra_watch has called changed() {self.reports} times, and the devices are as before"

    def _publish(self, pools: Sequence[ResourcePool]) -> None:
        with self._happened:
            self._pools = pools
            self._discovered(pools)
            self._happened.notify_all()


class _CountingDiscovery(Discovery):
    """The node's discovery, which counts the calls of `changed()`."""

    reports = 0

    def again(self) -> None:
        """See `Discovery.again`."""
        self.reports += 1
        super().again()


class WatchingHealth(_RunningHook):
    """`dra_device_health` while it runs. `DriverHarness.watching_health` makes it.

    A report about a device that is not among `published` has no effect on a node; it is an error of the next wait.
    """

    def __init__(self, driver: Driver, node: Node, published: KnownDevices) -> None:
        super().__init__(driver, "dra_device_health")
        self._feed = _CountingFeed(driver.info.name, node.name, published, self._happened, self._ended)
        self._thread = HealthThread(driver, node, self._feed, self._ended)

    @property
    def devices(self) -> dict[str, DeviceHealth]:
        """The latest health of each device by its name; without states that are older than their `timeout`."""
        return {health.device: health for health in self._feed.snapshot()}

    def wait(self, device: str, status: HealthStatus, seconds: float = LIMIT) -> DeviceHealth:
        """Wait until a device has a status; its health. A device that no report mentions is Unknown.

        AssertionError if that takes longer.
        """
        self._wait(lambda: self._health(device).status is status, seconds, lambda: self._why(device, status, seconds))
        return self._health(device)

    def wait_reported(self, reports: int = 1, seconds: float = LIMIT) -> None:
        """Wait for the next reports, as when a test expects that a device stays healthy."""
        wanted = self._feed.reports + reports
        text = f"{self._name} reported no health within {seconds:g} s"
        self._wait(lambda: self._feed.reports >= wanted, seconds, lambda: text)

    def _health(self, device: str) -> DeviceHealth:
        return self.devices.get(device) or DeviceHealth(device, HealthStatus.UNKNOWN, "no report mentions it")

    def _why(self, device: str, status: HealthStatus, seconds: float) -> str:
        now = self._health(device)
        state = f"{now.status.name}: {now.message}" if now.message else now.status.name
        return f"device {device} of {self._name} was not {status.name} within {seconds:g} s; it is {state}"


class _CountingFeed(HealthFeed):
    """The node's feed, which counts reports and wakes those who wait for them."""

    def __init__(
        self,
        driver: str,
        pool: str,
        published: KnownDevices,
        happened: Condition,
        failed: Callable[[HookError], None],
    ) -> None:
        super().__init__(driver, pool, published)
        self._happened, self._failed = happened, failed
        self.reports = 0

    def report(self, devices: Any) -> None:
        """See `HealthFeed.report`."""
        super().report(devices)
        with self._happened:
            self.reports += 1
            self._happened.notify_all()

    def _unpublished(self, problem: str) -> None:
        self._failed(HookError(f"{problem}; on a node its health has no effect"))
