"""The inventory of a node, with old drivers and changes while it is read, and snapshots, which notice changes."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dra_driver_gpu.describe import PublishOptions, make_pool, read_inventory
from dra_driver_gpu.describe.inventory import GpuInventory, snapshot
from dra_driver_gpu.gpu_record import gpu_records
from dra_driver_gpu.nvml.errors import NvmlError, ReturnCode
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.nvml.values import Architecture, Brand
from dra_driver_gpu.testing.nvml import MODELS, FakeGpu, MemoryNvml, fake_gpu

from dra_sdk.hardware import Host, Omission, collecting_omissions
from dra_sdk.testing import claim, request

OPTIONAL = (
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetBrand",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetVirtualizationMode",
    "nvmlDeviceGetMemoryInfo_v2",
)
OF_MIG_DEVICES = (
    "nvmlDeviceGetMaxMigDeviceCount",
    "nvmlDeviceGetMigDeviceHandleByIndex",
    "nvmlDeviceGetGpuInstances",
    "nvmlGpuInstanceGetInfo",
    "nvmlDeviceGetGpuInstanceId",
    "nvmlDeviceGetComputeInstanceId",
    "nvmlDeviceGetAttributes_v2",
)
OUT_OF_REACH = {
    ReturnCode.UNINITIALIZED,
    ReturnCode.DRIVER_NOT_LOADED,
    ReturnCode.LIBRARY_NOT_FOUND,
    ReturnCode.GPU_IS_LOST,
    ReturnCode.RESET_REQUIRED,
    ReturnCode.LIB_RM_VERSION_MISMATCH,
}
ODD = [code for code in ReturnCode if code not in {ReturnCode.SUCCESS, *OUT_OF_REACH}]
MIG = {"dynamic_mig": True, "created_by_us": lambda _gpu, _mig: False}


def read(nvml: MemoryNvml) -> GpuInventory:
    nvml.init()
    try:
        return read_inventory(nvml, Host(Path("/nowhere")))
    finally:
        nvml.shutdown()


def names(nvml: MemoryNvml, **options: Any) -> list[str]:
    return [device.name for device in make_pool("n", read(nvml).gpus, (), PublishOptions(**options)).devices]


def create(nvml: MemoryNvml, profile: int, placement: Placement, *, compute: int | None = 0) -> None:
    nvml.init()
    instance = nvml.device_by_index(0).create_gpu_instance(profile, placement)
    if compute is not None:
        instance.create_compute_instance(compute)
    nvml.shutdown()


@pytest.mark.parametrize("code", ODD)
@pytest.mark.parametrize("function", OPTIONAL)
def test_an_optional_query_that_fails_hides_no_gpu(function: str, code: ReturnCode) -> None:
    nvml = MemoryNvml([fake_gpu("H100-80GB")])
    nvml.fail(function, code, times=10**6)
    inventory = read(nvml)
    assert not inventory.errors
    assert names(nvml) == ["gpu-0"]
    assert "gpu-0" in names(nvml, dynamic_mig=True)


@pytest.mark.parametrize("code", sorted(OUT_OF_REACH))
@pytest.mark.parametrize("function", OPTIONAL)
def test_a_gpu_that_is_out_of_reach_is_an_error_whichever_query_notices_it(function: str, code: ReturnCode) -> None:
    nvml = MemoryNvml([fake_gpu("H100-80GB")])
    nvml.fail(function, code, times=10**6)
    if function.startswith("nvmlSystem"):
        with pytest.raises(NvmlError) as raised:
            read(nvml)
        assert raised.value.code == code
    else:
        assert {index: error.code for index, error in read(nvml).errors.items()} == {0: code}


@pytest.mark.parametrize("code", ODD)
@pytest.mark.parametrize("function", [*OPTIONAL, *OF_MIG_DEVICES])
def test_a_query_that_fails_hides_no_gpu_with_mig_on(function: str, code: ReturnCode) -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    create(nvml, 19, Placement(0, 1))
    nvml.fail(function, code, times=10**6)
    inventory = read(nvml)
    assert not inventory.errors
    assert [gpu.mig for gpu in inventory.gpus] == [True]


@pytest.mark.parametrize("function", ["nvmlDeviceGetMigDeviceHandleByIndex", *OF_MIG_DEVICES[3:]])
def test_a_mig_device_that_cannot_be_read_hides_no_other(function: str) -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    for start in (0, 1):
        create(nvml, 19, Placement(start, 1))
    nvml.fail(function, ReturnCode.UNKNOWN)
    assert len(names(nvml)) == 1
    assert len(names(nvml)) == 2


def test_without_memory_a_gpu_has_the_profiles_that_the_driver_names() -> None:
    nvml = MemoryNvml([fake_gpu("H100-80GB")])
    nvml.fail("nvmlDeviceGetMemoryInfo_v2", ReturnCode.ARGUMENT_VERSION_MISMATCH, times=10**6)
    assert "gpu-0-mig-1g10gb-19-3" in names(nvml, dynamic_mig=True)


def test_a_query_that_fails_is_left_out_for_each_gpu() -> None:
    nvml = MemoryNvml([fake_gpu("H100-80GB", minor) for minor in range(2)])
    nvml.fail("nvmlDeviceGetAddressingMode", ReturnCode.UNKNOWN, times=10**6)
    nvml.fail("nvmlDeviceGetBrand", ReturnCode.NOT_SUPPORTED, times=10**6)
    with collecting_omissions() as omissions:
        read(nvml)
    why = "nvmlDeviceGetAddressingMode: unknown error (NVML return code 999)"
    assert omissions == {
        Omission(f"{gpu.uuid} nvmlDeviceGetAddressingMode", f"{gpu.uuid} does not answer: {why}", is_device=False)
        for gpu in nvml.gpus
    }


@pytest.mark.parametrize("mib", [80896, 80800])
def test_a_profile_has_the_name_that_the_driver_says(mib: int) -> None:
    """An A100 80GB that reports 79 GiB has 7g.80gb, as NVML says, and no 7g.79gb."""
    gpu = fake_gpu("A100-80GB", mig=True)
    nvml = MemoryNvml([replace(gpu, model=replace(gpu.model, memory_mib=mib))])
    [known] = read(nvml).gpus
    assert sorted({profile.name for profile in known.profiles}) == sorted({row.name for row in gpu.model.mig})
    assert "gpu-0-mig-7g80gb-0-0" in names(nvml, dynamic_mig=True)


def test_a_driver_that_is_too_old_to_name_profiles_has_those_that_follow_from_the_memory() -> None:
    gpu = fake_gpu("A100-40GB", mig=True)
    model = gpu.model
    nameless = tuple(replace(row, name="") for row in model.mig)
    nvml = MemoryNvml([replace(gpu, model=replace(model, mig=nameless))])
    [known] = read(nvml).gpus
    assert {profile.name for profile in known.profiles} == {row.name for row in model.mig}


def test_what_a_driver_does_not_report_is_unknown_or_left_out() -> None:
    nvml = MemoryNvml([fake_gpu("H100-80GB")])
    for function in OPTIONAL:
        nvml.fail(function, ReturnCode.FUNCTION_NOT_FOUND, times=10**6)
    [gpu] = read(nvml).gpus
    assert (gpu.architecture, gpu.brand, gpu.cuda_version) == (Architecture.UNKNOWN, Brand.UNKNOWN, None)
    assert (gpu.mig, gpu.guest, gpu.profiles) == (False, False, ())
    [device] = make_pool("n", [gpu], (), PublishOptions(dynamic_mig=True)).devices
    assert "cudaDriverVersion" not in device.attributes
    assert device.attributes["architecture"] == "Unknown"


def test_a_gpu_that_is_lost_while_it_is_read_hides_no_other() -> None:
    nvml = MemoryNvml([fake_gpu("L4", minor) for minor in range(3)])
    calls = len((read(nvml), nvml.faults.calls)[1])
    for nth in range(5, calls):
        nvml.faults.clear()
        nvml.faults.fail_call(nth, ReturnCode.GPU_IS_LOST)
        assert len(read(nvml).gpus) == 2


@pytest.mark.parametrize("code", [ReturnCode.NOT_FOUND, ReturnCode.INVALID_ARGUMENT])
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetGpuInstanceId", "nvmlGpuInstanceGetInfo", "nvmlDeviceGetAttributes_v2"]
)
def test_a_mig_device_that_is_destroyed_while_it_is_read_hides_no_other(function: str, code: ReturnCode) -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    for start in (0, 1):
        create(nvml, 19, Placement(start, 1))
    nvml.fail(function, code)
    assert len(names(nvml)) == 1
    assert len(names(nvml)) == 2


def test_a_gpu_instance_without_compute_instance_takes_its_slices() -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    create(nvml, 9, Placement(4, 4), compute=None)
    create(nvml, 19, Placement(0, 1))
    assert names(nvml) == ["gpu-0-mig-1g5gb-19-0"]
    published = names(nvml, **MIG)
    assert "gpu-0-mig-3g20gb-9-0" not in published  # somebody else created a smaller MIG device at 0
    assert [name for name in published if name.endswith(("-4", "-5", "-6"))] == []
    assert "gpu-0-mig-1g5gb-19-0" in published


def test_our_own_instance_that_is_being_created_takes_no_slices() -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    create(nvml, 9, Placement(4, 4), compute=None)
    assert "gpu-0-mig-3g20gb-9-4" in names(nvml, dynamic_mig=True, created_by_us=lambda _gpu, _mig: True)


def test_counters_suffice_for_as_many_instances_as_nvml_says() -> None:
    """Also if the largest instance has no more decoders than each of the small ones."""
    model = MODELS["B200-180GB"]
    rows = tuple(replace(row, engines=(*row.engines[:1], 1, *row.engines[2:])) for row in model.mig)
    nvml = MemoryNvml([FakeGpu(model=replace(model, mig=rows), minor=0, uuid="GPU-x", pci_address="0000:10:00.0")])
    pool = make_pool("n", read(nvml).gpus, (), PublishOptions(dynamic_mig=True))
    [counters] = pool.counter_sets
    assert counters.counters["decoders"] == 7
    whole = next(device for device in pool.devices if device.name == "gpu-0")
    assert whole.consumes[0].counters == counters.counters


@pytest.mark.parametrize("name", [name for name, model in MODELS.items() if model.mig])
def test_the_counters_are_those_of_the_largest_profile(name: str) -> None:
    nvml = MemoryNvml([fake_gpu(name, mig=True)])
    [counters] = make_pool("n", read(nvml).gpus, (), PublishOptions(dynamic_mig=True)).counter_sets
    whole = max(MODELS[name].mig, key=lambda row: row.slices)
    assert counters.counters["multiprocessors"] == whole.multiprocessors
    assert counters.counters["memory"] == whole.memory_mib << 20
    assert [counters.counters[engine] for engine in ("copy-engines", "decoders", "encoders")] == list(whole.engines[:3])


def test_memory_slices_are_left_out_if_a_device_has_too_many_capacities(make_gpus: Any) -> None:
    """The largest of an RTX PRO 6000 has 12 memory slices; with these it would have 33 attributes and capacities."""
    gpu = fake_gpu("RTX-PRO-6000", mig=True)
    harness = make_gpus(gpu, "L4", sharing="4")
    create(harness.memory, 0, Placement(0, 12), compute=3)
    harness.driver.discover()
    harness.driver.assert_publishable("1.36")
    whole = harness.driver.devices["gpu-0-mig-4g96gb-0-0"]
    assert whole.capacity["memory"].value == 97408 << 20
    assert not [name for name in whole.capacity if name.startswith("memorySlice")]
    assert harness.driver.devices.keys() == {"gpu-0-mig-4g96gb-0-0", "gpu-1"}


def test_memory_slices_are_capacities_if_there_is_room(make_gpus: Any) -> None:
    harness = make_gpus(fake_gpu("RTX-PRO-6000", mig=True))
    create(harness.memory, 5, Placement(6, 6), compute=1)
    harness.driver.discover()
    [half] = harness.driver.devices.values()
    assert {name for name in half.capacity if name.startswith("memorySlice")} == {
        f"memorySlice{number}" for number in range(6, 12)
    }


# -- snapshots


@pytest.fixture
def look(make_gpus):
    """A node with an H100 that has MIG on, its GPU, and a function that takes a snapshot."""
    harness = make_gpus(fake_gpu("H100-80GB", mig=True), dynamic_mig=True)
    with harness.memory_open() as nvml:
        yield harness, nvml.device_by_index(0), lambda: frozenset(snapshot(nvml, gpu_records(harness.nvidia_node)))


def test_a_gpu_instance_without_compute_instance_that_moves_is_noticed(look):
    _, gpu, seen = look
    before = seen()
    instance = gpu.create_gpu_instance(19, Placement(0, 1))
    at_first = seen()
    instance.destroy()
    gpu.create_gpu_instance(19, Placement(5, 1))
    assert len({before, at_first, seen()}) == 3


def test_a_compute_instance_that_is_created_again_in_another_size_is_noticed(look):
    _, gpu, seen = look
    instance = gpu.create_gpu_instance(9, Placement(0, 4))
    small = instance.create_compute_instance(0)
    number, before = small.info().id, seen()
    assert seen() == before
    small.destroy()
    assert seen() != before
    again = instance.create_compute_instance(1)
    assert again.info().id == number
    assert seen() != before


def test_our_own_mig_devices_are_no_change(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    plugin = harness.driver.plugin
    before = plugin.snapshot(harness.node.node)
    prepared = harness.driver.prepare(claim(request("mig", device_class="mig.nvidia.com")))
    assert harness.memory.state(harness.memory.gpus[0].uuid).mig.current
    assert plugin.snapshot(harness.node.node) == before
    harness.driver.unprepare(prepared)
    assert plugin.snapshot(harness.node.node) == before


def test_mig_that_others_turn_on_is_noticed_with_dynamic_mig_too(make_gpus):
    """An A100 with MIG on has MIG devices only, so the published devices change."""
    harness = make_gpus("A100-40GB", dynamic_mig=True)
    assert "gpu-0" in harness.driver.devices
    before = harness.driver.plugin.snapshot(harness.node.node)
    with harness.memory_open() as nvml:
        nvml.device_by_index(0).set_mig_mode(on=True)
    assert harness.driver.plugin.snapshot(harness.node.node) != before
    harness.driver.discover()
    assert "gpu-0" not in harness.driver.devices


def test_an_instance_that_is_destroyed_during_a_snapshot_hides_no_other(look):
    harness, gpu, seen = look
    for start in (0, 1):
        gpu.create_gpu_instance(19, Placement(start, 1)).create_compute_instance(0)
    whole = seen()
    harness.memory.fail("nvmlGpuInstanceGetInfo", ReturnCode.NOT_FOUND)
    (one,) = seen()
    (both,) = whole
    assert one[:3] == both[:3]
    assert one[3] < both[3]
    assert one[3]


def test_a_gpu_that_fails_is_a_change_and_hides_no_other(make_gpus):
    harness = make_gpus("L4", "L4")
    before = harness.driver.plugin.snapshot(harness.node.node)
    harness.memory.lose(harness.memory.gpus[0].uuid)
    after = harness.driver.plugin.snapshot(harness.node.node)
    assert len(after) == len(before) == 2
    assert len(after & before) == 1


def test_a_snapshot_needs_few_calls(make_gpus):
    harness = make_gpus(*["H100-80GB"] * 8)
    harness.memory.faults.clear()
    harness.driver.plugin.snapshot(harness.node.node)
    assert len(harness.memory.faults.calls) <= 3 + 4 * 8


def test_a_snapshot_has_pci_functions_only_with_passthrough(make_gpus, make_harness_at, tmp_path):
    plain = make_gpus("L4")
    for harness, functions in ((plain, 0), (make_harness_at(tmp_path / "vfio", [fake_gpu("L4")], passthrough=True), 1)):
        assert len(harness.driver.plugin.snapshot(harness.node.node)) == 1 + functions


# -- what a discovery could not read


def test_an_answer_that_was_left_out_is_a_change_when_it_is_back(make_gpus: Any) -> None:
    """Nothing of the GPU changes before, during or after the moment, and the snapshots see none of it."""
    harness = make_gpus("L4", "L4")
    complete = dict(harness.driver.devices)
    before = harness.driver.plugin.snapshot(harness.node.node)
    harness.memory.fail("nvmlDeviceGetMemoryInfo_v2", ReturnCode.UNKNOWN)
    harness.driver.discover()
    assert not harness.driver.devices["gpu-0"].capacity
    changed = harness.driver.plugin.snapshot(harness.node.node)
    assert changed != before
    assert harness.driver.plugin.snapshot(harness.node.node) == changed
    harness.driver.discover()
    assert harness.driver.devices == complete
    assert harness.driver.plugin.snapshot(harness.node.node) == before


def test_a_gpu_that_discovery_could_not_read_is_a_change_when_it_answers(make_gpus: Any) -> None:
    harness = make_gpus("L4", "L4")
    before = harness.driver.plugin.snapshot(harness.node.node)
    harness.memory.fail("nvmlDeviceGetName", ReturnCode.UNKNOWN)
    harness.driver.discover()
    assert harness.driver.devices.keys() == {"gpu-1"}
    assert harness.driver.plugin.snapshot(harness.node.node) != before
    harness.driver.discover()
    assert harness.driver.devices.keys() == {"gpu-0", "gpu-1"}


def test_discovery_is_repeated_until_it_has_read_everything(make_gpus: Any) -> None:
    harness = make_gpus("L4")
    seen = []
    for _ in range(2):
        harness.memory.fail("nvmlDeviceGetName", ReturnCode.UNKNOWN)
        harness.driver.discover()
        seen.append(harness.driver.plugin.snapshot(harness.node.node))
    assert seen[0] != seen[1]


def test_an_answer_that_stays_out_is_no_change(make_gpus: Any) -> None:
    harness = make_gpus("L4", "L4")
    harness.memory.fail("nvmlDeviceGetBrand", ReturnCode.UNKNOWN, times=10**6)
    seen = []
    for _ in range(2):
        harness.driver.discover()
        seen.append(harness.driver.plugin.snapshot(harness.node.node))
    assert seen[0] == seen[1]
    harness.memory.faults.clear()
    assert harness.driver.plugin.snapshot(harness.node.node) != seen[0]


def test_only_a_gpu_that_was_not_read_in_full_is_read_again(make_gpus: Any) -> None:
    harness = make_gpus(*["H100-80GB"] * 8)
    harness.memory.fail("nvmlDeviceGetBrand", ReturnCode.UNKNOWN)
    harness.driver.discover()
    harness.memory.faults.calls.clear()
    harness.driver.plugin.snapshot(harness.node.node)
    assert harness.memory.faults.calls.count("nvmlDeviceGetName") == 1


def test_a_driver_that_was_not_loaded_for_a_moment_is_a_change(make_harness_at: Any, tmp_path: Path) -> None:
    harness = make_harness_at(tmp_path / "vfio", [fake_gpu("L4", 0), fake_gpu("L4", 1)], passthrough=True)
    prepared = harness.driver.prepare(claim(request("vm", device_class="vfio.gpu.nvidia.com")))
    harness.driver.discover()
    before, names = harness.driver.plugin.snapshot(harness.node.node), set(harness.driver.devices)
    harness.memory.fail("nvmlInitWithFlags", ReturnCode.DRIVER_NOT_LOADED)
    harness.driver.discover()
    assert set(harness.driver.devices) < names
    assert harness.driver.plugin.snapshot(harness.node.node) != before
    harness.driver.unprepare(prepared)
