"""The DRAResourceHealth service, v1 and v1alpha1: a stream of the devices' health for the kubelet.

Source: KEP-4680; k8s.io/kubelet pkg/apis/dra-health. A stream lasts as long as its kubelet and occupies a thread of the
server. So each version has at most one: a new stream ends the old one, even if its client has stopped reading.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from threading import Lock
from time import time
from types import ModuleType
from typing import Any, Final

import grpc

from dra_sdk.model.status import DeviceHealth
from dra_sdk.rpc.server import Method, stream
from dra_sdk.wire.proto import dra_health_v1_pb2, dra_health_v1alpha1_pb2

log = logging.getLogger(__name__)
Follow = Callable[[str, Callable[[], bool]], Iterator[Sequence[DeviceHealth]]]
"""Takes the stream's version and a function that says whether the stream is still open; yields devices to send."""
Wake = Callable[[], None]
"""Wakes streams to check whether they are still open."""

DEVICES_PER_MESSAGE: Final = 1000  # at most a third of the 4 MiB that a client accepts

#: Advertised name → wire name of the service (the same here) and its messages, newest first.
HEALTH_VERSIONS: dict[str, tuple[str, ModuleType]] = {
    "v1.DRAResourceHealth": ("v1.DRAResourceHealth", dra_health_v1_pb2),
    "v1alpha1.DRAResourceHealth": ("v1alpha1.DRAResourceHealth", dra_health_v1alpha1_pb2),
}


def health_services(follow: Follow, wake: Wake) -> dict[str, dict[str, Method]]:
    """Return the handlers of every version, by wire name of the service."""
    return {
        service: _HealthVersion(service, wire, follow, wake).methods() for service, wire in HEALTH_VERSIONS.values()
    }


class _HealthVersion:
    """One version of the API and its one stream."""

    def __init__(self, service: str, wire: Any, follow: Follow, wake: Wake) -> None:
        self._service, self._wire = service, wire
        self._follow, self._wake = follow, wake
        self._lock = Lock()
        self._current: grpc.ServicerContext | None = None

    def methods(self) -> dict[str, Method]:
        wire = self._wire
        watch = stream(self._watch, wire.NodeWatchResourcesRequest, wire.NodeWatchResourcesResponse)
        return {"NodeWatchResources": watch}

    def _watch(self, _request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        if not context.add_callback(self._wake):
            return  # the client left while the call was waiting for a thread
        self._begin(context)
        try:
            for devices in self._follow(self._service, context.is_active):
                for first in range(0, len(devices), DEVICES_PER_MESSAGE):
                    yield self._message(devices[first : first + DEVICES_PER_MESSAGE])
        finally:
            self._end(context)

    def _begin(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            older, self._current = self._current, context
        log.debug("%s: a stream was opened", self._service)
        if older is not None:
            # Its thread may hang in sending to a client that does not read, so it is cancelled here.
            older.cancel()

    def _end(self, context: grpc.ServicerContext) -> None:
        with self._lock:
            if self._current is context:
                self._current = None
        log.debug("%s: a stream has ended", self._service)

    def _message(self, devices: Sequence[DeviceHealth]) -> Any:
        now = int(time())
        return self._wire.NodeWatchResourcesResponse(devices=[self._device(device, now) for device in devices])

    def _device(self, health: DeviceHealth, now: int) -> Any:
        return self._wire.DeviceHealth(
            device=self._wire.DeviceIdentifier(pool_name=health.pool or "", device_name=health.device),
            health=int(health.status),
            last_updated_time=now,
            health_check_timeout_seconds=health.timeout,
            message=health.message,
        )
