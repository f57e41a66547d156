"""The GPUs in memory through the stub library: the same as without it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from dra_driver_gpu.nvml import Gpu, Nvml, errors, queries
from dra_driver_gpu.nvml.mig import ComputeInstanceProfileKind, MigMode, Placement
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.nvml.values import ComputeMode, EccCounter, EccKind, EventType, RecoveryAction, RemappedRows
from dra_driver_gpu.testing.memory_answers import MemoryAnswers
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu
from dra_driver_gpu.testing.nvml_stub import StubServer, build_stub

GETTERS = (
    "uuid", "name", "minor_number", "module_id", "brand", "architecture", "compute_capability", "memory", "pci",
    "addressing_mode", "virtualization_mode", "compute_mode", "persistence_mode", "processes", "remapped_rows",
    "recovery_action", "supported_events", "mig_mode", "max_mig_devices",
)  # fmt: skip


class Both(NamedTuple):
    """The same GPUs through the library and without it."""

    real: Nvml
    memory: MemoryNvml

    def gpu(self, index: int = 0) -> Gpu:
        return self.real.device_by_index(index)


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build_stub(tmp_path_factory.mktemp("stub"))


@pytest.fixture
def both(library: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Both]:
    memory = MemoryNvml([fake_gpu("H100-80GB", 0), fake_gpu("GB10", 1)])
    with StubServer(MemoryAnswers(memory)) as server:
        for name, value in server.environment.items():
            monkeypatch.setenv(name, value)
        real = RealNvml(library=library)
        real.init()
        yield Both(real, memory)
        real.shutdown()
    assert memory.users == 0


def test_the_library_and_its_gpus_are_the_same(both: Both) -> None:
    real, memory = both
    assert (real.driver_version(), real.cuda_version()) == (memory.driver_version(), memory.cuda_version())
    assert real.device_count() == 2
    gpu = memory.device_by_index(0)
    assert real.device_by_uuid(gpu.uuid()) == real.device_by_pci_address(gpu.pci().bus_id) == both.gpu(0)
    assert both.gpu(0) != both.gpu(1)
    with pytest.raises(errors.NotFoundError):
        real.device_by_uuid("GPU-nobody")


@pytest.mark.parametrize("name", GETTERS)
def test_a_gpu_reports_the_same(both: Both, name: str) -> None:
    uuid = both.memory.gpus[0].uuid
    both.memory.add_process(uuid, 10, used_bytes=1 << 30)
    both.memory.add_process(uuid, 11)
    both.memory.set_remapped_rows(uuid, RemappedRows(1, 2, pending=True, failed=False))
    both.memory.set_recovery_action(uuid, RecoveryAction.NODE_REBOOT)
    assert getattr(both.gpu(), name)() == getattr(both.memory.device_by_index(0), name)()


def test_what_is_refused_is_refused(both: Both) -> None:
    with pytest.raises(errors.NotSupportedError):
        both.gpu(1).memory()
    with pytest.raises(errors.NotSupportedError):
        both.gpu(1).set_mig_mode(on=True)
    both.memory.add_process(both.memory.gpus[0].uuid, 10)
    with pytest.raises(errors.InUseError):
        both.gpu().set_mig_mode(on=True)


def test_modes_and_counters_are_those_in_memory(both: Both) -> None:
    state = both.memory.state(both.memory.gpus[0].uuid)
    both.gpu().set_compute_mode(ComputeMode.EXCLUSIVE_PROCESS)
    both.gpu().set_persistence_mode(on=True)
    assert (state.compute_mode, state.persistence) == (ComputeMode.EXCLUSIVE_PROCESS, True)
    both.memory.set_ecc_errors(state.gpu.uuid, EccKind.UNCORRECTED, EccCounter.AGGREGATE, 1 << 40)
    assert both.gpu().ecc_errors(EccKind.UNCORRECTED, EccCounter.AGGREGATE) == 1 << 40


def test_mig_devices_are_those_in_memory(both: Both) -> None:
    gpu, state = both.gpu(), both.memory.state(both.memory.gpus[0].uuid)
    gpu.set_mig_mode(on=True)
    assert state.mig == MigMode(current=True, pending=True)
    memory = both.memory.device_by_index(0)
    assert queries.gpu_instance_profiles(gpu) == queries.gpu_instance_profiles(memory)
    assert gpu.possible_placements(9) == memory.possible_placements(9)
    instance = gpu.create_gpu_instance(9, Placement(4, 4))
    share = instance.compute_instance_profile(ComputeInstanceProfileKind.SLICE_2)
    compute = instance.create_compute_instance(share.id)
    [(made, part)] = state.devices()
    [mig] = queries.OptionalQueries().mig_devices("", gpu)
    assert (mig, mig.uuid()) == (compute.info().device, part.uuid)
    assert (mig.gpu_instance_id(), mig.compute_instance_id()) == (made.id, part.id)
    assert mig.attributes() == memory.mig_device(part.index).attributes()
    assert (share, compute.info().placement) == (part.profile, part.placement)
    assert (instance.info().gpu, instance.info().placement) == (gpu, made.placement)
    assert gpu.gpu_instances(9) == [gpu.gpu_instance(made.id)] == [compute.info().gpu_instance] == [instance]
    assert instance.compute_instances(share.id) == [instance.compute_instance(part.id)] == [compute]
    compute.destroy()
    with pytest.raises(errors.InvalidArgumentError):
        mig.uuid()
    instance.destroy()
    assert gpu.create_gpu_instance(19).info().id in state.instances


def test_events_and_lost_gpus_reach_the_caller(both: Both) -> None:
    uuid = both.memory.gpus[0].uuid
    events = both.real.create_event_set()
    events.register(both.gpu(), EventType.XID_CRITICAL_ERROR)
    assert events.wait(0) is None
    both.memory.inject_event(uuid, EventType.XID_CRITICAL_ERROR, 79, gpu_instance_id=3, compute_instance_id=1)
    event = events.wait(30_000)
    assert event is not None
    assert (event.gpu, event.type, event.data) == (both.gpu(), EventType.XID_CRITICAL_ERROR, 79)
    assert (event.gpu_instance_id, event.compute_instance_id) == (3, 1)
    both.memory.lose(uuid)
    with pytest.raises(errors.GpuIsLostError):
        events.wait(30_000)
    both.memory.reset(uuid)
    events.free()
    assert both.memory.event_sets == 0
