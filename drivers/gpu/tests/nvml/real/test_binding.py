"""The real binding through the binary interface of the stub: for each method of `api` the functions that it calls,
their arguments, and each field of their results. Numbers are as large as their C types allow, so that no field is
read from a wrong place or in a wrong width unnoticed.
"""

from __future__ import annotations

import inspect
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import pytest
from dra_driver_gpu.nvml import api, errors
from dra_driver_gpu.nvml.api import ComputeInstanceInfo, GpuInstanceInfo, NvmlEvent
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.mig import (
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    GpuInstanceProfileKind,
    MigAttributes,
    MigMode,
    Placement,
)
from dra_driver_gpu.nvml.real import RealNvml
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
from dra_driver_gpu.testing.nvml_stub import Answer, GoldenAnswers

GPU, MIG, INSTANCE, COMPUTE, EVENTS, OTHER = (0x7F12_3456_7000 + 16 * number for number in range(6))
WORD = 0xFFFF_FF00  # with a small number added: an unsigned int
LONG = 0xFFFF_FFFF_FFFF_FF00  # with a small number added: an unsigned long long
_MIG_NAME = "MIG 1g.5gb+me"
_KIND = GpuInstanceProfileKind.SLICE_1_REV1
_SHARE = ComputeInstanceProfileKind.SLICE_3


@dataclass
class Things:
    """A handle of each kind."""

    nvml: RealNvml
    gpu: api.Gpu
    mig: api.MigDevice
    instance: api.GpuInstance
    compute: api.ComputeInstance
    events: api.EventSet


class Case(NamedTuple):
    """A method: how it is called, which functions of NVML it calls and what they answer, and its result.

    of: the method in `api`.
    ask: calls it.
    calls: each call of a function, with its arguments.
    answers: the answer of each function; SUCCESS without a result by default.
    expected: the result, or a function that makes it.
    old: with the library of an old driver.
    """

    of: str
    ask: Callable[[Things], Any]
    calls: list[tuple[str | int, ...]]
    answers: dict[str, Answer]
    expected: Any = None
    old: bool = False


def one(of: str, ask: Callable[[Things], Any], call: tuple[Any, ...], answer: Answer, expected: Any = None) -> Case:
    """A method that calls one function once."""
    return Case(of, ask, [call], {call[0]: answer}, expected)


def numbers(*values: int, text: str = "") -> Answer:
    return Answer(values, text)


def _gpu_profile(name: str) -> GpuInstanceProfile:
    return GpuInstanceProfile(
        kind=_KIND,
        id=WORD,
        name=name,
        slices=WORD + 1,
        instances=WORD + 2,
        multiprocessors=WORD + 3,
        copy_engines=WORD + 4,
        decoders=WORD + 5,
        encoders=WORD + 6,
        jpeg_engines=WORD + 7,
        ofa_engines=WORD + 8,
        memory_mib=LONG + 9,
        p2p=True,
    )


def _share(name: str) -> ComputeInstanceProfile:
    return ComputeInstanceProfile(
        kind=_SHARE,
        id=WORD,
        name=name,
        slices=WORD + 1,
        instances=WORD + 2,
        multiprocessors=WORD + 3,
        shared_copy_engines=WORD + 4,
        shared_decoders=WORD + 5,
        shared_encoders=WORD + 6,
        shared_jpeg_engines=WORD + 7,
        shared_ofa_engines=WORD + 8,
    )


_GPU_PROFILE = numbers(*(WORD + word for word in range(9)), LONG + 9, 1, text=_MIG_NAME)
_COMPUTE_PROFILE = numbers(*(WORD + word for word in range(9)), text=_MIG_NAME)
_PROCESSES = "nvmlDeviceGet{}RunningProcesses_v3"
_PLACEMENTS = "nvmlDeviceGetGpuInstancePossiblePlacements_v2"
_NAME = "n" * 95  # the longest that fits, and so the longest that NVML gives
_VERSION = "5" * 79

LIBRARY = [
    one("Nvml.init", lambda t: t.nvml.init(), ("nvmlInitWithFlags", 1), numbers()),
    one("Nvml.shutdown", lambda t: t.nvml.shutdown(), ("nvmlShutdown",), numbers()),
    one(
        "Nvml.driver_version",
        lambda t: t.nvml.driver_version(),
        ("nvmlSystemGetDriverVersion", 80),
        numbers(text=_VERSION),
        _VERSION,
    ),
    one(
        "Nvml.cuda_version",
        lambda t: t.nvml.cuda_version(),
        ("nvmlSystemGetCudaDriverVersion_v2",),
        numbers(13000),
        13000,
    ),
    one("Nvml.device_count", lambda t: t.nvml.device_count(), ("nvmlDeviceGetCount_v2",), numbers(WORD), WORD),
    one(
        "Nvml.device_by_index",
        lambda t: t.nvml.device_by_index(31),
        ("nvmlDeviceGetHandleByIndex_v2", 31),
        numbers(GPU),
        lambda t: t.gpu,
    ),
    one(
        "Nvml.device_by_uuid",
        lambda t: t.nvml.device_by_uuid("GPU-2fa8"),
        ("nvmlDeviceGetHandleByUUID", "GPU-2fa8"),
        numbers(GPU),
        lambda t: t.gpu,
    ),
    one(
        "Nvml.device_by_pci_address",
        lambda t: t.nvml.device_by_pci_address("0000:65:00.0"),
        ("nvmlDeviceGetHandleByPciBusId_v2", "0000:65:00.0"),
        numbers(GPU),
        lambda t: t.gpu,
    ),
    one(
        "Nvml.create_event_set",
        lambda t: t.nvml.create_event_set().wait(7),
        ("nvmlEventSetCreate",),
        numbers(OTHER),
    )._replace(
        calls=[("nvmlEventSetCreate",), ("nvmlEventSetWait_v2", OTHER, 7)],
        answers={
            "nvmlEventSetCreate": numbers(OTHER),
            "nvmlEventSetWait_v2": Answer(code=ReturnCode.TIMEOUT),
        },
    ),
    one("EventSet.free", lambda t: t.events.free(), ("nvmlEventSetFree", EVENTS), numbers()),
    one(
        "EventSet.register",
        lambda t: t.events.register(t.gpu, EventType.MIG_CONFIG_CHANGE | EventType.XID_CRITICAL_ERROR),
        ("nvmlDeviceRegisterEvents", GPU, 0x108, EVENTS),
        numbers(),
    ),
    one(
        "EventSet.wait",
        lambda t: t.events.wait(4_000_000_000),
        ("nvmlEventSetWait_v2", EVENTS, 4_000_000_000),
        numbers(GPU, 0x8, LONG + 1, WORD + 2, WORD + 3),
        lambda t: NvmlEvent(t.gpu, EventType.XID_CRITICAL_ERROR, LONG + 1, WORD + 2, WORD + 3),
    ),
]
GPUS = [
    one("Gpu.uuid", lambda t: t.gpu.uuid(), ("nvmlDeviceGetUUID", GPU, 96), numbers(text=_NAME), _NAME),
    one("Gpu.name", lambda t: t.gpu.name(), ("nvmlDeviceGetName", GPU, 96), numbers(text=_NAME), _NAME),
    one("Gpu.minor_number", lambda t: t.gpu.minor_number(), ("nvmlDeviceGetMinorNumber", GPU), numbers(WORD), WORD),
    one("Gpu.module_id", lambda t: t.gpu.module_id(), ("nvmlDeviceGetModuleId", GPU), numbers(WORD), WORD),
    one("Gpu.brand", lambda t: t.gpu.brand(), ("nvmlDeviceGetBrand", GPU), numbers(16), Brand.TITAN_RTX),
    one("Gpu.brand", lambda t: t.gpu.brand(), ("nvmlDeviceGetBrand", GPU), numbers(77), Brand.UNKNOWN),
    one(
        "Gpu.architecture",
        lambda t: t.gpu.architecture(),
        ("nvmlDeviceGetArchitecture", GPU),
        numbers(10),
        Architecture.BLACKWELL,
    ),
    one(
        "Gpu.architecture",
        lambda t: t.gpu.architecture(),
        ("nvmlDeviceGetArchitecture", GPU),
        numbers(99),
        Architecture.UNKNOWN,
    ),
    one(
        "Gpu.compute_capability",
        lambda t: t.gpu.compute_capability(),
        ("nvmlDeviceGetCudaComputeCapability", GPU),
        numbers(12, 1),
        (12, 1),
    ),
    one(
        "Gpu.memory",
        lambda t: t.gpu.memory(),
        ("nvmlDeviceGetMemoryInfo_v2", GPU),
        numbers(LONG, LONG + 1, LONG + 2, LONG + 3),
        MemoryInfo(total_bytes=LONG, free_bytes=LONG + 1, used_bytes=LONG + 2, reserved_bytes=LONG + 3),
    ),
    one(
        "Gpu.memory",
        lambda t: t.gpu.memory(),
        ("nvmlDeviceGetMemoryInfo", GPU),
        numbers(LONG, LONG + 1, LONG + 2),
        MemoryInfo(total_bytes=LONG, free_bytes=LONG + 1, used_bytes=LONG + 2, reserved_bytes=0),
    )._replace(old=True),
    one(
        "Gpu.pci",
        lambda t: t.gpu.pci(),
        ("nvmlDeviceGetPciInfo_v3", GPU),
        numbers(WORD, WORD + 1, WORD + 2, WORD + 3, WORD + 4, text="FFFFFF00:65:1F.0"),
        PciInfo(
            bus_id="FFFFFF00:65:1F.0",
            domain=WORD,
            bus=WORD + 1,
            device=WORD + 2,
            device_id=WORD + 3,
            subsystem_id=WORD + 4,
        ),
    ),
    one(
        "Gpu.addressing_mode",
        lambda t: t.gpu.addressing_mode(),
        ("nvmlDeviceGetAddressingMode", GPU),
        numbers(2),
        AddressingMode.ATS,
    ),
    one(
        "Gpu.virtualization_mode",
        lambda t: t.gpu.virtualization_mode(),
        ("nvmlDeviceGetVirtualizationMode", GPU),
        numbers(4),
        VirtualizationMode.HOST_VSGA,
    ),
    one(
        "Gpu.compute_mode",
        lambda t: t.gpu.compute_mode(),
        ("nvmlDeviceGetComputeMode", GPU),
        numbers(3),
        ComputeMode.EXCLUSIVE_PROCESS,
    ),
    one(
        "Gpu.set_compute_mode",
        lambda t: t.gpu.set_compute_mode(ComputeMode.PROHIBITED),
        ("nvmlDeviceSetComputeMode", GPU, 2),
        numbers(),
    ),
    one(
        "Gpu.persistence_mode",
        lambda t: t.gpu.persistence_mode(),
        ("nvmlDeviceGetPersistenceMode", GPU),
        numbers(1),
        expected=True,
    ),
    one(
        "Gpu.set_persistence_mode",
        lambda t: t.gpu.set_persistence_mode(on=True),
        ("nvmlDeviceSetPersistenceMode", GPU, 1),
        numbers(),
    ),
    Case(
        "Gpu.processes",
        lambda t: t.gpu.processes(),
        # each list is read once for its length, and once more if it is not empty
        [(_PROCESSES.format(name), GPU) for name in ("Compute", "Compute", "Graphics", "MPSCompute", "MPSCompute")],
        {
            _PROCESSES.format("Compute"): numbers(WORD, LONG, WORD + 1, WORD + 2, 11, (1 << 64) - 1, 3, 4),
            _PROCESSES.format("Graphics"): numbers(),
            _PROCESSES.format("MPSCompute"): numbers(12, 1, 2, 3),
        },
        [GpuProcess(WORD, LONG, WORD + 1, WORD + 2), GpuProcess(11, None, 3, 4), GpuProcess(12, 1, 2, 3)],
    ),
    one(
        "Gpu.ecc_errors",
        lambda t: t.gpu.ecc_errors(EccKind.UNCORRECTED, EccCounter.VOLATILE),
        ("nvmlDeviceGetTotalEccErrors", GPU, 1, 0),
        numbers(LONG),
        LONG,
    ),
    one(
        "Gpu.remapped_rows",
        lambda t: t.gpu.remapped_rows(),
        ("nvmlDeviceGetRemappedRows", GPU),
        numbers(WORD, WORD + 1, 0, 1),
        RemappedRows(correctable=WORD, uncorrectable=WORD + 1, pending=False, failed=True),
    ),
    *(
        one(
            "Gpu.recovery_action",
            lambda t: t.gpu.recovery_action(),
            ("nvmlDeviceGetFieldValues", GPU, 1, 230, 0),
            numbers(ReturnCode.SUCCESS, number),
            action,
        )
        for number, action in ((4, RecoveryAction.DRAIN_AND_RESET), (99, RecoveryAction.UNKNOWN))
    ),
    one(
        "Gpu.supported_events",
        lambda t: t.gpu.supported_events(),
        ("nvmlDeviceGetSupportedEventTypes", GPU),
        numbers(0x109),
        EventType.MIG_CONFIG_CHANGE | EventType.XID_CRITICAL_ERROR | EventType.SINGLE_BIT_ECC_ERROR,
    ),
]
MIGS = [
    one(
        "Gpu.mig_mode",
        lambda t: t.gpu.mig_mode(),
        ("nvmlDeviceGetMigMode", GPU),
        numbers(0, 1),
        MigMode(current=False, pending=True),
    ),
    one(
        "Gpu.set_mig_mode",
        lambda t: t.gpu.set_mig_mode(on=True),
        ("nvmlDeviceSetMigMode", GPU, 1),
        numbers(ReturnCode.SUCCESS),
    ),
    one(
        "Gpu.max_mig_devices",
        lambda t: t.gpu.max_mig_devices(),
        ("nvmlDeviceGetMaxMigDeviceCount", GPU),
        numbers(WORD),
        WORD,
    ),
    one(
        "Gpu.mig_device",
        lambda t: t.gpu.mig_device(6),
        ("nvmlDeviceGetMigDeviceHandleByIndex", GPU, 6),
        numbers(MIG),
        lambda t: t.mig,
    ),
    one(
        "Gpu.gpu_instance_profile",
        lambda t: t.gpu.gpu_instance_profile(_KIND),
        ("nvmlDeviceGetGpuInstanceProfileInfoV", GPU, int(_KIND)),
        _GPU_PROFILE,
        _gpu_profile("1g.5gb+me"),
    ),
    one(
        "Gpu.gpu_instance_profile",
        lambda t: t.gpu.gpu_instance_profile(_KIND),
        ("nvmlDeviceGetGpuInstanceProfileInfo", GPU, int(_KIND)),
        _GPU_PROFILE,
        _gpu_profile(""),
    )._replace(old=True),
    Case(
        "Gpu.possible_placements",
        lambda t: t.gpu.possible_placements(19),
        [(_PLACEMENTS, GPU, 19)] * 2,  # for the length, and for the placements
        {_PLACEMENTS: numbers(WORD, 1, WORD + 2, 3)},
        [Placement(WORD, 1), Placement(WORD + 2, 3)],
    ),
    one(
        "Gpu.create_gpu_instance",
        lambda t: t.gpu.create_gpu_instance(9),
        ("nvmlDeviceCreateGpuInstance", GPU, 9),
        numbers(INSTANCE),
        lambda t: t.instance,
    ),
    one(
        "Gpu.create_gpu_instance",
        lambda t: t.gpu.create_gpu_instance(9, Placement(start=6, size=2)),
        ("nvmlDeviceCreateGpuInstanceWithPlacement", GPU, 9, 6, 2),
        numbers(INSTANCE),
        lambda t: t.instance,
    ),
    one(
        "Gpu.gpu_instances",
        lambda t: [t.instance in t.gpu.gpu_instances(14), len(t.gpu.gpu_instances(14))],
        ("nvmlDeviceGetGpuInstances", GPU, 14),
        numbers(OTHER, INSTANCE),
        [True, 2],
    )._replace(calls=[("nvmlDeviceGetGpuInstances", GPU, 14)] * 2),
    one(
        "Gpu.gpu_instance",
        lambda t: t.gpu.gpu_instance(13),
        ("nvmlDeviceGetGpuInstanceById", GPU, 13),
        numbers(INSTANCE),
        lambda t: t.instance,
    ),
    one("MigDevice.uuid", lambda t: t.mig.uuid(), ("nvmlDeviceGetUUID", MIG, 96), numbers(text=_NAME), _NAME),
    one(
        "MigDevice.gpu_instance_id",
        lambda t: t.mig.gpu_instance_id(),
        ("nvmlDeviceGetGpuInstanceId", MIG),
        numbers(WORD),
        WORD,
    ),
    one(
        "MigDevice.compute_instance_id",
        lambda t: t.mig.compute_instance_id(),
        ("nvmlDeviceGetComputeInstanceId", MIG),
        numbers(WORD),
        WORD,
    ),
    one(
        "MigDevice.attributes",
        lambda t: t.mig.attributes(),
        ("nvmlDeviceGetAttributes_v2", MIG),
        numbers(*(WORD + word for word in range(8)), LONG),
        MigAttributes(
            multiprocessors=WORD,
            shared_copy_engines=WORD + 1,
            shared_decoders=WORD + 2,
            shared_encoders=WORD + 3,
            shared_jpeg_engines=WORD + 4,
            shared_ofa_engines=WORD + 5,
            gpu_instance_slices=WORD + 6,
            compute_instance_slices=WORD + 7,
            memory_mib=LONG,
        ),
    ),
]
INSTANCES = [
    one(
        "GpuInstance.info",
        lambda t: t.instance.info(),
        ("nvmlGpuInstanceGetInfo", INSTANCE),
        numbers(GPU, WORD, WORD + 1, WORD + 2, WORD + 3),
        lambda t: GpuInstanceInfo(t.gpu, WORD, WORD + 1, Placement(WORD + 2, WORD + 3)),
    ),
    one(
        "GpuInstance.compute_instance_profile",
        lambda t: t.instance.compute_instance_profile(_SHARE),
        ("nvmlGpuInstanceGetComputeInstanceProfileInfoV", INSTANCE, int(_SHARE), 0),
        _COMPUTE_PROFILE,
        _share("1g.5gb+me"),
    ),
    one(
        "GpuInstance.compute_instance_profile",
        lambda t: t.instance.compute_instance_profile(_SHARE),
        ("nvmlGpuInstanceGetComputeInstanceProfileInfo", INSTANCE, int(_SHARE), 0),
        _COMPUTE_PROFILE,
        _share(""),
    )._replace(old=True),
    one(
        "GpuInstance.create_compute_instance",
        lambda t: t.instance.create_compute_instance(2),
        ("nvmlGpuInstanceCreateComputeInstance", INSTANCE, 2),
        numbers(COMPUTE),
        lambda t: t.compute,
    ),
    one(
        "GpuInstance.compute_instances",
        lambda t: [t.compute in t.instance.compute_instances(2), len(t.instance.compute_instances(2))],
        ("nvmlGpuInstanceGetComputeInstances", INSTANCE, 2),
        numbers(OTHER, COMPUTE),
        [True, 2],
    )._replace(calls=[("nvmlGpuInstanceGetComputeInstances", INSTANCE, 2)] * 2),
    one(
        "GpuInstance.compute_instance",
        lambda t: t.instance.compute_instance(5),
        ("nvmlGpuInstanceGetComputeInstanceById", INSTANCE, 5),
        numbers(COMPUTE),
        lambda t: t.compute,
    ),
    one("GpuInstance.destroy", lambda t: t.instance.destroy(), ("nvmlGpuInstanceDestroy", INSTANCE), numbers()),
    one(
        "ComputeInstance.info",
        lambda t: t.compute.info(),
        ("nvmlComputeInstanceGetInfo_v2", COMPUTE),
        numbers(MIG, INSTANCE, WORD, WORD + 1, WORD + 2, WORD + 3),
        lambda t: ComputeInstanceInfo(t.mig, t.instance, WORD, WORD + 1, Placement(WORD + 2, WORD + 3)),
    ),
    one("ComputeInstance.destroy", lambda t: t.compute.destroy(), ("nvmlComputeInstanceDestroy", COMPUTE), numbers()),
]
CASES = [*LIBRARY, *GPUS, *MIGS, *INSTANCES]


def make_things(golden: GoldenAnswers, library: Path) -> Things:
    """A handle of each kind, with the numbers above. Forgets the calls that made them."""
    golden.answers = {
        "nvmlInitWithFlags": numbers(),
        "nvmlDeviceGetHandleByIndex_v2": numbers(GPU),
        "nvmlDeviceGetMigDeviceHandleByIndex": numbers(MIG),
        "nvmlDeviceGetGpuInstanceById": numbers(INSTANCE),
        "nvmlGpuInstanceGetComputeInstanceById": numbers(COMPUTE),
        "nvmlEventSetCreate": numbers(EVENTS),
    }
    nvml = RealNvml(library=library)
    nvml.init()
    gpu = nvml.device_by_index(0)
    instance = gpu.gpu_instance(0)
    things = Things(nvml, gpu, gpu.mig_device(0), instance, instance.compute_instance(0), nvml.create_event_set())
    golden.answers = {}
    golden.calls.clear()
    return things


@pytest.fixture
def things(golden: GoldenAnswers, stub_library: Path) -> Things:
    return make_things(golden, stub_library)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.of}-{case.calls[0][0]}")
def test_a_method_reads_each_field_of_its_answer(
    case: Case, golden: GoldenAnswers, stub_library: Path, old_library: Path
) -> None:
    made = make_things(golden, old_library if case.old else stub_library)
    golden.answers = case.answers
    answer = case.ask(made)
    assert answer == (case.expected(made) if callable(case.expected) else case.expected)
    assert golden.calls == case.calls


def methods() -> Iterator[str]:
    """Each method of a protocol in `api`."""
    for name, protocol in vars(api).items():
        if inspect.isclass(protocol) and Protocol in protocol.__bases__:
            members = inspect.getmembers(protocol, inspect.isfunction)
            yield from (f"{name}.{method}" for method, _ in members if not method.startswith("_"))


def test_each_method_has_a_case() -> None:
    assert {case.of for case in CASES} == set(methods())


def test_each_function_of_the_stub_is_called_by_a_case(stub_library: Path) -> None:
    listed = subprocess.run(["nm", "-D", "--defined-only", stub_library], capture_output=True, text=True, check=True)
    exported = {name for line in listed.stdout.splitlines() if (name := line.split()[-1]).startswith("nvml")}
    assert {call[0] for case in CASES for call in case.calls} == exported


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.of}-{case.calls[0][0]}")
def test_a_function_that_fails_raises_its_return_code(
    case: Case, golden: GoldenAnswers, stub_library: Path, old_library: Path
) -> None:
    made = make_things(golden, old_library if case.old else stub_library)
    golden.answers = {call[0]: Answer(code=ReturnCode.GPU_IS_LOST) for call in case.calls}
    with pytest.raises(errors.GpuIsLostError) as raised:
        case.ask(made)
    assert raised.value.call == (golden.calls[-1][0] if case.old else case.calls[0][0])


@pytest.mark.parametrize("code", [*(code for code in ReturnCode if code is not ReturnCode.SUCCESS), 12345])
def test_each_return_code_is_an_error_of_its_class(things: Things, golden: GoldenAnswers, code: int) -> None:
    golden.answers["nvmlDeviceGetName"] = Answer(code=code)
    with pytest.raises(errors.NvmlError) as raised:
        things.gpu.name()
    wanted = errors.error_of("nvmlDeviceGetName", code)
    assert (type(raised.value), raised.value.code, str(raised.value)) == (type(wanted), code, str(wanted))


def test_what_a_new_driver_has_and_an_old_one_lacks_is_not_found(golden: GoldenAnswers, old_library: Path) -> None:
    with pytest.raises(errors.FunctionNotFoundError):
        make_things(golden, old_library).gpu.addressing_mode()


def test_a_mig_mode_that_is_not_activated_raises_the_activation_status(things: Things, golden: GoldenAnswers) -> None:
    golden.answers["nvmlDeviceSetMigMode"] = numbers(ReturnCode.IN_USE)
    with pytest.raises(errors.InUseError) as raised:
        things.gpu.set_mig_mode(on=True)
    assert raised.value.call == "nvmlDeviceSetMigMode"


def test_a_field_that_the_driver_lacks_is_not_supported(things: Things, golden: GoldenAnswers) -> None:
    golden.answers["nvmlDeviceGetFieldValues"] = numbers(ReturnCode.NOT_SUPPORTED, 0)
    with pytest.raises(errors.NotSupportedError):
        things.gpu.recovery_action()


def test_a_list_of_processes_that_is_not_kept_counts_as_empty(things: Things, golden: GoldenAnswers) -> None:
    golden.answers = {
        _PROCESSES.format("Compute"): numbers(10, 0, 1, 2),
        _PROCESSES.format("Graphics"): Answer(code=ReturnCode.NOT_SUPPORTED),
        _PROCESSES.format("MPSCompute"): numbers(),
    }
    assert [process.pid for process in things.gpu.processes()] == [10]


def test_waiting_without_an_event_ends_with_none(things: Things, golden: GoldenAnswers) -> None:
    golden.answers["nvmlEventSetWait_v2"] = Answer(code=ReturnCode.TIMEOUT)
    assert things.events.wait(0) is None


def test_a_gpu_of_another_library_is_refused(things: Things, golden: GoldenAnswers) -> None:
    with pytest.raises(TypeError, match="GPUs of the same library"):
        things.events.register(object(), EventType.XID_CRITICAL_ERROR)
    assert golden.calls == []


def test_handles_to_the_same_thing_are_one_key(things: Things, golden: GoldenAnswers) -> None:
    golden.answers["nvmlDeviceGetHandleByIndex_v2"] = numbers(GPU)
    assert len({things.gpu, things.nvml.device_by_index(1)}) == 1
    golden.answers["nvmlDeviceGetHandleByIndex_v2"] = numbers(OTHER)
    assert len({things.gpu, things.nvml.device_by_index(1)}) == 2
    assert things.gpu != things.instance
