"""The latest health of every device, streams of its changes, and the thread that runs `dra_device_health`.

A feed is safe for threads.

```
dra_device_health ─ report ─▶ HealthFeed ─ follow ──▶ one kubelet stream for each version of the health API
                                         ─ subscribe ▶ taints, logs: changes of status and taints
```

A report is about the devices that it names. A follower gets exactly these, changed or not: the kubelet trusts a state
for the device's timeout after it arrives, and the state of a device whose source hangs must become Unknown there.
Source: KEP-4680.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from threading import Condition, Event, RLock
from time import monotonic
from typing import Any, Final

from dra_sdk.loader import Driver
from dra_sdk.model.driver import Node
from dra_sdk.model.status import DeviceHealth, HealthStatus
from dra_sdk.node.health.published import KnownDevices
from dra_sdk.node.health.reports import Key, read_report
from dra_sdk.node.threads import Ended, RestartingThread

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class HealthChange:
    """One device whose status or taints changed.

    pool: the name of its pool.
    device: its name.
    old: the status before; Unknown if the last report was older than its timeout.
    new: the status now.
    message: what the report says about it.
    taints: its taints if it is unhealthy; see `DeviceHealth.taints`.
    """

    pool: str
    device: str
    old: HealthStatus
    new: HealthStatus
    message: str = ""
    taints: Sequence[str] = ()


_NEW: Final = DeviceHealth("", HealthStatus.UNKNOWN)
Listener = Callable[[Sequence[HealthChange]], None]


@dataclass(frozen=True, slots=True)
class _LatestHealth:
    health: DeviceHealth
    since: float

    def fresh(self, now: float) -> bool:
        return now - self.since < self.health.timeout


class HealthFeed:
    """What a driver reports of its devices.

    driver: the driver's name, for errors.
    pool: the pool of devices that name none, and that no other pool has.
    published: the devices that there are, as discovery adds them: a report about another one is logged once.
    clock: the monotonic clock, in seconds.
    """

    def __init__(
        self,
        driver: str,
        pool: str,
        published: KnownDevices | None = None,
        *,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        self._driver, self._pool, self._clock = driver, pool, clock
        self.published = published or KnownDevices()
        self._logged: set[Key] = set()
        self._reporting = RLock()  # keeps listeners in the order of the reports
        self._changed = Condition()
        self._entries: dict[Key, _LatestHealth] = {}
        self._waiting: dict[str, set[Key]] = {}
        self._listeners: list[Listener] = []
        self._closed = False

    def report(self, devices: Any) -> None:
        """Store one report of `dra_device_health`. HookError if it is invalid; then nothing is stored."""
        reported = read_report(self._driver, self._pool, devices, self.published)
        with self._reporting:
            for key in sorted(reported.keys() - self._logged):
                if problem := self.published.problem(*key):
                    self._logged.add(key)
                    self._unpublished(f"dra_device_health of driver {self._driver}: {problem}")
            changes = self._merge(reported)
            for listener in tuple(self._listeners) if changes else ():
                try:
                    listener(changes)
                except Exception:  # a listener that fails must not silence the others
                    log.exception("a listener failed on %d changes of device health", len(changes))

    def snapshot(self) -> list[DeviceHealth]:
        """Every device whose state is younger than its timeout, sorted by pool and name, with its pool set."""
        with self._changed:
            return self._fresh(self._entries)

    def subscribe(self, listener: Listener) -> None:
        """Call `listener` with the changes of each report that has any, in the reporter's thread."""
        with self._reporting:
            self._listeners.append(listener)

    def follow(self, group: str, alive: Callable[[], bool]) -> Iterator[list[DeviceHealth]]:
        """Yield all fresh states, if there are any, then each report as it arrives.

        Reports that arrive while the follower is busy are combined: it gets the latest state of each device. Ends when
        another follower of the same `group` begins, when the feed is closed, or when `alive()` is False, which is
        checked after every report and `wake`.
        """
        with self._changed:
            mine = set(self._entries)
            self._waiting[group] = mine
            self._changed.notify_all()
        return self._batches(group, mine, alive)

    def wake(self) -> None:
        """Make the followers check their `alive` now."""
        with self._changed:
            self._changed.notify_all()

    def close(self) -> None:
        """End all followers, also those that begin later."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def _unpublished(self, problem: str) -> None:
        """Take the sentence about a device whose health has no effect, when it is reported first."""
        log.warning("%s; its health has no effect", problem)

    def _batches(self, group: str, mine: set[Key], alive: Callable[[], bool]) -> Iterator[list[DeviceHealth]]:
        def ended() -> bool:
            return self._closed or self._waiting.get(group) is not mine or not alive()

        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: mine or ended())
                    if ended():
                        return
                    batch = self._fresh(mine)
                    mine.clear()
                if batch:
                    yield batch
        finally:
            with self._changed:
                if self._waiting.get(group) is mine:
                    del self._waiting[group]

    def _merge(self, reported: dict[Key, DeviceHealth]) -> list[HealthChange]:
        with self._changed:
            now = self._clock()
            # Stale entries are dropped, so that names which a driver no longer uses do not accumulate.
            known = {key: entry for key, entry in self._entries.items() if entry.fresh(now)}
            self._entries = known | {key: _LatestHealth(health, now) for key, health in reported.items()}
            for waiting in list(self._waiting.values()):
                waiting.update(reported)
            self._changed.notify_all()
        return [
            HealthChange(*key, old.status, health.status, health.message, health.taints)
            for key, health in reported.items()
            if ((old := known[key].health if key in known else _NEW).status, old.taints)
            != (health.status, health.taints)
        ]

    def _fresh(self, keys: Iterable[Key]) -> list[DeviceHealth]:
        now = self._clock()
        entries = [self._entries[key] for key in sorted(keys) if key in self._entries]
        return [entry.health for entry in entries if entry.fresh(now)]


class HealthThread(RestartingThread):
    """Runs `dra_device_health` in a thread and stores each of its reports in `feed`; a raise starts the hook again.

    ended: called when the hook ends without having been asked to.
    """

    def __init__(self, driver: Driver, node: Node, feed: HealthFeed, ended: Ended = lambda _error: None) -> None:
        super().__init__("health", self._report, ended)
        self._driver, self._node, self._feed = driver, node, feed

    def _report(self, stop: Event) -> None:
        for devices in self._driver.device_health(self._node, stop):
            self._feed.report(devices)
            self.progressed()
            if stop.is_set():
                return
        if not stop.is_set():
            log.warning("dra_device_health of driver %s ended; its devices become Unknown", self._driver.info.name)
