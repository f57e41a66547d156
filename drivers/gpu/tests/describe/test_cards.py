"""Reading GPUs: drivers that cannot tell everything, and what changes while it is read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dra_driver_gpu.describe import Offer, pool, read_cards
from dra_driver_gpu.describe.cards import Found
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.memory import MODELS, FakeGpu, MemoryNvml, fake_gpu
from dra_driver_gpu.nvml.values import Architecture, Brand, Placement

from dra_sdk.hardware import Host

Cards = Callable[..., Found]
OPTIONAL = (
    "nvmlDeviceGetMigMode",
    "nvmlDeviceGetGpuInstanceProfileInfoV",
    "nvmlDeviceGetGpuInstancePossiblePlacements_v2",
    "nvmlDeviceGetArchitecture",
    "nvmlDeviceGetBrand",
    "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetAddressingMode",
    "nvmlDeviceGetVirtualizationMode",
)
MIG = {"dynamic_mig": True, "ours": lambda _card, _mig: False}


def read(nvml: MemoryNvml) -> Found:
    nvml.init()
    try:
        return read_cards(nvml, Host(Path("/nowhere")))
    finally:
        nvml.shutdown()


def names(nvml: MemoryNvml, **offer: Any) -> list[str]:
    return [each.name for each in pool("n", read(nvml).cards, (), Offer(**offer)).devices]


def create(nvml: MemoryNvml, profile: int, placement: Placement, *, compute: int | None = 0) -> None:
    nvml.init()
    instance = nvml.device_by_index(0).create_gpu_instance(profile, placement)
    if compute is not None:
        instance.create_compute_instance(compute)
    nvml.shutdown()


@pytest.mark.parametrize("code", [ReturnCode.FUNCTION_NOT_FOUND, ReturnCode.NOT_SUPPORTED])
@pytest.mark.parametrize("function", OPTIONAL)
def test_a_driver_that_cannot_tell_this_hides_no_gpu(function: str, code: ReturnCode) -> None:
    nvml = MemoryNvml([fake_gpu("H100-80GB")])
    nvml.fail(function, code, times=10**6)
    found = read(nvml)
    assert not found.problems
    assert names(nvml) == ["gpu-0"]


def test_what_is_not_told_is_unknown_or_left_out() -> None:
    nvml = MemoryNvml([fake_gpu("H100-80GB")])
    for function in OPTIONAL:
        nvml.fail(function, ReturnCode.FUNCTION_NOT_FOUND, times=10**6)
    [card] = read(nvml).cards
    assert (card.architecture, card.brand, card.cuda_version) == (Architecture.UNKNOWN, Brand.UNKNOWN, None)
    assert (card.mig, card.guest, card.sizes) == (False, False, ())
    [device] = pool("n", [card], (), Offer(dynamic_mig=True)).devices
    assert "cudaDriverVersion" not in device.attributes
    assert device.attributes["architecture"] == "Unknown"


def test_a_gpu_that_is_lost_while_it_is_read_hides_no_other() -> None:
    nvml = MemoryNvml([fake_gpu("L4", minor) for minor in range(3)])
    calls = len((read(nvml), nvml.faults.calls)[1])
    for nth in range(5, calls):
        nvml.faults.clear()
        nvml.faults.fail_call(nth, ReturnCode.GPU_IS_LOST)
        assert len(read(nvml).cards) == 2


@pytest.mark.parametrize("code", [ReturnCode.NOT_FOUND, ReturnCode.INVALID_ARGUMENT])
@pytest.mark.parametrize(
    "function", ["nvmlDeviceGetGpuInstanceId", "nvmlGpuInstanceGetInfo", "nvmlDeviceGetAttributes_v2"]
)
def test_a_mig_device_that_goes_while_it_is_read_hides_nothing_else(function: str, code: ReturnCode) -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    for start in (0, 1):
        create(nvml, 19, Placement(start, 1))
    nvml.fail(function, code)
    assert len(names(nvml)) == 1
    assert len(names(nvml)) == 2


def test_a_gpu_instance_without_compute_instance_is_no_device_but_takes_its_place() -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    create(nvml, 9, Placement(4, 4), compute=None)
    create(nvml, 19, Placement(0, 1))
    assert names(nvml) == ["gpu-0-mig-1g5gb-19-0"]
    published = names(nvml, **MIG)
    assert "gpu-0-mig-3g20gb-9-0" not in published  # the foreign device at 0 is smaller
    assert [each for each in published if each.endswith(("-4", "-5", "-6"))] == []
    assert "gpu-0-mig-1g5gb-19-0" in published


def test_our_own_that_is_being_made_takes_no_place() -> None:
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    create(nvml, 9, Placement(4, 4), compute=None)
    assert "gpu-0-mig-3g20gb-9-4" in names(nvml, dynamic_mig=True, ours=lambda _card, _mig: True)


def test_engines_that_are_counted_for_each_instance_are_there_for_all() -> None:
    """A GPU whose whole has not more decoders than each of its parts still has as many parts as NVML says."""
    model = MODELS["B200-180GB"]
    rows = tuple(replace(row, engines=(*row.engines[:1], 1, *row.engines[2:])) for row in model.mig)
    nvml = MemoryNvml([FakeGpu(model=replace(model, mig=rows), minor=0, uuid="GPU-x", pci_address="0000:10:00.0")])
    found = pool("n", read(nvml).cards, (), Offer(dynamic_mig=True))
    [counters] = found.counter_sets
    assert counters.counters["decoders"] == 7
    whole = next(each for each in found.devices if each.name == "gpu-0")
    assert whole.consumes[0].counters == counters.counters


@pytest.mark.parametrize("name", [name for name, one in MODELS.items() if one.mig])
def test_the_counters_are_those_of_the_largest_profile(name: str) -> None:
    nvml = MemoryNvml([fake_gpu(name, mig=True)])
    [counters] = pool("n", read(nvml).cards, (), Offer(dynamic_mig=True)).counter_sets
    whole = max(MODELS[name].mig, key=lambda row: row.slices)
    assert counters.counters["multiprocessors"] == whole.multiprocessors
    assert counters.counters["memory"] == whole.memory_mib << 20
    assert [counters.counters[each] for each in ("copy-engines", "decoders", "encoders")] == list(whole.engines[:3])


def test_a_mig_device_with_more_slices_than_a_device_may_have_capacities(make_gpus: Any) -> None:
    """The whole of an RTX PRO 6000 has 12 memory slices; with these it would have 33 attributes and capacities."""
    gpu = fake_gpu("RTX-PRO-6000", mig=True)
    rig = make_gpus(gpu, "L4", sharing="4")
    create(rig.memory, 0, Placement(0, 12), compute=3)
    rig.driver.discover()
    rig.driver.assert_publishable("1.36")
    whole = rig.driver.devices["gpu-0-mig-4g96gb-0-0"]
    assert whole.capacity["memory"].value == 97408 << 20
    assert not [each for each in whole.capacity if each.startswith("memorySlice")]
    assert rig.driver.devices.keys() == {"gpu-0-mig-4g96gb-0-0", "gpu-1"}


def test_slices_are_told_where_there_is_room_for_them(make_gpus: Any) -> None:
    rig = make_gpus(fake_gpu("RTX-PRO-6000", mig=True))
    create(rig.memory, 5, Placement(6, 6), compute=1)
    rig.driver.discover()
    [half] = rig.driver.devices.values()
    assert {each for each in half.capacity if each.startswith("memorySlice")} == {
        f"memorySlice{number}" for number in range(6, 12)
    }
