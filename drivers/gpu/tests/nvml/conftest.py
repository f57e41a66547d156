"""An NVML for each test, which runs twice: in memory, and with the real binding on the stub library."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from dra_driver_gpu.nvml import Gpu, Nvml, NvmlError, ReturnCode
from dra_driver_gpu.nvml.memory import FakeGpu, MemoryNvml
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.testing import GpuControl, StubState, build_stub


@dataclass
class Rig:
    """An initialized NVML, and what a test does to its GPUs."""

    nvml: Nvml
    control: GpuControl
    gpus: tuple[FakeGpu, ...]

    def gpu(self, index: int = 0) -> Gpu:
        return self.nvml.device_by_index(index)


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture(params=["memory", "stub"])
def make_rig(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(*gpus: FakeGpu, privileged: bool = True) -> Rig:
        if request.param == "memory":
            memory = MemoryNvml(gpus, privileged=privileged)
            rig = Rig(memory, memory, gpus)
        else:
            state = StubState(tmp_path / "nvml", gpus, privileged=privileged)
            for name, value in state.environment.items():
                monkeypatch.setenv(name, value)
            rig = Rig(RealNvml(library=request.getfixturevalue("stub_library")), state, gpus)
        rig.nvml.init()
        made.append(rig)
        return rig

    yield make
    for rig in made:
        try:
            rig.nvml.shutdown()
        except NvmlError as error:  # the test has shut it down itself
            if error.code != ReturnCode.UNINITIALIZED:
                raise
