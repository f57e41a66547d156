"""A monitor that runs step by step, on GPUs in memory."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from threading import Event as Flag
from time import monotonic
from typing import Any, cast

import pytest
from dra_driver_gpu.describe import PublishOptions
from dra_driver_gpu.health import GpuHealthMonitor, HealthRules
from dra_driver_gpu.health.events import EventListener
from dra_driver_gpu.nvml.api import NvmlEvent
from dra_driver_gpu.nvml.library import NvmlLibrary
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu

from dra_sdk import DeviceHealth, HealthStatus, Node
from dra_sdk.testing import read_report

FAST = {"interval": 0.01, "survey": 0.0, "settle": 3600.0}


class OwnTime(EventListener):
    """A listener whose time advances only in a wait without event, so it gets every event before time advances."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def wait(self, milliseconds: int) -> NvmlEvent | None:
        event = super().wait(0)
        self.now += 0.0 if event else milliseconds / 1000
        return event


class Watched:
    """The GPUs of a node, and a monitor; `step` is its next report, by device.

    With `listener` the monitor listens through it; if that is an `OwnTime`, its time is the monitor's.
    """

    def __init__(
        self, files: GpuNode, options: PublishOptions, listener: EventListener | None = None, **rules: Any
    ) -> None:
        self.files = files
        self.nvml: MemoryNvml = files.nvml()
        self.gpus = [gpu.uuid for gpu in files.gpus]
        self.stop = Flag()
        self.library = NvmlLibrary(self.nvml)
        clock = (lambda: listener.now) if isinstance(listener, OwnTime) else monotonic
        self.monitor = GpuHealthMonitor(
            self.library, options, HealthRules(**{**FAST, **rules}), clock=clock, listener=listener
        )
        self.restart()

    def restart(self) -> None:
        """The hook begins again; the monitor stays."""
        watch = self.monitor.watch(Node("node-1", self.files.root), self.stop)
        self._reports = cast("Generator[list[DeviceHealth]]", watch)

    def again(self, **rules: Any) -> Watched:
        """The same GPUs, reset, with another monitor."""
        return Watched(self.files, PublishOptions(), **rules)

    def step(self) -> dict[str, DeviceHealth]:
        report = next(self._reports)
        read_report("gpu.nvidia.com", "node-1", report)  # the SDK accepts it
        return {health.device: health for health in report}

    def unhealthy(self) -> dict[str, str]:
        """The unhealthy devices of the next report; all others must be healthy."""
        report = self.step()
        assert {health.status for health in report.values()} <= {HealthStatus.HEALTHY, HealthStatus.UNHEALTHY}
        return {name: health.message for name, health in report.items() if health.status is HealthStatus.UNHEALTHY}

    def create(self, gpu: int, profile_id: int, start: int, size: int) -> int:
        """Create a MIG device; returns the id of its GPU instance."""
        self.nvml.init()
        instance = self.nvml.device_by_uuid(self.gpus[gpu]).create_gpu_instance(profile_id, Placement(start, size))
        kind = next(profile for profile in self.nvml.state(self.gpus[gpu]).instances[instance.info().id].profiles[::-1])
        instance.create_compute_instance(kind.id)
        instance_id = instance.info().id
        self.nvml.shutdown()
        return instance_id

    def end(self) -> None:
        """The hook ends; the monitor stays."""
        self._reports.close()
        assert (self.nvml.users, self.nvml.event_sets) == (0, 0)

    def close(self) -> None:
        self.stop.set()
        self.end()


Watch = Callable[..., Watched]


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    made: list[Watched] = []

    def make(*models: str, mig: bool = False, options: PublishOptions | None = None, **rules: Any) -> Watched:
        gpus = [fake_gpu(model, minor, mig=mig) for minor, model in enumerate(models)]
        made.append(Watched(GpuNode(tmp_path / f"{len(made)}", gpus), options or PublishOptions(), **rules))
        return made[-1]

    yield make
    for watched in made:
        watched.close()


@pytest.fixture
def own_time() -> OwnTime:
    """A listener for a monitor whose time does not depend on the machine."""
    return OwnTime()
