"""Finding and loading the library of a driver, also an old one and an updated one."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest
from dra_driver_gpu.describe import read_inventory
from dra_driver_gpu.health.history import read
from dra_driver_gpu.nvml import errors, queries
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.nvml.real import RealNvml, find_library
from dra_driver_gpu.nvml.real.library import SONAME, load
from dra_driver_gpu.nvml.values import AddressingMode, RecoveryAction
from dra_driver_gpu.testing.memory_answers import MemoryAnswers
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu
from dra_driver_gpu.testing.nvml_stub import SOCKET_VARIABLE, StubServer, build_stub

from dra_sdk.hardware import Host
from dra_sdk.hardware.host_paths import LIBRARY_DIRS, file_below

_NOT_BEFORE_MIG = (
    "nvmlDeviceGetGpuInstanceProfileInfo",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetArchitecture",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetRemappedRows",
)


@pytest.fixture
def memory(monkeypatch):
    """The GPUs behind the library."""
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    with StubServer(MemoryAnswers(nvml)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        yield nvml


def test_the_library_is_found_under_the_driver_root(memory, stub_library, tmp_path):
    directory = tmp_path / "driver/usr/lib/x86_64-linux-gnu"
    directory.mkdir(parents=True)
    (directory / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580")
    (directory / "libnvidia-ml.so.580").write_bytes(stub_library.read_bytes())
    nvml = RealNvml(tmp_path / "driver")
    nvml.init()
    assert nvml.device_count() == 1
    nvml.shutdown()


def test_a_driver_can_be_installed_later(memory, stub_library, tmp_path):
    nvml = RealNvml(tmp_path / "driver")
    with pytest.raises(errors.LibraryNotFoundError):
        nvml.init()
    (tmp_path / "driver/usr/lib64").mkdir(parents=True)
    (tmp_path / "driver/usr/lib64/libnvidia-ml.so.1").write_bytes(stub_library.read_bytes())
    nvml.init()
    nvml.shutdown()


def test_without_kernel_driver_init_fails(monkeypatch, stub_library):
    monkeypatch.delenv(SOCKET_VARIABLE, raising=False)
    with pytest.raises(errors.DriverNotLoadedError, match="nvmlInitWithFlags: the kernel driver is not loaded"):
        RealNvml(library=stub_library).init()


def test_a_gpu_of_a_driver_from_before_mig_is_read(memory, old_functions, tmp_path):
    nvml = RealNvml(library=build_stub(tmp_path, without=[*old_functions, *_NOT_BEFORE_MIG]))
    nvml.init()
    inventory = read_inventory(nvml, Host(tmp_path))
    assert not inventory.errors
    [gpu] = inventory.gpus
    assert (gpu.memory_bytes, gpu.mig, gpu.profiles, gpu.cuda_version) == (40960 << 20, False, (), None)
    assert read(gpu.uuid, nvml.device_by_index(0), queries.OptionalQueries()).action is RecoveryAction.NONE
    nvml.shutdown()


def test_an_updated_driver_is_used_without_a_restart(memory, stub_library, old_library, tmp_path):
    """An updated driver container brings another library; the loaded one answers LIB_RM_VERSION_MISMATCH."""
    directory = tmp_path / "driver/usr/lib64"
    directory.mkdir(parents=True)
    link = directory / "libnvidia-ml.so.1"
    (directory / "libnvidia-ml.so.570.1").write_bytes(old_library.read_bytes())
    (directory / "libnvidia-ml.so.580.2").write_bytes(stub_library.read_bytes())
    link.symlink_to("libnvidia-ml.so.570.1")
    nvml = RealNvml(tmp_path / "driver")
    nvml.init()
    nvml.init()
    link.unlink()
    link.symlink_to("libnvidia-ml.so.580.2")
    nvml.shutdown()
    with pytest.raises(errors.FunctionNotFoundError):  # there is another user
        nvml.device_by_index(0).addressing_mode()
    nvml.shutdown()
    nvml.init()
    assert nvml.device_by_index(0).addressing_mode() is AddressingMode.HMM
    nvml.shutdown()


def test_another_process_sees_the_same_mig_devices(memory, stub_library):
    nvml = RealNvml(library=stub_library)
    nvml.init()
    gpu = nvml.device_by_index(0)
    instance = gpu.create_gpu_instance(19, Placement(3, 1))
    uuid = instance.create_compute_instance(0).info().device.uuid()
    program = (
        "import sys; from pathlib import Path\n"
        "from dra_driver_gpu.nvml.real import RealNvml; from dra_driver_gpu.nvml import queries\n"
        "nvml = RealNvml(library=Path(sys.argv[1])); nvml.init(); gpu = nvml.device_by_index(0)\n"
        "print(queries.OptionalQueries().mig_devices('', gpu)[0].uuid()); gpu.create_gpu_instance(19)\n"
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
    assert len(queries.gpu_instances(gpu)) == 2
    nvml.shutdown()


def test_two_libraries_in_one_process_are_not_mixed_up(memory, stub_library, old_library):
    new, old = RealNvml(library=stub_library), RealNvml(library=old_library)
    new.init()
    old.init()
    assert new.device_by_index(0).addressing_mode() is AddressingMode.HMM
    with pytest.raises(errors.FunctionNotFoundError):
        old.device_by_index(0).addressing_mode()
    assert new.device_by_index(0).addressing_mode() is AddressingMode.HMM
    old.shutdown()
    new.shutdown()


def _write(path, text=""):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@pytest.mark.parametrize("directory", LIBRARY_DIRS)
def test_the_library_is_found_in_every_library_directory(tmp_path, directory):
    library = _write(tmp_path / directory / SONAME)
    assert find_library(tmp_path) == str(library)


def test_links_are_followed_inside_the_driver_root(tmp_path):
    library = _write(tmp_path / "root/usr/lib64/libnvidia-ml.so.580.95.05")
    (tmp_path / "root/usr/lib64/libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    assert find_library(tmp_path / "root") == str(library)


def test_absolute_links_point_into_the_driver_root_not_to_the_host(tmp_path):
    library = _write(tmp_path / "root/opt/nvidia/libnvidia-ml.so.580.95.05")
    (tmp_path / "root/usr/lib64").mkdir(parents=True)
    (tmp_path / "root/usr/lib64/libnvidia-ml.so.1").symlink_to("/opt/nvidia/libnvidia-ml.so.580.95.05")
    assert find_library(tmp_path / "root") == str(library)


def test_linked_directories_are_followed_inside_the_driver_root(tmp_path):
    library = _write(tmp_path / "root/usr/lib64/libnvidia-ml.so.1")
    (tmp_path / "root/lib64").symlink_to("/usr/lib64")
    (tmp_path / "root/more").symlink_to("usr")
    assert file_below(tmp_path / "root", tmp_path.joinpath("lib64", SONAME).relative_to(tmp_path)) == library
    assert file_below(tmp_path / "root", tmp_path.joinpath("more/lib64", SONAME).relative_to(tmp_path)) == library


def test_a_link_out_of_the_driver_root_stays_file_below(tmp_path):
    _write(tmp_path / "secret")
    (tmp_path / "root/usr/lib64").mkdir(parents=True)
    (tmp_path / "root/usr/lib64" / SONAME).symlink_to("../../../secret")
    with pytest.raises(errors.LibraryNotFoundError):
        find_library(tmp_path / "root")


def test_a_loop_of_links_and_a_directory_are_no_library(tmp_path):
    (tmp_path / "usr/lib64").mkdir(parents=True)
    (tmp_path / "usr/lib64" / SONAME).symlink_to(SONAME)
    (tmp_path / "lib64" / SONAME).mkdir(parents=True)
    with pytest.raises(errors.LibraryNotFoundError):
        find_library(tmp_path)


def test_a_missing_library_is_reported_with_the_directories_searched(tmp_path):
    with pytest.raises(
        errors.LibraryNotFoundError, match=rf"no {SONAME} under driver root {tmp_path} \(searched usr/lib64, "
    ) as raised:
        find_library(tmp_path)
    assert raised.value.code == 12


def test_a_file_that_is_no_library_is_reported(tmp_path):
    library = _write(tmp_path / SONAME, "not ELF")
    with pytest.raises(errors.LibraryNotFoundError, match=f"{library} cannot be loaded"):
        load(str(library))


def test_without_nvidia_ml_py_the_error_names_the_extra(tmp_path, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(
        errors.LibraryNotFoundError, match=r"nvidia-ml-py is not installed; it comes with the extra dra-sdk\[gpu\]"
    ):
        load(str(tmp_path / "anything"))


def test_each_library_has_its_own_binding(stub_library, tmp_path):
    copy = tmp_path / "copy.so"
    copy.write_bytes(stub_library.read_bytes())
    assert load(str(stub_library)) is load(str(stub_library))
    assert load(str(copy)) is not load(str(stub_library))
