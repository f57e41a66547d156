"""What only the real binding can meet: libraries that are old, missing or broken, and other processes."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_gpu.describe import read_cards
from dra_driver_gpu.health.readings import read
from dra_driver_gpu.nvml import errors, profiles
from dra_driver_gpu.nvml.memory import MODELS, FakeGpu, fake_gpu
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.nvml.values import Architecture, Brand, Placement, RecoveryAction
from dra_driver_gpu.testing import StubState, build_stub

from dra_sdk.hardware import Host

_OLD = (
    "nvmlDeviceGetMemoryInfo_v2",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlGpuInstanceGetComputeInstanceProfileInfoV",
    "nvmlDeviceGetAddressingMode",
)


@pytest.fixture
def state(tmp_path, monkeypatch):
    state = StubState(tmp_path / "nvml", [fake_gpu("A100-40GB", mig=True)])
    for name, value in state.environment.items():
        monkeypatch.setenv(name, value)
    return state


def test_library_is_found_under_the_driver_root(state, stub_library, tmp_path):
    directory = tmp_path / "driver/usr/lib/x86_64-linux-gnu"
    directory.mkdir(parents=True)
    (directory / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580")
    (directory / "libnvidia-ml.so.580").write_bytes(stub_library.read_bytes())
    nvml = RealNvml(tmp_path / "driver")
    nvml.init()
    assert nvml.device_count() == 1
    nvml.shutdown()


def test_a_driver_that_comes_later_is_waited_for(state, stub_library, tmp_path):
    nvml = RealNvml(tmp_path / "driver")
    with pytest.raises(errors.LibraryNotFoundError):
        nvml.init()
    (tmp_path / "driver/usr/lib64").mkdir(parents=True)
    (tmp_path / "driver/usr/lib64/libnvidia-ml.so.1").write_bytes(stub_library.read_bytes())
    nvml.init()
    nvml.shutdown()


def test_without_kernel_driver_init_fails(monkeypatch, stub_library, tmp_path):
    monkeypatch.setenv("NVML_STUB_STATE", str(tmp_path / "none"))
    with pytest.raises(errors.DriverNotLoadedError, match="nvmlInitWithFlags: the kernel driver is not loaded"):
        RealNvml(library=stub_library).init()


def test_an_old_library_answers_with_what_it_has(state, tmp_path):
    nvml = RealNvml(library=build_stub(tmp_path, without=_OLD))
    nvml.init()
    gpu = nvml.device_by_index(0)
    assert gpu.memory().total_bytes == 40960 << 20
    with pytest.raises(errors.FunctionNotFoundError):
        gpu.addressing_mode()
    first = profiles.gpu_instance_profiles(gpu)[0]
    assert (first.id, first.name, first.multiprocessors, first.memory_mib) == (19, "", 14, 4864)
    assert profiles.profile_name(first, gpu.memory().total_bytes) == "1g.5gb"
    instance = gpu.create_gpu_instance(first.id, Placement(0, 1))
    [share] = profiles.compute_instance_profiles(instance)
    assert (share.id, share.name, share.shared_copy_engines) == (0, "", 1)
    nvml.shutdown()


_BEFORE_MIG = (
    *_OLD,
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetArchitecture",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetRemappedRows",
)


def test_a_gpu_of_a_driver_from_before_mig_is_read(state, tmp_path):
    nvml = RealNvml(library=build_stub(tmp_path, without=_BEFORE_MIG))
    nvml.init()
    found = read_cards(nvml, Host(tmp_path))
    assert not found.problems
    [card] = found.cards
    assert (card.memory_bytes, card.mig, card.sizes, card.cuda_version) == (40960 << 20, False, (), None)
    assert read(nvml.device_by_index(0)).action is RecoveryAction.NONE
    nvml.shutdown()


def test_a_new_driver_is_used_without_a_restart(state, stub_library, tmp_path):
    """A driver container that is renewed brings another library; the one that is loaded answers version mismatch."""
    directory = tmp_path / "driver/usr/lib64"
    directory.mkdir(parents=True)
    link = directory / "libnvidia-ml.so.1"
    for version in ("570.1", "580.2"):
        (directory / f"libnvidia-ml.so.{version}").write_bytes(stub_library.read_bytes())
    link.symlink_to("libnvidia-ml.so.570.1")
    nvml = RealNvml(tmp_path / "driver")
    nvml.init()
    old = nvml.device_by_index(0)
    nvml.init()
    link.unlink()
    link.symlink_to("libnvidia-ml.so.580.2")
    nvml.shutdown()
    assert nvml.device_by_index(0) == old  # somebody else still uses it
    nvml.shutdown()
    nvml.init()
    assert nvml.device_by_index(0) != old
    nvml.shutdown()


def test_numbers_newer_than_this_driver_are_unknown(tmp_path, monkeypatch, stub_library):
    model = replace(MODELS["B200-180GB"], architecture=99, brand=77)
    gpu = FakeGpu(model=model, minor=0, uuid="GPU-x", pci_address="0000:01:00.0")
    state = StubState(tmp_path / "nvml", [gpu])
    state.set_recovery_action(gpu.uuid, 99)
    for name, value in state.environment.items():
        monkeypatch.setenv(name, value)
    nvml = RealNvml(library=stub_library)
    nvml.init()
    assert nvml.device_by_index(0).architecture() is Architecture.UNKNOWN
    assert nvml.device_by_index(0).brand() is Brand.UNKNOWN
    assert nvml.device_by_index(0).recovery_action() is RecoveryAction.UNKNOWN  # not that all is well
    nvml.shutdown()


def test_another_process_sees_what_this_one_makes(state, stub_library):
    nvml = RealNvml(library=stub_library)
    nvml.init()
    gpu = nvml.device_by_index(0)
    instance = gpu.create_gpu_instance(19, Placement(3, 1))
    uuid = instance.create_compute_instance(0).info().device.uuid()
    program = (
        "import sys; from pathlib import Path\n"
        "from dra_driver_gpu.nvml.real import RealNvml; from dra_driver_gpu.nvml import profiles\n"
        "nvml = RealNvml(library=Path(sys.argv[1])); nvml.init(); gpu = nvml.device_by_index(0)\n"
        "print(profiles.mig_devices(gpu)[0].uuid()); gpu.create_gpu_instance(19)\n"
    )
    paths = os.pathsep.join(str(Path(__file__).parents[number]) for number in (3, 5))
    done = subprocess.run(
        [sys.executable, "-c", program, str(stub_library)],
        env={**os.environ, "PYTHONPATH": paths},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == uuid
    assert len(profiles.gpu_instances(gpu)) == 2
    nvml.shutdown()


def test_two_libraries_do_not_share_their_state(state, stub_library, tmp_path):
    copy = tmp_path / "copy.so"
    copy.write_bytes(stub_library.read_bytes())
    first, second = RealNvml(library=stub_library), RealNvml(library=copy)
    first.init()
    with pytest.raises(errors.UninitializedError):
        second.device_count()
    assert first.device_count() == 1
    first.shutdown()
