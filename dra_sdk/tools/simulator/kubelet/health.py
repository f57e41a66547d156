"""What the kubelet knows of device health: one stream per driver instance, a cache that decays to Unknown.

A device that is not refreshed within its timeout is Unknown, and the end of a stream forgets all devices of the driver.
Source: KEP-4680; Kubernetes 1.36 pkg/kubelet/cm/dra/healthinfo.go.
"""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

import grpc

from dra_sdk.tools.simulator.kubelet import wire
from dra_sdk.tools.simulator.kubelet.records import HEALTH, Call
from dra_sdk.wire.proto import dra_health_v1_pb2

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from dra_sdk.tools.simulator.kubelet.plugins import Plugin
    from dra_sdk.tools.simulator.kubelet.records import Records
    from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
    from dra_sdk.tools.simulator.kubelet.wire import HealthStream

HEALTHY = "Healthy"
UNHEALTHY = "Unhealthy"
UNKNOWN = "Unknown"
MESSAGE_BYTES = 1024
_CUT = "..."
_NAMES = {dra_health_v1_pb2.HEALTHY: HEALTHY, dra_health_v1_pb2.UNHEALTHY: UNHEALTHY}


@dataclass(frozen=True)
class DeviceHealth:
    """The health of one device: Healthy, Unhealthy or Unknown, and what the driver said about it."""

    health: str
    message: str = ""


@dataclass(frozen=True)
class _Report:
    health: DeviceHealth
    received: float
    timeout: float


def cut_message(message: str) -> str:
    """At most 1024 bytes: what is longer is cut, at a character, to end in `...`."""
    encoded = message.encode()
    if len(encoded) <= MESSAGE_BYTES:
        return message
    return encoded[: MESSAGE_BYTES - len(_CUT)].decode(errors="ignore") + _CUT


class HealthCache:
    """The latest report on each device, by driver, pool and device. `clock` is in seconds, for tests."""

    def __init__(self, default_timeout: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._default = default_timeout
        self._clock = clock
        self._changed = threading.Condition()
        self._reports: dict[str, dict[tuple[str, str], _Report]] = {}

    def update(self, driver: str, devices: Iterable[dra_health_v1_pb2.DeviceHealth]) -> None:
        """Takes in one message of a stream. Devices it does not name keep their state until it times out."""
        with self._changed:
            reports = self._reports.setdefault(driver, {})
            for device in devices:
                key = (device.device.pool_name, device.device.device_name)
                health = DeviceHealth(_NAMES.get(device.health, UNKNOWN), cut_message(device.message))
                seconds = device.health_check_timeout_seconds
                timeout = float(seconds) if seconds > 0 else self._default
                reports[key] = _Report(health, self._clock(), timeout)
            self._changed.notify_all()

    def clear(self, driver: str) -> None:
        """Forgets a driver."""
        with self._changed:
            self._reports.pop(driver, None)
            self._changed.notify_all()

    def get(self, driver: str, pool: str, device: str) -> DeviceHealth:
        """The health of a device now."""
        with self._changed:
            report = self._reports.get(driver, {}).get((pool, device))
            stale = report is None or self._clock() - report.received > report.timeout
            return DeviceHealth(UNKNOWN) if stale or report is None else report.health

    def wait(self, driver: str, pool: str, device: str, health: str, timeout: float) -> bool:
        """Waits until the device's health is `health`; False after `timeout` seconds."""
        ends = time.monotonic() + timeout
        with self._changed:
            while self.get(driver, pool, device).health != health:
                left = ends - time.monotonic()
                if left <= 0:
                    return False
                # Decay to Unknown comes without a message.
                self._changed.wait(min(left, 0.1))
        return True


class HealthMonitor:
    """Keeps a health stream open to one driver instance, in a thread, until stopped or told UNIMPLEMENTED."""

    def __init__(
        self, plugin: Plugin, service: str, cache: HealthCache, timing: KubeletTiming, records: Records
    ) -> None:
        self._plugin = plugin
        self._service = service
        self._cache = cache
        self._timing = timing
        self._records = records
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"kubelet-health-{plugin.info.driver}")
        self._thread.start()

    def stop(self) -> None:
        """Ends the stream and waits; close the channel before, which ends a stream that is open."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.is_set():
            if self._watch() is grpc.StatusCode.UNIMPLEMENTED:
                return
            self._stopping.wait(self._timing.health_retry)

    def _watch(self) -> grpc.StatusCode:
        info, started = self._plugin.info, time.monotonic()
        try:
            self._receive(wire.watch_health(self._plugin.channel, self._service))
            code, why = grpc.StatusCode.OK, ""
        except grpc.RpcError as error:
            code, why = wire.failure(error)
        except ValueError as error:
            # What grpc raises for a call on a channel that was closed meanwhile.
            code, why = grpc.StatusCode.CANCELLED, str(error)
        finally:
            self._cache.clear(info.driver)
        seconds = time.monotonic() - started
        self._records.add(Call(HEALTH, info.driver, info.endpoint, started, seconds, why))
        return code

    def _receive(self, stream: HealthStream) -> None:
        for message in stream:
            self._cache.update(self._plugin.info.driver, message.devices)
