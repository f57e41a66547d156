"""The driver, killed at every step that it takes on disk, with the real binding on the stub library.

The process that is killed is a fork of the test, so the GPUs are in a process of their own.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.testing.harness import GpuHarness
from dra_driver_gpu.testing.nvml import fake_gpu
from dra_driver_gpu.testing.nvml_stub import build_stub

from dra_sdk.testing import FakeClaim, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes

pytestmark = pytest.mark.faults

_SERVER = """
import json, sys
from pathlib import Path
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu
from dra_driver_gpu.testing.memory_answers import MemoryAnswers
from dra_driver_gpu.testing.nvml_stub import StubServer
nvml = MemoryNvml([fake_gpu("H100-80GB", 0)])
nvml.watch(lambda state: Path(sys.argv[1]).write_text(repr(state)))
with StubServer(MemoryAnswers(nvml)) as server:
    print(json.dumps(server.environment), flush=True)
    sys.stdin.read()
"""


@pytest.fixture(scope="session")
def stub_library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("stub"))


@contextmanager
def served(file: Path) -> Iterator[dict[str, str]]:
    """A GPU that writes its state to this file at each change; gives the environment of the stub library."""
    command = [sys.executable, "-c", _SERVER, str(file)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield json.loads(process.stdout.readline())
        process.communicate()  # closes its stdin, which ends it
    assert process.returncode == 0


@pytest.fixture
def harness(tmp_path, stub_library, monkeypatch) -> Iterator[GpuHarness]:
    gpus = [fake_gpu("H100-80GB", 0)]
    made = GpuHarness(tmp_path, gpus, nvml=lambda _root: RealNvml(library=stub_library), dynamic_mig=True)
    made.gpus.set_all_instances()
    (made.node.root / "run").mkdir()
    with served(made.node.root / "run/nvml") as environment:
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        made.driver.unprepare(made.driver.prepare(mig()))  # writes the file
        yield made


def mig(count: int = 1) -> FakeClaim:
    return claim(request("mig", device_class="mig.nvidia.com", count=count))


def test_the_real_binding_creates_and_removes_mig_devices(harness):
    before = (harness.node.root / "run/nvml").read_text()
    prepared = harness.driver.prepare(mig(2))
    assert prepared.names == ["gpu-0-mig-1g10gb-19-6", "gpu-0-mig-1g10gb-19-4"]
    assert len([path for path in prepared.container().devices if "nvidia-cap" in path]) == 4
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert (harness.node.root / "run/nvml").read_text() == before


def test_it_survives_being_killed(harness, capsys):
    times = assert_survives_crashes(harness.driver, mig(), lines=False)
    with capsys.disabled():
        print(f"\nkilled {times} times")
    assert times > 20
