"""Publishing pools with the taints of the moment: when hardware changes, and when a device's health does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from threading import Lock
from typing import Protocol

from dra_sdk.model.device import ResourcePool
from dra_sdk.model.status import HealthStatus
from dra_sdk.node.health.feed import HealthChange
from dra_sdk.node.health.reports import Key
from dra_sdk.node.health.taints import TaintPolicy, Unhealthy, overlay, update

log = logging.getLogger(__name__)
Publish = Callable[[Sequence[ResourcePool]], None]


class Memory(Protocol):
    """Where unhealthy devices are kept beyond the life of the process."""

    def load(self) -> dict[Key, datetime]:
        """What was kept."""

    def save(self, unhealthy: Unhealthy) -> None:
        """Keep this."""


class _Forgetful:
    """Remembers nothing."""

    def load(self) -> dict[Key, datetime]:
        return {}

    def save(self, unhealthy: Unhealthy) -> None:
        """Nothing to do."""


def _now() -> datetime:
    return datetime.now(UTC)


class TaintedPools:
    """Stands between discovery and `publish`, which must not block. Safe for threads."""

    def __init__(
        self, policy: TaintPolicy, publish: Publish, memory: Memory | None = None, now: Callable[[], datetime] = _now
    ) -> None:
        self._policy, self._publish, self._now = policy, publish, now
        self._memory = memory or _Forgetful()
        self._lock = Lock()
        self._pools: Sequence[ResourcePool] | None = None
        self._unhealthy: dict[Key, datetime] | None = None

    def publish(self, pools: Sequence[ResourcePool]) -> None:
        """Publish what discovery found, with taints on what is unhealthy."""
        with self._lock:
            self._pools = pools
            self._publish(overlay(pools, self._known(), self._policy))

    def changed(self, changes: Sequence[HealthChange]) -> None:
        """Publish again if these changes add or lift a taint; a listener for `HealthFeed.subscribe`."""
        with self._lock:
            known = self._known()
            found = update(known, (((each.pool, each.device), each.new) for each in changes), self._now())
            if found == known:
                return
            self._unhealthy = found
            self._memory.save(found)
            self._tell(changes)
            if self._pools is not None:
                self._publish(overlay(self._pools, found, self._policy))

    def _known(self) -> dict[Key, datetime]:
        if self._unhealthy is None:
            self._unhealthy = self._memory.load()
        return self._unhealthy

    def _tell(self, changes: Sequence[HealthChange]) -> None:
        for each in changes:
            if each.new is HealthStatus.UNHEALTHY:
                log.warning("device %s/%s is unhealthy: %s", each.pool, each.device, each.message or "no reason given")
            elif each.new is HealthStatus.HEALTHY:
                log.info("device %s/%s is healthy", each.pool, each.device)
