"""The health stream: all devices at once, and again before a report expires."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from dra_sdk.wire.proto import dra_health_v1_pb2
from tests.tools.conformance.mutants import Faults
from tests.tools.conformance.mutants.preparer import Preparer
from tests.tools.conformance.mutants.publisher import devices

TIMEOUT = 30
REPEAT = 0.2
_LOOK = 0.02


class Health:
    def __init__(self, driver: str, node: str, preparer: Preparer, faults: Faults) -> None:
        self._driver, self._node, self._preparer, self._faults = driver, node, preparer, faults
        self._streams = 0
        self.stopped = False

    def watch(self, _request: Any, context: Any) -> Iterator[Any]:
        self._streams += 1
        first = self._streams == 1
        self._preparer.streaming += 1
        try:
            yield from self._reports(context, first=first)
        finally:
            self._preparer.streaming -= 1

    def _reports(self, context: Any, *, first: bool) -> Iterator[Any]:
        silent = "silent" in self._faults or ("one-stream" in self._faults and not first)
        due, reported = 0.0, 0
        while context.is_active() and not self.stopped:
            if time.monotonic() >= due and not silent and not ("reports-once" in self._faults and reported):
                due, reported = time.monotonic() + REPEAT, reported + 1
                yield self._report()
                if "stream-ends" in self._faults:
                    return
            time.sleep(_LOOK)

    def _report(self) -> Any:
        names = [device["name"] for device in devices(self._driver, self._faults)]
        names += ["stranger"] if "strange-device" in self._faults else []
        names = names[1:] if "some-devices" in self._faults else names
        return dra_health_v1_pb2.NodeWatchResourcesResponse(devices=[self._device(name) for name in names])

    def _device(self, name: str) -> Any:
        return dra_health_v1_pb2.DeviceHealth(
            device=dra_health_v1_pb2.DeviceIdentifier(pool_name=self._node, device_name=name),
            health=7 if "odd-health" in self._faults else 1,
            last_updated_time=int(time.time()) + (3600 if "future" in self._faults else 0),
            health_check_timeout_seconds=TIMEOUT,
            message="x" * 2000 if "long-message" in self._faults else "",
        )
