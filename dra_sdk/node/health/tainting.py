"""Taints on each unhealthy device, because health alone does not keep pods away.

A device stays unhealthy until it is reported healthy again. A monitor that reports nothing changes nothing.
Source: resource.k8s.io/v1 DeviceTaint (KEP-5055).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from threading import Lock
from typing import Final

from dra_sdk.model.device import Device, DeviceTaint, ResourcePool, TaintEffect
from dra_sdk.model.status import HealthStatus
from dra_sdk.node.health.feed import HealthChange
from dra_sdk.node.health.reports import Key
from dra_sdk.node.health.unhealthy_store import DEFAULT_TAINT, Unhealthy, UnhealthyStore

log = logging.getLogger(__name__)

TAINTS_LIMIT: Final = 16  # taints per device since 1.35; one more and the whole pool would be refused
_SEVERITY: Final[Mapping[str, int]] = {"None": 0, "NoSchedule": 1, "NoExecute": 2}


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True, slots=True)
class TaintPolicy:
    """The taints that unhealthy devices get.

    driver: the driver's name, which begins a taint's key.
    effect: `NoSchedule` keeps new pods away, `NoExecute` also evicts those that run, `None` only informs (1.35 and
        later).
    """

    driver: str
    effect: TaintEffect = "NoSchedule"

    def taint(self, text: str, since: datetime) -> DeviceTaint:
        """Return the taint for `name` or `name=value` of a report. Its key, for tolerations, is `<driver>/<name>`."""
        name, _, value = text.partition("=")
        return DeviceTaint(key=f"{self.driver}/{name}", value=value, effect=self.effect, time_added=since)


class Tainting:
    """Knows the unhealthy devices and taints them in what is published. Safe for threads.

    policy: the taint.
    store: keeps unhealthy devices beyond the life of the process.
    now: the time, with a time zone.
    """

    def __init__(self, policy: TaintPolicy, store: UnhealthyStore, now: Callable[[], datetime] = _now) -> None:
        self._policy, self._store, self._now = policy, store, now
        self._lock = Lock()
        self._unhealthy: dict[Key, Mapping[str, datetime]] | None = None

    def apply(self, pools: Sequence[ResourcePool]) -> Sequence[ResourcePool]:
        """Return the pools with taints on unhealthy devices."""
        with self._lock:
            return with_taints(pools, self._known(), self._policy)

    def changed(self, changes: Sequence[HealthChange]) -> bool:
        """Take changes of health. Return whether they add or remove a taint, so that the pools must be published."""
        with self._lock:
            known = self._known()
            unhealthy = update(known, changes, self._now())
            if unhealthy == known:
                return False
            self._unhealthy = unhealthy
            self._store.save(unhealthy)
            self._log(changes)
            return True

    def _known(self) -> dict[Key, Mapping[str, datetime]]:
        if self._unhealthy is None:
            self._unhealthy = self._store.load()
        return self._unhealthy

    def _log(self, changes: Sequence[HealthChange]) -> None:
        for change in changes:
            device = f"{change.pool}/{change.device}"
            if change.new is HealthStatus.UNHEALTHY:
                log.warning("device %s is unhealthy: %s", device, change.message or "no reason given")
            elif change.new is HealthStatus.HEALTHY:
                log.info("device %s is healthy", device)


def update(unhealthy: Unhealthy, changes: Iterable[HealthChange], now: datetime) -> dict[Key, Mapping[str, datetime]]:
    """Return `unhealthy` after these changes. A taint that stays keeps its time; Unknown changes nothing."""
    updated = dict(unhealthy)
    since = now.astimezone(UTC).replace(microsecond=0)
    for change in changes:
        key = change.pool, change.device
        if change.new is HealthStatus.UNHEALTHY:
            before = updated.get(key, {})
            updated[key] = {taint: before.get(taint, since) for taint in sorted({*change.taints} or {DEFAULT_TAINT})}
        elif change.new is HealthStatus.HEALTHY:
            updated.pop(key, None)
    return updated


def with_taints(pools: Iterable[ResourcePool], unhealthy: Unhealthy, policy: TaintPolicy) -> list[ResourcePool]:
    """Return the pools with taints on unhealthy devices; pools and devices without any are the same objects."""
    return [_pool(pool, unhealthy, policy) for pool in pools]


def _pool(pool: ResourcePool, unhealthy: Unhealthy, policy: TaintPolicy) -> ResourcePool:
    if not any((pool.name, device.name) in unhealthy for device in pool.devices):
        return pool
    devices = [_device(device, unhealthy.get((pool.name, device.name)), policy) for device in pool.devices]
    return replace(pool, devices=devices)


def _device(device: Device, taints: Mapping[str, datetime] | None, policy: TaintPolicy) -> Device:
    tainted = list(device.taints)
    for text, since in (taints or {}).items():
        taint = policy.taint(text, since)
        same_key = [known for known in device.taints if known.key == taint.key]
        if max((_SEVERITY.get(known.effect, 0) for known in same_key), default=-1) >= _SEVERITY[policy.effect]:
            continue
        others = [other for other in tainted if other not in same_key]
        if len(others) < TAINTS_LIMIT:
            tainted = [*others, taint]
    return device if tainted == list(device.taints) else replace(device, taints=tuple(tainted))
