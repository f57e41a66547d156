"""The stub library: building it, and its state file."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml import errors
from dra_driver_gpu.nvml.memory import fake_gpu
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.testing import StubState, build_stub, nvml_stub

from dra_sdk import SettingsError


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def state(tmp_path):
    return StubState(tmp_path / "nvml", [fake_gpu("A100-40GB")])


@pytest.fixture
def nvml(library, state, tmp_path, monkeypatch):
    for name, value in state.environment.items():
        monkeypatch.setenv(name, value)
    nvml = RealNvml(library=library)
    nvml.init()
    yield nvml
    StubState(tmp_path / "nvml", [])  # a readable file again
    nvml.shutdown()


def test_a_missing_compiler_is_reported(tmp_path):
    with pytest.raises(SettingsError, match="needs the C compiler no-such-cc, which is not on PATH"):
        build_stub(tmp_path, compiler="no-such-cc")


def test_errors_of_the_compiler_are_reported(tmp_path, monkeypatch):
    (tmp_path / "broken.c").write_text("int x = ;")
    monkeypatch.setattr(nvml_stub, "SOURCES", tmp_path)
    with pytest.raises(SettingsError, match=r"does not compile: .*broken\.c:1"):
        build_stub(tmp_path)


def test_the_library_reads_what_it_wrote(nvml, tmp_path):
    gpu = nvml.device_by_index(0)
    gpu.set_persistence_mode(on=True)  # from now on the file is as the library writes it
    gpu.set_mig_mode(on=True)
    first = (tmp_path / "nvml").read_text()
    instance = gpu.create_gpu_instance(9)
    instance.create_compute_instance(2)
    assert "\ngi 0 2 9 4 4\nci 0 2 0 2 0 3 0 MIG-" in (tmp_path / "nvml").read_text()
    instance.compute_instance(0).destroy()
    instance.destroy()
    assert (tmp_path / "nvml").read_text() == first
    assert sorted(path.name for path in tmp_path.iterdir()) == ["nvml", "nvml.lock"]


def test_an_operator_sets_modes(nvml, state):
    gpu = nvml.device_by_index(0)
    state.set_compute_mode(gpu.uuid(), ComputeMode.PROHIBITED)
    state.set_persistence(gpu.uuid(), on=True)
    assert (gpu.compute_mode(), gpu.persistence_mode()) == (ComputeMode.PROHIBITED, True)


def test_a_malformed_line_is_reported_on_stderr(nvml, tmp_path, capfd):
    with (tmp_path / "nvml").open("a") as file:
        file.write("gi 0 99 19 0 1\n")
    with pytest.raises(errors.DriverNotLoadedError):
        nvml.device_count()
    assert "cannot be read: gi 0 99 19 0 1" in capfd.readouterr().err
