"""From unhealthy devices to taints on what is published: health alone keeps no pod away. Pure.

Source: resource.k8s.io/v1 DeviceTaint (KEP-5055). A device stays unhealthy until it is reported healthy again: that
its monitor fell silent says nothing about the device.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Final, Literal

from dra_sdk.model.device import Device, DeviceTaint, ResourcePool
from dra_sdk.model.status import HealthStatus
from dra_sdk.node.health.reports import Key

Effect = Literal["None", "NoSchedule", "NoExecute"]
Unhealthy = Mapping[Key, datetime]
"""Devices that are unhealthy, by pool and name, and since when (UTC, whole seconds)."""

TAINTS_LIMIT: Final = 16  # taints per device since 1.35; one more and the whole pool would be refused
_SEVERITY: Final[Mapping[str, int]] = {"None": 0, "NoSchedule": 1, "NoExecute": 2}


@dataclass(frozen=True, slots=True)
class TaintPolicy:
    """The taint that unhealthy devices of `driver` get.

    `NoSchedule` keeps new pods away, `NoExecute` also evicts those that run, `None` only tells (1.35 and later).
    """

    driver: str
    effect: Effect = "NoSchedule"

    @property
    def key(self) -> str:
        """The taint's key, for tolerations: `<driver>/unhealthy`."""
        return f"{self.driver}/unhealthy"


def update(unhealthy: Unhealthy, statuses: Iterable[tuple[Key, HealthStatus]], now: datetime) -> dict[Key, datetime]:
    """`unhealthy` after these statuses: a device that stays unhealthy keeps its time, Unknown changes nothing."""
    found = dict(unhealthy)
    for key, status in statuses:
        if status is HealthStatus.UNHEALTHY:
            found.setdefault(key, now.astimezone(UTC).replace(microsecond=0))
        elif status is HealthStatus.HEALTHY:
            found.pop(key, None)
    return found


def combine(*sources: Unhealthy) -> dict[Key, datetime]:
    """What several independent sources say together: unhealthy wins, since the earliest."""
    found: dict[Key, datetime] = {}
    for source in sources:
        for key, since in source.items():
            found[key] = min(since, found.get(key, since))
    return found


def overlay(pools: Iterable[ResourcePool], unhealthy: Unhealthy, policy: TaintPolicy) -> list[ResourcePool]:
    """The pools with the policy's taint on unhealthy devices; pools and devices without any are the same objects."""
    return [_pool(pool, unhealthy, policy) for pool in pools]


def _pool(pool: ResourcePool, unhealthy: Unhealthy, policy: TaintPolicy) -> ResourcePool:
    if not any((pool.name, device.name) in unhealthy for device in pool.devices):
        return pool
    devices = [_device(device, unhealthy.get((pool.name, device.name)), policy) for device in pool.devices]
    return replace(pool, devices=devices)


def _device(device: Device, since: datetime | None, policy: TaintPolicy) -> Device:
    if since is None:
        return device
    taint = DeviceTaint(key=policy.key, effect=policy.effect, time_added=since)
    others = [each for each in device.taints if each.key != policy.key]
    own = [_SEVERITY.get(each.effect, 0) for each in device.taints if each.key == policy.key]
    if max(own, default=-1) >= _SEVERITY[policy.effect] or len(others) >= TAINTS_LIMIT:
        return device
    return replace(device, taints=(*others, taint))
