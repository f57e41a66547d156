"""GPUs."""

from __future__ import annotations

import pytest
from dra_driver_gpu.nvml import errors
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.mig import MigMode
from dra_driver_gpu.nvml.values import (
    AddressingMode,
    Architecture,
    Brand,
    ComputeMode,
    EccCounter,
    EccKind,
    EventType,
    GpuProcess,
    MemoryInfo,
    PciInfo,
    RecoveryAction,
    RemappedRows,
    VirtualizationMode,
)
from dra_driver_gpu.testing.nvml import MODELS, ProcessKind, fake_gpu
from dra_driver_gpu.testing.nvml.models import FakeGpu

_GIB = 1 << 30


def test_the_library_reports_versions_and_counts_gpus(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", 0), fake_gpu("L4", 1))
    assert nvml.driver_version() == "580.95.05"
    assert nvml.cuda_version() == 13000
    assert nvml.device_count() == 2


def test_a_node_without_gpus_is_no_error(make_nvml):
    assert make_nvml().device_count() == 0


def test_nothing_answers_before_init_and_after_shutdown(make_nvml):
    nvml = make_nvml(fake_gpu("L4"))
    gpu = nvml.device_by_index(0)
    nvml.init()
    nvml.shutdown()
    assert gpu.minor_number() == 0  # initialized twice, shut down once
    nvml.shutdown()
    for ask in (nvml.device_count, gpu.uuid):
        with pytest.raises(errors.NvmlError) as raised:
            ask()
        assert raised.value.code == ReturnCode.UNINITIALIZED


def test_a_gpu_reports_what_it_is(make_nvml):
    gpu = make_nvml(fake_gpu("H100-80GB", 3)).device_by_index(0)
    assert gpu.name() == "NVIDIA H100 80GB HBM3"
    assert gpu.uuid().startswith("GPU-")
    assert gpu.minor_number() == 3
    assert gpu.brand() is Brand.NVIDIA
    assert gpu.architecture() is Architecture.HOPPER
    assert gpu.compute_capability() == (9, 0)
    assert gpu.memory() == MemoryInfo(81559 << 20, 81559 << 20, 0)
    assert gpu.pci() == PciInfo("00000000:13:00.0", 0, 0x13, 0, 0x233010DE, 0)
    assert gpu.addressing_mode() is AddressingMode.HMM
    assert gpu.module_id() == gpu.minor_number() + 1
    assert gpu.virtualization_mode() is VirtualizationMode.NONE
    assert gpu.mig_mode() == MigMode(current=False, pending=False)
    assert gpu.persistence_mode() is False


@pytest.mark.parametrize("name", MODELS)
def test_every_model_reports_what_it_is(make_nvml, name):
    fake = fake_gpu(name)
    gpu = make_nvml(fake).device_by_index(0)
    assert (gpu.name(), gpu.architecture(), gpu.brand()) == (fake.model.name, fake.model.architecture, fake.model.brand)
    assert gpu.pci().product_id == fake.model.product_id
    assert gpu.pci().address == fake.pci_address


def test_a_gpu_is_found_by_uuid_and_by_either_spelling_of_its_address(make_nvml):
    nvml = make_nvml(fake_gpu("A30", 0), fake_gpu("A30", 1))
    gpu = nvml.device_by_index(1)
    assert nvml.device_by_uuid(nvml.gpus[1].uuid) == gpu
    assert nvml.device_by_pci_address("0000:11:00.0") == gpu
    assert nvml.device_by_pci_address(gpu.pci().bus_id) == gpu
    assert len({gpu, nvml.device_by_index(1), nvml.device_by_index(0)}) == 2


def test_an_unknown_gpu_is_not_found(make_nvml):
    nvml = make_nvml(fake_gpu("A30"))
    with pytest.raises(errors.InvalidArgumentError):
        nvml.device_by_index(1)
    with pytest.raises(errors.NotFoundError) as raised:
        nvml.device_by_uuid("GPU-nobody")
    assert (raised.value.call, raised.value.code) == ("nvmlDeviceGetHandleByUUID", 6)
    with pytest.raises(errors.NotFoundError):
        nvml.device_by_pci_address("0000:99:00.0")
    with pytest.raises(errors.InvalidArgumentError):
        nvml.device_by_pci_address("nowhere")


def test_pci_domains_may_have_more_than_four_digits(make_nvml):
    gpu = make_nvml(FakeGpu(model=MODELS["L4"], minor=0, uuid="GPU-x", pci_address="10001:02:1f.0")).device_by_index(0)
    assert gpu.pci().bus_id == "00010001:02:1F.0"
    assert gpu.pci().address == "10001:02:1f.0"


def test_a_gpu_that_shares_memory_with_the_host_reports_none(make_nvml):
    with pytest.raises(errors.NotSupportedError):
        make_nvml(fake_gpu("GB10")).device_by_index(0).memory()


def test_what_a_gpu_lacks_is_not_supported(make_nvml):
    gpu = make_nvml(
        FakeGpu(model=MODELS["T4"], minor=0, uuid="GPU-x", pci_address="0000:01:00.0", ecc=False)
    ).device_by_index(0)
    for ask in (gpu.addressing_mode, gpu.mig_mode, gpu.remapped_rows):
        with pytest.raises(errors.NotSupportedError):
            ask()
    with pytest.raises(errors.NotSupportedError):
        gpu.ecc_errors(EccKind.CORRECTED, EccCounter.VOLATILE)
    assert EventType.DOUBLE_BIT_ECC_ERROR not in gpu.supported_events()
    assert EventType.XID_CRITICAL_ERROR in gpu.supported_events()


def test_modes_are_set_and_read_back(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB")).device_by_index(0)
    gpu.set_compute_mode(ComputeMode.EXCLUSIVE_PROCESS)
    assert gpu.compute_mode() is ComputeMode.EXCLUSIVE_PROCESS
    gpu.set_compute_mode(ComputeMode.DEFAULT)
    assert gpu.compute_mode() is ComputeMode.DEFAULT
    gpu.set_persistence_mode(on=True)
    assert gpu.persistence_mode() is True


def test_a_gpu_with_mig_on_has_no_compute_mode(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    with pytest.raises(errors.NotSupportedError):
        gpu.compute_mode()
    with pytest.raises(errors.NotSupportedError):
        gpu.set_compute_mode(ComputeMode.PROHIBITED)


def test_without_privilege_nothing_can_be_changed(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB"), privileged=False).device_by_index(0)
    for change in (
        lambda: gpu.set_compute_mode(ComputeMode.PROHIBITED),
        lambda: gpu.set_persistence_mode(on=True),
        lambda: gpu.set_mig_mode(on=True),
    ):
        with pytest.raises(errors.NvmlError) as raised:
            change()
        assert raised.value.code == ReturnCode.NO_PERMISSION
    assert gpu.compute_mode() is ComputeMode.DEFAULT
    assert gpu.mig_mode().current is False


def test_processes_of_all_kinds_are_listed_once(make_nvml):
    nvml = make_nvml(fake_gpu("L4", 0), fake_gpu("L4", 1))
    uuid = nvml.gpus[0].uuid
    assert nvml.device_by_index(0).processes() == []
    nvml.add_process(uuid, 10, used_bytes=_GIB)
    nvml.add_process(uuid, 10, used_bytes=_GIB, kind=ProcessKind.GRAPHICS)
    nvml.add_process(uuid, 11, kind=ProcessKind.MPS)
    assert sorted(nvml.device_by_index(0).processes(), key=lambda process: process.pid) == [
        GpuProcess(10, _GIB),
        GpuProcess(11, None),
    ]
    assert nvml.device_by_index(1).processes() == []
    nvml.end_process(10)
    assert nvml.device_by_index(0).processes() == [GpuProcess(11, None)]


def test_used_memory_is_the_sum_of_the_processes(make_nvml):
    nvml = make_nvml(fake_gpu("A30"))
    nvml.add_process(nvml.gpus[0].uuid, 10, used_bytes=2 * _GIB)
    assert nvml.device_by_index(0).memory() == MemoryInfo(24 * _GIB, 22 * _GIB, 2 * _GIB)


def test_a_list_of_processes_that_is_not_kept_counts_as_empty(make_nvml):
    nvml = make_nvml(fake_gpu("L4"))
    nvml.add_process(nvml.gpus[0].uuid, 10)
    nvml.fail("nvmlDeviceGetGraphicsRunningProcesses_v3", ReturnCode.NOT_SUPPORTED)
    assert [process.pid for process in nvml.device_by_index(0).processes()] == [10]


def test_ecc_errors_remapped_rows_and_recovery_action(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB"))
    uuid, gpu = nvml.gpus[0].uuid, nvml.device_by_index(0)
    assert gpu.ecc_errors(EccKind.UNCORRECTED, EccCounter.AGGREGATE) == 0
    assert gpu.remapped_rows() == RemappedRows(0, 0, pending=False, failed=False)
    assert gpu.recovery_action() is RecoveryAction.NONE
    nvml.set_ecc_errors(uuid, EccKind.UNCORRECTED, EccCounter.AGGREGATE, 1 << 40)
    nvml.set_remapped_rows(uuid, RemappedRows(1, 2, pending=True, failed=False))
    nvml.set_recovery_action(uuid, RecoveryAction.GPU_RESET)
    assert gpu.ecc_errors(EccKind.UNCORRECTED, EccCounter.AGGREGATE) == 1 << 40
    assert gpu.ecc_errors(EccKind.CORRECTED, EccCounter.AGGREGATE) == 0
    assert gpu.remapped_rows() == RemappedRows(1, 2, pending=True, failed=False)
    assert gpu.recovery_action() is RecoveryAction.GPU_RESET


def test_a_lost_gpu_answers_nothing_and_the_others_still_do(make_nvml):
    nvml = make_nvml(fake_gpu("L4", 0), fake_gpu("L4", 1))
    gpu = nvml.device_by_index(0)
    nvml.lose(nvml.gpus[0].uuid)
    for ask in (gpu.uuid, gpu.minor_number, gpu.memory, gpu.processes, lambda: nvml.device_by_index(0)):
        with pytest.raises(errors.GpuIsLostError):
            ask()
    assert nvml.device_count() == 2
    assert nvml.device_by_index(1).minor_number() == 1
    nvml.reset(nvml.gpus[0].uuid)
    assert gpu.minor_number() == 0


def test_a_test_chooses_which_calls_fail_and_how_often(make_nvml):
    nvml = make_nvml(fake_gpu("L4"))
    gpu = nvml.device_by_index(0)
    nvml.fail("nvmlDeviceGetUUID", ReturnCode.TIMEOUT, nth=2, times=2)
    assert gpu.uuid() == nvml.gpus[0].uuid
    for _ in range(2):
        with pytest.raises(errors.TimedOutError) as raised:
            gpu.uuid()
        assert raised.value.call == "nvmlDeviceGetUUID"
    assert gpu.uuid() == nvml.gpus[0].uuid


def test_a_call_can_fail_after_its_effect(make_nvml):
    nvml = make_nvml(fake_gpu("L4"))
    nvml.fail("nvmlDeviceSetPersistenceMode", ReturnCode.UNKNOWN, after=True)
    with pytest.raises(errors.NvmlError) as raised:
        nvml.device_by_index(0).set_persistence_mode(on=True)
    assert raised.value.code == ReturnCode.UNKNOWN
    assert nvml.device_by_index(0).persistence_mode() is True


def test_init_can_fail(make_nvml):
    nvml = make_nvml(fake_gpu("L4"))
    nvml.fail("nvmlInitWithFlags", ReturnCode.LIB_RM_VERSION_MISMATCH)
    with pytest.raises(errors.NvmlError) as raised:
        nvml.init()
    assert raised.value.code == ReturnCode.LIB_RM_VERSION_MISMATCH
