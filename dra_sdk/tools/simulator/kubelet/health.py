"""Device health as the kubelet knows it: one stream per plugin, and a cache whose reports expire.

A device without a report within its timeout is Unknown; when a stream ends, all reports of its driver are dropped.
Source: KEP-4680; Kubernetes 1.36 pkg/kubelet/cm/dra/healthinfo.go.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import grpc

from dra_sdk.tools.simulator.kubelet.calls import Stream
from dra_sdk.tools.simulator.kubelet.plugins import RegisteredPlugin
from dra_sdk.tools.simulator.kubelet.records import HEALTH, DriverCall
from dra_sdk.wire.proto import dra_health_v1_pb2

log = logging.getLogger(__name__)
HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
UNKNOWN = "Unknown"
MESSAGE_BYTES = 1024
_ELLIPSIS = "..."
_EXPIRY_CHECK_SECONDS = 0.1
_END_SECONDS = 10.0  # for a cancelled stream; it usually ends within a millisecond
_NAMES = {dra_health_v1_pb2.HEALTHY: HEALTHY, dra_health_v1_pb2.UNHEALTHY: UNHEALTHY}


@dataclass(frozen=True)
class ResourceHealth:
    """The health of one device as the pod's status shows it (core/v1 ResourceHealth).

    health: Healthy, Unhealthy or Unknown.
    message: the driver's explanation, "" for none.
    """

    health: str
    message: str = ""


@dataclass(frozen=True)
class _Report:
    health: ResourceHealth
    received: float
    timeout: float


def truncate_message(message: str) -> str:
    """Return at most 1024 bytes: a longer message is cut between two characters and ends in `...`."""
    encoded = message.encode()
    if len(encoded) <= MESSAGE_BYTES:
        return message
    return encoded[: MESSAGE_BYTES - len(_ELLIPSIS)].decode(errors="ignore") + _ELLIPSIS


class HealthCache:
    """The latest report on each device, by driver, pool and device. `clock` gives seconds, for tests."""

    def __init__(self, default_timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = default_timeout
        self._clock = clock
        self._changed = threading.Condition()
        self._reports: dict[str, dict[tuple[str, str], _Report]] = {}

    def update(self, driver: str, devices: Iterable[dra_health_v1_pb2.DeviceHealth]) -> None:
        """Store the reports of one message; a device that it does not name keeps its report."""
        with self._changed:
            reports = self._reports.setdefault(driver, {})
            for device in devices:
                key = (device.device.pool_name, device.device.device_name)
                health = ResourceHealth(_NAMES.get(device.health, UNKNOWN), truncate_message(device.message))
                seconds = device.health_check_timeout_seconds
                timeout = float(seconds) if seconds > 0 else self._default
                reports[key] = _Report(health, self._clock(), timeout)
            self._changed.notify_all()

    def clear(self, driver: str) -> None:
        """Drop the reports of a driver."""
        with self._changed:
            self._reports.pop(driver, None)
            self._changed.notify_all()

    def get(self, driver: str, pool: str, device: str) -> ResourceHealth:
        """Return the health of a device now."""
        with self._changed:
            report = self._reports.get(driver, {}).get((pool, device))
            expired = report is None or self._clock() - report.received > report.timeout
            return ResourceHealth(UNKNOWN) if expired or report is None else report.health

    def wait(self, driver: str, pool: str, device: str, health: str, timeout: float) -> bool:
        """Wait until the device's health is `health`; False after `timeout` seconds."""
        ends = time.monotonic() + timeout
        with self._changed:
            while self.get(driver, pool, device).health != health:
                left = ends - time.monotonic()
                if left <= 0:
                    return False
                # A report expires without a notification.
                self._changed.wait(min(left, _EXPIRY_CHECK_SECONDS))
        return True


class HealthWatch:
    """Keeps a health stream open to one plugin, in a thread, until it is stopped or the answer is UNIMPLEMENTED."""

    def __init__(self, plugin: RegisteredPlugin, service: str, cache: HealthCache) -> None:
        self._plugin = plugin
        self._service = service
        self._cache = cache
        self._stopping = threading.Event()
        self._lock = threading.Lock()
        self._stream: Stream[Any] | None = None
        self._thread = threading.Thread(target=self._run, name=f"kubelet-health-{plugin.info.driver}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the stream and wait for the thread. The plugin is not called any more."""
        self._stopping.set()
        with self._lock:
            if self._stream:
                self._stream.cancel()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            # gRPC does not always end a stream that is cancelled while the server goes away.
            self._plugin.disconnect()
            self._thread.join(_END_SECONDS)
        if self._thread.is_alive():
            log.error("%s: gRPC does not end the cancelled health stream; its thread is left", self._plugin.info.driver)

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._watch() is grpc.StatusCode.UNIMPLEMENTED:
                return
            self._stopping.wait(self._plugin.timing.health_retry)

    def _watch(self) -> grpc.StatusCode:
        """Receive reports until the stream ends; return its status."""
        info, started = self._plugin.info, time.monotonic()
        with self._lock:
            if self._stopping.is_set():
                return grpc.StatusCode.CANCELLED
            self._stream = stream = self._plugin.calls.watch_health(self._service)
        try:
            for message in stream:
                self._cache.update(info.driver, message.devices)
        finally:
            self._cache.clear(info.driver)
        result = stream.result
        assert result is not None  # the iteration has ended
        why = "" if result.ok else result.status
        self._plugin.records.add_call(DriverCall(HEALTH, info.driver, info.endpoint, started, result.seconds, why))
        return result.code
