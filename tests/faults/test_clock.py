"""A wall clock that jumps by years at every look: nothing that the driver waits for, or gives up on, goes by it.

The clock of one process cannot be set, so the driver's process is given another `time.time`, everywhere but in gRPC:
that hands each look at the clock to its core at once, which would compare it with the kernel's own. What waits by
`time.monotonic`, or in the kernel, is left as it is.
"""

from __future__ import annotations

import signal
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path
from threading import Event
from types import SimpleNamespace

import grpc
import pytest

from dra_sdk import DeviceHealth, HealthStatus, Node
from dra_sdk.node.kubelet import health
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import EmbeddedCluster, FaultRule, Reject, statuses
from tests.faults.hanging import HangingDriver, calling
from tests.faults.outside import Outside
from tests.lamps import NAME

YEARS = 10 * 365 * 86400.0


class JumpingDriver(HangingDriver):
    """Makes its process's clock jump."""

    def __init__(self) -> None:
        super().__init__()
        make_clock_jump()

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        while not stop.wait(0.05):
            yield [DeviceHealth("lamp-0", HealthStatus.HEALTHY, timeout=30)]


def make_clock_jump() -> None:
    grpc.server(ThreadPoolExecutor(1))  # makes gRPC import what it imports late
    real, steady = time.time, SimpleNamespace(**vars(time))
    jumps = cycle([YEARS, -YEARS, 0.0, 3600.0, -YEARS, YEARS])

    def jumping() -> float:
        return real() + next(jumps)

    for module in list(sys.modules.values()):
        if module.__name__.startswith("grpc"):
            if getattr(module, "time", None) is time:
                module.time = steady
            continue
        for name in [name for name, value in list(vars(module).items()) if value is real]:
            setattr(module, name, jumping)
    assert health.time is jumping


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Outside]:
    with EmbeddedCluster() as cluster:
        yield Outside(cluster, tmp_path, "tests.faults.test_clock:JumpingDriver")


def test_a_life_with_a_jumping_clock(driver: Outside) -> None:
    cluster = driver.cluster
    ref = driver.claim("lamp-0", "lamp-1")
    busy = cluster.server.faults.add(FaultRule(Reject(statuses.too_many_requests(1)), name=ref.name, times=1))
    away = cluster.server.faults.add(FaultRule(Reject(statuses.unavailable()), verb="create", times=1))
    with driver.running("--drain-seconds", str(LONG)), ThreadPoolExecutor(1) as pool:
        driver.prepare(ref)
        driver.prepare(ref)
        driver.assert_held(ref)
        wait(lambda: len(driver.slices()) == 40)
        assert (busy.hits, away.hits) == (1, 1)
        assert cluster.kubelet.wait_for_health(NAME, cluster.node_name, "lamp-0", "Healthy", LONG)
        driver.wait_watching()
        assert cluster.server.close_watches(reset=True) == 1
        wait(lambda: cluster.server.open_watches == 1)
        (slice_,) = cluster.api.list("resourceslices")
        cluster.api.delete("resourceslices", slice_["metadata"]["name"])
        wait(lambda: len(driver.slices()) == 40)
        (published,) = cluster.api.list("resourceslices")
        assert not any(device.get("taints") for device in published["spec"]["devices"])
        call = calling(pool, driver, "unprepare: begin", ref)
        driver.process.send_signal(signal.SIGTERM)
        driver.wait_logged("SIGTERM: stopping")
        with pytest.raises(TimeoutError):
            call.result(0.3)
        (driver.lamps.parent / "unprepare: begin").unlink()
        assert call.result(LONG) == ""
        assert driver.process.wait(LONG) == 0
    driver.assert_held()


def test_a_successor_with_a_jumping_clock_waits_for_its_predecessor(driver: Outside) -> None:
    with driver.running():
        first = driver.process
        driver.start()
        driver.wait_logged("waiting for another instance of this driver to end")
        second, driver.process = driver.process, first
        assert driver.terminate() == 0
        driver.process = second
        driver.wait_registered(2)
        driver.assert_sound()
        assert driver.terminate() == 0
