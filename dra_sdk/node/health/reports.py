"""Checks what `dra_device_health` yields.

Source: KEP-4680; DRAResourceHealth DeviceHealth; resource.k8s.io/v1 for the names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

from dra_sdk.errors import HookError
from dra_sdk.model.status import DeviceHealth, HealthStatus
from dra_sdk.node.health.published import KnownDevices

Key = tuple[str, str]
"""A device: pool and name."""

MESSAGE_LIMIT: Final = 1024  # bytes that the kubelet keeps
TIMEOUT_LIMIT: Final = 2**31 - 1  # seconds; the kubelet counts nanoseconds in 64 bits
_CUT: Final = "..."
_SEVERITY: Final = {HealthStatus.HEALTHY: 0, HealthStatus.UNKNOWN: 1, HealthStatus.UNHEALTHY: 2}


def read_report(driver: str, pool: str, report: Any, published: KnownDevices | None = None) -> dict[Key, DeviceHealth]:
    """Return the devices of one report by pool and name.

    A device that names no pool belongs to the only pool of `published` that has its name, else to `pool`, the node's.
    If a device is in it twice, the worst state counts. Messages are cut to the length that the kubelet keeps. Raises
    HookError with the driver, the device and the field if the report is invalid; then nothing of it is used.
    """
    where = f"dra_device_health of driver {driver}"
    if isinstance(report, str | bytes) or not isinstance(report, Iterable):
        raise HookError(f"{where} yielded {report!r}, want a list of DeviceHealth")
    devices: dict[Key, DeviceHealth] = {}
    for device in report:
        if not isinstance(device, DeviceHealth):
            raise HookError(f"{where} yielded {device!r} in a list, want DeviceHealth")
        health = device
        if device.pool is None:
            health = replace(device, pool=published.pool_of(device.device, pool) if published else pool)
        if problem := next(_problems(driver, health), None):
            raise HookError(f"{where}: device {health.pool}/{health.device}: {problem}")
        key = (str(health.pool), health.device)
        health = replace(health, message=_cut(health.message), taints=tuple(health.taints))
        devices[key] = worst(devices[key], health) if key in devices else health
    return devices


def worst(first: DeviceHealth, second: DeviceHealth) -> DeviceHealth:
    """Return the worse of two states: unhealthy, then unknown, then healthy; of two equal ones the first."""
    return second if _SEVERITY[second.status] > _SEVERITY[first.status] else first


def _problems(driver: str, health: Any) -> Iterator[str]:
    from dra_sdk.wire.validation.names import (  # noqa: PLC0415 (costs a fifth of a second of a start)
        dns_label,
        label_key,
        label_value,
        pool_name,
    )

    for field, check in (("device", dns_label), ("pool", pool_name)):
        name = getattr(health, field)
        if isinstance(name, str):
            yield from (str(problem) for problem in check(name, field))
        else:
            yield f"{field} must be a str, is {name!r}"
    if not isinstance(health.status, HealthStatus):
        yield f"status must be a HealthStatus, is {health.status!r}"
    if not isinstance(health.message, str):
        yield f"message must be a str, is {health.message!r}"
    if not isinstance(health.timeout, int) or isinstance(health.timeout, bool):
        yield f"timeout must be an int of seconds, is {health.timeout!r}"
    elif not 1 <= health.timeout <= TIMEOUT_LIMIT:
        yield f"timeout must be from 1 to {TIMEOUT_LIMIT} seconds, is {health.timeout}"
    if isinstance(health.taints, str) or not isinstance(health.taints, Sequence):
        yield f"taints must be a list of str, is {health.taints!r}"
        return
    for number, taint in enumerate(health.taints):
        if not isinstance(taint, str):
            yield f"taints[{number}] must be a str, is {taint!r}"
            continue
        key, _, value = taint.partition("=")
        yield from (str(problem) for problem in label_key(f"{driver}/{key}", f"taints[{number}]"))
        yield from (str(problem) for problem in label_value(value, f"taints[{number}]"))


def _cut(message: str) -> str:
    raw = message.encode(errors="replace")  # names read from a damaged file can have bytes that are no text
    if len(raw) > MESSAGE_LIMIT:
        raw = raw[: MESSAGE_LIMIT - len(_CUT)]
        return raw.decode(errors="ignore") + _CUT
    return raw.decode()
