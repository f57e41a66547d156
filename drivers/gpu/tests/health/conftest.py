"""A monitor that is asked step by step, on GPUs in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event as Flag
from typing import Any

import pytest
from dra_driver_gpu.describe import Offer
from dra_driver_gpu.health import HealthMonitor, HealthRules
from dra_driver_gpu.health.listener import Listener
from dra_driver_gpu.library import Library
from dra_driver_gpu.nvml.api import Event
from dra_driver_gpu.nvml.memory import MemoryNvml, fake_gpu
from dra_driver_gpu.nvml.values import Placement
from dra_driver_gpu.testing import GpuNode

from dra_sdk import DeviceHealth, HealthStatus, Node
from dra_sdk.node.health.reports import read_report

FAST = {"interval": 0.01, "survey": 0.0, "settle": 3600.0}


class Watched:
    """GPUs of a node and what the monitor says of them. `step` is its next report, by device."""

    def __init__(self, files: GpuNode, offer: Offer, **rules: Any) -> None:
        self.files = files
        self.nvml: MemoryNvml = files.nvml()
        self.gpus = [gpu.uuid for gpu in files.gpus]
        self.stop = Flag()
        self.library = Library(self.nvml)
        self.monitor = HealthMonitor(self.library, offer, HealthRules(**{**FAST, **rules}))
        self._reports = self.monitor.watch(Node("node-1", files.root), self.stop)

    def again(self, **rules: Any) -> Watched:
        """The same GPUs as new, with a monitor of their own."""
        return Watched(self.files, Offer(), **rules)

    def step(self) -> dict[str, DeviceHealth]:
        report = next(self._reports)
        read_report("gpu.nvidia.com", "node-1", report)  # the SDK takes it
        return {each.device: each for each in report}

    def unhealthy(self) -> dict[str, str]:
        """Of the next report, after it was checked that all else is healthy."""
        report = self.step()
        assert {each.status for each in report.values()} <= {HealthStatus.HEALTHY, HealthStatus.UNHEALTHY}
        return {name: each.message for name, each in report.items() if each.status is HealthStatus.UNHEALTHY}

    def create(self, gpu: int, profile_id: int, start: int, size: int) -> int:
        """A MIG device; the id of its GPU instance."""
        self.nvml.init()
        instance = self.nvml.device_by_uuid(self.gpus[gpu]).create_gpu_instance(profile_id, Placement(start, size))
        kind = next(each for each in self.nvml.state(self.gpus[gpu]).instances[instance.info().id].profiles[::-1])
        instance.create_compute_instance(kind.id)
        found = instance.info().id
        self.nvml.shutdown()
        return found

    def own_time(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Let time go on only while the monitor waits in vain: all that has happened is heard before it goes on."""
        now, wait = [0.0], Listener.wait

        def waited(listener: Listener, milliseconds: int) -> Event | None:
            event = wait(listener, 0)
            now[0] += 0.0 if event else milliseconds / 1000
            return event

        monkeypatch.setattr(Listener, "wait", waited)
        self.monitor._clock = self.monitor._census.clock = lambda: now[0]

    def close(self) -> None:
        self.stop.set()
        self._reports.close()  # type: ignore[attr-defined]
        assert self.nvml._driver.initialized == 0
        assert self.nvml._driver.queues == []


Watch = Callable[..., Watched]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made: list[Watched] = []

    def make(*models: str, mig: bool = False, offer: Offer | None = None, **rules: Any) -> Watched:
        gpus = [fake_gpu(model, minor, mig=mig) for minor, model in enumerate(models)]
        made.append(Watched(GpuNode(tmp_path / f"{len(made)}", gpus), offer or Offer(), **rules))
        return made[-1]

    yield make
    for each in made:
        each.close()
