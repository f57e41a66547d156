"""The cheap look: what others do to GPUs is noticed, what we do is not, and little is asked."""

from __future__ import annotations

import pytest
from dra_driver_gpu.glance import glance
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.memory import fake_gpu
from dra_driver_gpu.nvml.values import Placement
from dra_driver_gpu.prepare.records import Record, Records

from dra_sdk.testing import claim, request


@pytest.fixture
def look(make_gpus):
    """A node with one H100 and MIG on; its `look` says what is seen of it."""
    rig = make_gpus(fake_gpu("H100-80GB", mig=True), dynamic_mig=True)
    with rig.memory_open() as nvml:
        yield rig, nvml.device_by_index(0), lambda: frozenset(glance(nvml, Records(rig.site)))


def test_a_bare_instance_that_moves(look):
    _, gpu, seen = look
    before = seen()
    bare = gpu.create_gpu_instance(19, Placement(0, 1))
    at_first = seen()
    bare.destroy()
    gpu.create_gpu_instance(19, Placement(5, 1))
    assert len({before, at_first, seen()}) == 3


def test_a_compute_instance_that_is_made_anew_in_another_size_with_the_same_numbers(look):
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


def test_what_is_ours_is_not_seen(make_gpus):
    rig = make_gpus("H100-80GB", dynamic_mig=True)
    plugin = rig.driver.plugin
    before = plugin._glance(rig.site)
    prepared = rig.driver.prepare(claim(request("mig", device_class="mig.nvidia.com")))
    assert rig.memory.state(rig.memory.gpus[0].uuid).mig.current
    assert plugin._glance(rig.site) == before
    rig.driver.unprepare(prepared)
    assert plugin._glance(rig.site) == before


def test_mig_that_others_turn_on_is_seen_with_dynamic_mig_too(make_gpus):
    """An A100 whose MIG is on gives parts only, so something else is published then."""
    rig = make_gpus("A100-40GB", dynamic_mig=True)
    assert "gpu-0" in rig.driver.devices
    before = rig.driver.plugin._glance(rig.site)
    with rig.memory_open() as nvml:
        nvml.device_by_index(0).set_mig_mode(on=True)
    assert rig.driver.plugin._glance(rig.site) != before
    rig.driver.discover()
    assert "gpu-0" not in rig.driver.devices


def test_what_goes_while_it_is_looked_at_hides_nothing_else(look):
    rig, gpu, seen = look
    for start in (0, 1):
        gpu.create_gpu_instance(19, Placement(start, 1)).create_compute_instance(0)
    whole = seen()
    rig.memory.fail("nvmlGpuInstanceGetInfo", ReturnCode.NOT_FOUND)
    (one,) = seen()
    (both,) = whole
    assert one[:3] == both[:3]
    assert one[3] < both[3]
    assert one[3]


def test_a_gpu_that_fails_is_seen_by_how_it_fails_and_hides_no_other(make_gpus):
    rig = make_gpus("L4", "L4")
    before = rig.driver.plugin._glance(rig.site)
    rig.memory.lose(rig.memory.gpus[0].uuid)
    after = rig.driver.plugin._glance(rig.site)
    assert len(after) == len(before) == 2
    assert len(after & before) == 1


def test_a_gpu_is_asked_for_little(make_gpus):
    rig = make_gpus(*["H100-80GB"] * 8)
    rig.memory.faults.clear()
    rig.driver.plugin._glance(rig.site)
    assert len(rig.memory.faults.calls) <= 3 + 4 * 8


def test_functions_of_pci_are_looked_at_for_passthrough_only(make_gpus, make_rig_at, tmp_path):
    plain = make_gpus("L4")
    for rig, functions in ((plain, 0), (make_rig_at(tmp_path / "vfio", [fake_gpu("L4")], passthrough=True), 1)):
        assert len(rig.driver.plugin._glance(rig.site)) == 1 + functions


def test_a_record_knows_its_instances():
    assert Record(instances={"19-4": {}}).made(19, 4)
    assert not Record(instances={"19-4": {}}).made(19, 5)
