"""What the driver reads by NVML is what nvidia-smi prints, and what this repository says of the model."""

from __future__ import annotations

import math
import subprocess
from functools import partial
from pathlib import Path

import pytest
from dra_driver_gpu.nvml.errors import NotSupportedError
from dra_driver_gpu.nvml.queries import ask_offered, gpu_instance_profiles
from dra_driver_gpu.nvml.real import RealNvml
from dra_driver_gpu.nvml.real.handles import RealGpu
from dra_driver_gpu.nvml.values import ComputeMode, EccCounter, EccKind, EventType
from dra_driver_gpu.testing.nvml.models import MODELS, gpu_instance_profile

from tests.gpu.conftest import Query

NAMES = (
    "uuid",
    "name",
    "pci.bus_id",
    "pci.device_id",
    "pci.sub_device_id",
    "memory.total",
    "memory.reserved",
    "compute_cap",
    "persistence_mode",
    "compute_mode",
    "mig.mode.current",
    "mig.mode.pending",
    "ecc.errors.corrected.volatile.total",
    "ecc.errors.uncorrected.volatile.total",
    "ecc.errors.corrected.aggregate.total",
    "ecc.errors.uncorrected.aggregate.total",
    "remapped_rows.correctable",
    "remapped_rows.uncorrectable",
    "remapped_rows.pending",
    "remapped_rows.failure",
    "addressing_mode",
    "gpu_recovery_action",
)
ABSENT = "[N/A]"
QUERIES = (
    "uuid",
    "minor_number",
    "name",
    "brand",
    "architecture",
    "compute_capability",
    "memory",
    "pci",
    "addressing_mode",
    "module_id",
    "virtualization_mode",
    "compute_mode",
    "persistence_mode",
    "processes",
    "remapped_rows",
    "recovery_action",
    "supported_events",
    "mig_mode",
    "max_mig_devices",
)


def gpus(nvml: RealNvml) -> list[RealGpu]:
    found = [nvml.device_by_index(index) for index in range(nvml.device_count())]
    assert found, "this machine has no NVIDIA GPU"
    return found


def shown(gpu: RealGpu) -> dict[str, str]:
    """The values as nvidia-smi prints them."""
    memory, pci, rows = gpu.memory(), gpu.pci(), gpu.remapped_rows()
    mode, mig = ask_offered(gpu.compute_mode), ask_offered(gpu.mig_mode)
    names = {ComputeMode.DEFAULT: "Default", ComputeMode.PROHIBITED: "Prohibited"}
    return {
        "uuid": gpu.uuid(),
        "name": gpu.name(),
        "pci.bus_id": pci.bus_id,
        "pci.device_id": f"0x{pci.device_id:08X}",
        "pci.sub_device_id": f"0x{pci.subsystem_id:08X}",
        "memory.total": str(memory.total_bytes >> 20),
        "memory.reserved": str(math.ceil(memory.reserved_bytes / (1 << 20))),
        "compute_cap": "{}.{}".format(*gpu.compute_capability()),
        "persistence_mode": "Enabled" if gpu.persistence_mode() else "Disabled",
        "compute_mode": ABSENT if mode is None else names.get(mode, "Exclusive_Process"),
        "mig.mode.current": ABSENT if mig is None else ("Enabled" if mig.current else "Disabled"),
        "mig.mode.pending": ABSENT if mig is None else ("Enabled" if mig.pending else "Disabled"),
        "remapped_rows.correctable": str(rows.correctable),
        "remapped_rows.uncorrectable": str(rows.uncorrectable),
        "remapped_rows.pending": "Yes" if rows.pending else "No",
        "remapped_rows.failure": "Yes" if rows.failed else "No",
        "addressing_mode": gpu.addressing_mode().label,
        "gpu_recovery_action": gpu.recovery_action().name.replace("_", " ").capitalize(),
        **{
            f"ecc.errors.{kind}.{counter}.total": str(ABSENT if errors is None else errors)
            for kind, ecc_kind in (("corrected", EccKind.CORRECTED), ("uncorrected", EccKind.UNCORRECTED))
            for counter, ecc_counter in (("volatile", EccCounter.VOLATILE), ("aggregate", EccCounter.AGGREGATE))
            for errors in [ask_offered(partial(gpu.ecc_errors, ecc_kind, ecc_counter))]
        },
    }


def test_each_value_is_what_nvidia_smi_prints(nvml: RealNvml, smi: Query) -> None:
    assert [shown(gpu) for gpu in gpus(nvml)] == smi(*NAMES)
    assert {nvml.driver_version()} == {each["driver_version"] for each in smi("driver_version")}


def test_each_query_has_an_answer_that_its_documentation_names(nvml: RealNvml) -> None:
    print(f"driver {nvml.driver_version()}, CUDA {nvml.cuda_version()}")
    for gpu in gpus(nvml):
        unsupported = []
        for name in QUERIES:
            try:
                print(f"{name}: {getattr(gpu, name)()}")
            except NotSupportedError as error:
                unsupported.append(f"{name}: {error}")
        print("\n".join(unsupported))
        assert len(unsupported) < len(QUERIES)


def test_a_gpu_is_found_by_each_of_its_names(nvml: RealNvml) -> None:
    for gpu in gpus(nvml):
        assert nvml.device_by_uuid(gpu.uuid()) == gpu
        assert nvml.device_by_pci_address(gpu.pci().address) == gpu
        assert hash(nvml.device_by_uuid(gpu.uuid())) == hash(gpu)


def test_profiles_and_placements_of_mig_are_those_of_the_model(nvml: RealNvml) -> None:
    """The models stand for real GPUs in the simulator, so they must be right; MIG may be on or off."""
    for gpu in gpus(nvml):
        (model,) = (each for each in MODELS.values() if each.name == gpu.name())
        assert gpu.compute_capability() == model.compute_capability
        assert gpu.architecture() is model.architecture
        assert gpu.brand() is model.brand
        assert gpu.memory().total_bytes >> 20 == model.memory_mib
        assert gpu.pci().product_id == model.product_id
        found = {each.kind: (each, gpu.possible_placements(each.id)) for each in gpu_instance_profiles(gpu)}
        for profile, placements in found.values():
            print(profile, placements)
        assert found == {row.kind: (gpu_instance_profile(row), list(row.placements)) for row in model.mig}


def test_errors_of_all_gpus_are_awaited(nvml: RealNvml) -> None:
    events = nvml.create_event_set()
    try:
        for gpu in gpus(nvml):
            events.register(gpu, gpu.supported_events() & EventType.XID_CRITICAL_ERROR)
        assert events.wait(100) is None
    finally:
        events.free()


def test_a_process_is_seen_while_it_computes(nvml: RealNvml, sum_program: Path) -> None:
    process = subprocess.Popen([sum_program, "wait"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        uuid = process.stdout.readline().strip()
        gpu = nvml.device_by_uuid(uuid)
        seen = gpu.processes()
        print(seen)
        process.communicate("\n", timeout=30)
    assert [each.pid for each in seen] == [process.pid]
    assert process.returncode == 0
    assert gpu.processes() == []


def test_nvml_opens_again_after_its_last_user(nvml: RealNvml) -> None:
    first = [gpu.uuid() for gpu in gpus(nvml)]
    nvml.shutdown()
    nvml.init()
    assert [gpu.uuid() for gpu in gpus(nvml)] == first
    with pytest.raises(Exception, match="nvmlDeviceGetHandleByIndex"):
        nvml.device_by_index(len(first))
