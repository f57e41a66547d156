"""The driver of lamps with knobs: a test sets its devices and their health, and makes its hooks fail or wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event

from dra_sdk import (
    Capacity,
    Claim,
    CounterConsumption,
    CounterSet,
    Device,
    DeviceHealth,
    DeviceTaint,
    DriverInfo,
    HealthStatus,
    HeldClaim,
    Node,
    PreparedDevice,
    RequestPolicy,
    ResourcePool,
)
from tests.cluster.knobs import Knobs
from tests.cluster.lamp_driver import NodeLamps, lamps
from tests.lamps import LampConfig

POLL = 0.1
REPEAT = 5.0


def partitions() -> tuple[list[Device], list[CounterSet]]:
    """Returns a board that can be allocated whole or in halves."""
    sizes = {"board": 8, "half-0": 4, "half-1": 4}
    devices = [Device(name, {"size": size}, consumes=[_wires(size)]) for name, size in sizes.items()]
    return devices, [CounterSet("wires", {"wires": 8})]


def shared() -> tuple[list[Device], list[CounterSet]]:
    """Returns a spotlight that many claims may share, as far as its light goes."""
    light = Capacity(10, RequestPolicy(default=1, min=1, step=1))
    return [Device("spot", capacity={"light": light}, allow_multiple_allocations=True)], []


def everything() -> tuple[list[Device], list[CounterSet]]:
    """Returns devices with a field of each feature that a cluster may lack."""
    light = Capacity(10, RequestPolicy(default=1, min=1, step=1))
    return [
        Device("plain"),
        Device("tainted", taints=[DeviceTaint(key="lamps.example.com/dim", effect="NoSchedule")]),
        Device("partition", consumes=[_wires(4)]),
        Device("overlap", consumes=[_wires(8)]),
        Device("spot", capacity={"light": light}, allow_multiple_allocations=True),
        Device("bound", binding_conditions=["warm"], binding_failure_conditions=["broken"]),
    ], [CounterSet("wires", {"wires": 8})]


def _wires(number: int) -> CounterConsumption:
    return CounterConsumption("wires", {"wires": number})


DEVICES: dict[str, Callable[[], tuple[list[Device], list[CounterSet]]]] = {
    "lamps": lambda: (lamps(), []),
    "partitions": partitions,
    "shared": shared,
    "everything": everything,
}


class KnobDriver(NodeLamps):
    """The driver. KNOB_DRIVER is its name, and KNOBS the directory of its knobs."""

    def __init__(self) -> None:
        super().__init__()
        self._knobs = Knobs(Path(os.environ["KNOBS"]))

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(os.environ["KNOB_DRIVER"], configs=[LampConfig])

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        with self._knobs.hook("discover", node.name):
            self._knobs.block()
            devices, counter_sets = DEVICES[self._knobs["devices"]]()
        yield ResourcePool(node.name, devices, counter_sets)

    def dra_watch(self, changed: Callable[[], None], stop: Event) -> None:
        seen = self._knobs["devices"]
        while not stop.wait(POLL):
            if self._knobs["devices"] != seen:
                seen = self._knobs["devices"]
                changed()

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        with self._knobs.hook("prepare", claim.name):
            yield from super().dra_prepare(claim)

    def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
        with self._knobs.hook("unprepare", claim.name):
            super().dra_unprepare(claim, node)

    def dra_device_health(self, stop: Event) -> Iterator[list[DeviceHealth]]:
        sent, due = None, 0.0
        while not stop.wait(POLL):
            broken, now = self._knobs["unhealthy"], time.monotonic()
            if broken != sent or now >= due:
                sent, due = broken, now + REPEAT
                devices, _ = DEVICES[self._knobs["devices"]]()
                yield [_health(device.name, broken.get(device.name)) for device in devices]


def _health(name: str, problem: str | None) -> DeviceHealth:
    status = HealthStatus.HEALTHY if problem is None else HealthStatus.UNHEALTHY
    return DeviceHealth(name, status, problem or "")
