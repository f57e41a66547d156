"""MIG."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_gpu.nvml import errors, queries
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.mig import (
    ComputeInstanceProfileKind,
    GpuInstanceProfileKind,
    MigAttributes,
    MigMode,
    Placement,
    profile_name,
)
from dra_driver_gpu.nvml.values import GpuProcess
from dra_driver_gpu.testing.nvml import MODELS, fake_gpu
from dra_driver_gpu.testing.nvml.models import FakeGpu

_WITH_MIG = [name for name, model in MODELS.items() if model.mig]


def _ids(gpu):
    return {profile.name: profile.id for profile in queries.gpu_instance_profiles(gpu)}


def _mig_device(gpu, name="1g.5gb", start=0):
    """A new MIG device of the whole size of its GPU instance, and both instances."""
    profile = next(candidate for candidate in queries.gpu_instance_profiles(gpu) if candidate.name == name)
    [size] = {placement.size for placement in gpu.possible_placements(profile.id)}
    instance = gpu.create_gpu_instance(profile.id, Placement(start, size))
    share = instance.compute_instance_profile(ComputeInstanceProfileKind[f"SLICE_{profile.slices}"])
    compute = instance.create_compute_instance(share.id)
    return compute.info().device, instance, compute


@pytest.mark.parametrize("name", _WITH_MIG)
def test_profiles_and_placements_are_those_of_the_model(make_nvml, name):
    fake = fake_gpu(name)
    gpu = make_nvml(fake).device_by_index(0)  # profiles and placements are reported although MIG is off
    profiles = {profile.kind: profile for profile in queries.gpu_instance_profiles(gpu)}
    assert list(profiles) == sorted(row.kind for row in fake.model.mig)
    for row in fake.model.mig:
        profile = profiles[row.kind]
        assert (profile.id, profile.name, profile.slices, profile.instances) == (
            row.id, row.name, row.slices, row.instances,
        )  # fmt: skip
        assert (profile.multiprocessors, profile.memory_mib) == (row.multiprocessors, row.memory_mib)
        engines = (profile.copy_engines, profile.decoders, profile.encoders, profile.jpeg_engines, profile.ofa_engines)
        assert engines == row.engines
        assert gpu.possible_placements(profile.id) == list(row.placements)
        assert profile_name(profile, gpu.memory().total_bytes) == profile.name


def test_a_gpu_without_mig_has_no_profiles(make_nvml):
    gpu = make_nvml(fake_gpu("L4")).device_by_index(0)
    assert queries.gpu_instance_profiles(gpu) == []
    assert queries.gpu_instances(gpu) == []
    assert queries.OptionalQueries().mig_devices("", gpu) == []
    assert queries.mig_enabled(gpu) is False
    with pytest.raises(errors.NotSupportedError):
        gpu.set_mig_mode(on=True)
    with pytest.raises(errors.NotSupportedError):
        gpu.possible_placements(19)


def test_instances_are_refused_while_mig_is_off(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB")).device_by_index(0)
    assert gpu.max_mig_devices() == 0
    for ask in (
        lambda: gpu.create_gpu_instance(19, Placement(0, 1)),
        lambda: gpu.gpu_instances(19),
        lambda: gpu.gpu_instance(0),
        lambda: gpu.mig_device(0),
    ):
        with pytest.raises(errors.NotSupportedError):
            ask()


def test_a_mig_device_is_created_and_destroyed(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", mig=True))
    gpu = nvml.device_by_index(0)
    assert gpu.max_mig_devices() == 7
    device, instance, compute = _mig_device(gpu, "3g.20gb", 4)
    assert device.uuid().startswith("MIG-")
    assert device.attributes() == MigAttributes(42, 3, 2, 0, 0, 0, 3, 3, 19968)
    assert instance.info().gpu == gpu
    assert instance.info().profile_id == 9
    assert instance.info().placement == Placement(4, 4)
    assert (device.gpu_instance_id(), device.compute_instance_id()) == (instance.info().id, compute.info().id)
    assert compute.info().gpu_instance == instance
    assert compute.info().placement == Placement(0, 3)
    assert queries.OptionalQueries().mig_devices("", gpu) == [device]
    assert queries.gpu_instances(gpu) == [instance]
    assert queries.compute_instances(instance) == [compute]
    assert gpu.gpu_instance(instance.info().id) == instance
    assert instance.compute_instance(compute.info().id) == compute
    compute.destroy()
    instance.destroy()
    assert queries.OptionalQueries().mig_devices("", gpu) == []
    assert queries.gpu_instances(gpu) == []


def test_a_handle_to_a_destroyed_instance_is_invalid(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    device, instance, compute = _mig_device(gpu)
    number = instance.info().id
    compute.destroy()
    with pytest.raises(errors.InvalidArgumentError):
        device.uuid()
    with pytest.raises(errors.InvalidArgumentError):
        compute.destroy()
    instance.destroy()
    with pytest.raises(errors.InvalidArgumentError):
        instance.info()
    with pytest.raises(errors.NotFoundError):
        gpu.gpu_instance(number)


def test_a_gpu_instance_without_compute_instance_is_no_mig_device(make_nvml):
    gpu = make_nvml(fake_gpu("H100-80GB", mig=True)).device_by_index(0)
    instance = gpu.create_gpu_instance(_ids(gpu)["2g.20gb"], Placement(2, 2))
    assert queries.OptionalQueries().mig_devices("", gpu) == []
    assert queries.gpu_instances(gpu) == [instance]
    with pytest.raises(errors.NotFoundError):
        instance.compute_instance(0)


def test_occupied_slices_are_refused(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    ids = _ids(gpu)
    gpu.create_gpu_instance(ids["3g.20gb"], Placement(0, 4))
    for name, placement in (("1g.5gb", Placement(3, 1)), ("4g.20gb", Placement(0, 4)), ("7g.40gb", Placement(0, 8))):
        with pytest.raises(errors.InsufficientResourcesError) as raised:
            gpu.create_gpu_instance(ids[name], placement)
        assert raised.value.code == 23
    gpu.create_gpu_instance(ids["1g.5gb"], Placement(4, 1))


def test_a_placement_that_the_profile_lacks_is_invalid(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    for profile_id, placement in ((14, Placement(1, 2)), (14, Placement(6, 2)), (19, Placement(0, 2)), (77, None)):
        with pytest.raises(errors.InvalidArgumentError):
            gpu.create_gpu_instance(profile_id, placement)


@pytest.mark.parametrize("name", _WITH_MIG)
def test_each_profile_fits_as_often_as_it_says(make_nvml, name):
    gpu = make_nvml(fake_gpu(name, mig=True)).device_by_index(0)
    for profile in queries.gpu_instance_profiles(gpu):
        made = [gpu.create_gpu_instance(profile.id) for _ in range(profile.instances)]
        with pytest.raises(errors.InsufficientResourcesError):
            gpu.create_gpu_instance(profile.id)
        assert len({instance.info().id for instance in made}) == profile.instances
        assert {instance.info().placement for instance in made} <= set(gpu.possible_placements(profile.id))
        for instance in made:
            instance.destroy()


def test_only_one_instance_can_have_the_media_engines(make_nvml):
    gpu = make_nvml(fake_gpu("A30", mig=True)).device_by_index(0)
    ids = _ids(gpu)
    gpu.create_gpu_instance(ids["1g.6gb+me"], Placement(0, 1))
    with pytest.raises(errors.InsufficientResourcesError):
        gpu.create_gpu_instance(ids["2g.12gb+me"], Placement(2, 2))
    gpu.create_gpu_instance(ids["2g.12gb"], Placement(2, 2))


def test_a_gpu_instance_is_divided_into_compute_instances(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    instance = gpu.create_gpu_instance(_ids(gpu)["3g.20gb"], Placement(0, 4))
    shares = {share.name: share for share in queries.compute_instance_profiles(instance)}
    assert {name: (profile.slices, profile.instances, profile.multiprocessors) for name, profile in shares.items()} == {
        "1c.3g.20gb": (1, 3, 14),
        "2c.3g.20gb": (2, 1, 28),
        "3g.20gb": (3, 1, 42),
    }
    first = instance.create_compute_instance(shares["1c.3g.20gb"].id)
    second = instance.create_compute_instance(shares["2c.3g.20gb"].id)
    assert [instance.info().placement for instance in (first, second)] == [Placement(0, 1), Placement(1, 2)]
    assert first.info().device.attributes().multiprocessors == 14
    assert first.info().device.uuid() != second.info().device.uuid()
    with pytest.raises(errors.InsufficientResourcesError):
        instance.create_compute_instance(shares["1c.3g.20gb"].id)
    with pytest.raises(errors.NotSupportedError):
        instance.create_compute_instance(4)
    assert instance.compute_instances(shares["2c.3g.20gb"].id) == [second]


def test_a_gpu_instance_of_four_slices_has_no_compute_instance_of_three(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    instance = gpu.create_gpu_instance(_ids(gpu)["4g.20gb"])
    with pytest.raises(errors.NotSupportedError):
        instance.compute_instance_profile(ComputeInstanceProfileKind.SLICE_3)


def test_newer_drivers_offer_a_second_profile_of_seven_slices(make_nvml):
    model = replace(MODELS["H100-80GB"], nvl_profile=True)
    gpu = make_nvml(FakeGpu(model=model, minor=0, uuid="GPU-x", pci_address="0000:01:00.0", mig=True)).device_by_index(
        0
    )
    instance = gpu.create_gpu_instance(_ids(gpu)["7g.80gb"])
    seven = [profile for profile in queries.compute_instance_profiles(instance) if profile.slices == 7]
    assert [profile.kind for profile in seven] == [
        ComputeInstanceProfileKind.SLICE_7,
        ComputeInstanceProfileKind.SLICE_7_NVL,
    ]


def test_indices_of_mig_devices_have_gaps(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    made = [_mig_device(gpu, "1g.5gb", start) for start in range(3)]
    made[1][2].destroy()
    with pytest.raises(errors.NotFoundError):
        gpu.mig_device(1)
    assert queries.OptionalQueries().mig_devices("", gpu) == [made[0][0], made[2][0]]
    again = made[1][1].create_compute_instance(0)
    assert gpu.mig_device(1) == again.info().device


def test_a_mig_device_that_is_created_again_has_the_same_uuid(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", mig=True)).device_by_index(0)
    device, instance, compute = _mig_device(gpu)
    uuid = device.uuid()
    compute.destroy()
    instance.destroy()
    assert _mig_device(gpu)[0].uuid() == uuid


def test_an_instance_in_use_is_not_destroyed(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", mig=True))
    device, instance, compute = _mig_device(nvml.device_by_index(0))
    gi, ci = device.gpu_instance_id(), device.compute_instance_id()
    nvml.add_process(nvml.gpus[0].uuid, 7, used_bytes=1 << 20, gpu_instance_id=gi, compute_instance_id=ci)
    assert nvml.device_by_index(0).processes() == [GpuProcess(7, 1 << 20, gi, ci)]
    with pytest.raises(errors.InUseError):
        compute.destroy()
    with pytest.raises(errors.InUseError):
        instance.destroy()
    nvml.end_process(7)
    with pytest.raises(errors.InUseError):
        instance.destroy()  # it still has a compute instance
    compute.destroy()
    instance.destroy()


def test_hopper_changes_mig_mode_while_it_is_idle(make_nvml):
    nvml = make_nvml(fake_gpu("H100-80GB"))
    gpu = nvml.device_by_index(0)
    nvml.add_process(nvml.gpus[0].uuid, 7)
    with pytest.raises(errors.InUseError):
        gpu.set_mig_mode(on=True)
    assert gpu.mig_mode() == MigMode(current=False, pending=False)
    nvml.end_process(7)
    gpu.set_mig_mode(on=True)
    assert gpu.mig_mode() == MigMode(current=True, pending=True)
    _, instance, compute = _mig_device(gpu, "1g.10gb")
    with pytest.raises(errors.InUseError):
        gpu.set_mig_mode(on=False)
    compute.destroy()
    instance.destroy()
    gpu.set_mig_mode(on=False)
    assert gpu.mig_mode() == MigMode(current=False, pending=False)


def test_ampere_keeps_a_mig_mode_that_it_cannot_set_now_as_pending(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB"))
    gpu = nvml.device_by_index(0)
    nvml.add_process(nvml.gpus[0].uuid, 7)
    with pytest.raises(errors.InUseError):
        gpu.set_mig_mode(on=True)
    assert gpu.mig_mode() == MigMode(current=False, pending=True)
    nvml.reset(nvml.gpus[0].uuid)
    assert gpu.mig_mode() == MigMode(current=True, pending=True)


def test_ampere_in_a_guest_needs_a_restart_of_the_guest(make_nvml):
    gpu = make_nvml(fake_gpu("A100-40GB", guest=True)).device_by_index(0)
    with pytest.raises(errors.ResetRequiredError):
        gpu.set_mig_mode(on=True)
    assert gpu.mig_mode() == MigMode(current=False, pending=True)
    gpu.set_mig_mode(on=False)
    assert gpu.mig_mode() == MigMode(current=False, pending=False)


def test_a_reset_removes_all_instances(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", 0, mig=True), fake_gpu("H100-80GB", 1, mig=True))
    for number, name in enumerate(("1g.5gb", "1g.10gb")):
        gpu = nvml.device_by_index(number)
        _mig_device(gpu, name)
        nvml.lose(nvml.gpus[number].uuid)
        with pytest.raises(errors.GpuIsLostError):
            gpu.mig_mode()
        nvml.reset(nvml.gpus[number].uuid)
        assert queries.gpu_instances(gpu) == []
    assert [nvml.device_by_index(number).mig_mode().current for number in range(2)] == [True, False]


def test_instances_outlive_the_library(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", mig=True))
    uuid = _mig_device(nvml.device_by_index(0))[0].uuid()
    nvml.shutdown()
    nvml.init()
    assert [device.uuid() for device in queries.OptionalQueries().mig_devices("", nvml.device_by_index(0))] == [uuid]


def test_a_failed_creation_leaves_nothing_and_a_lost_answer_leaves_an_orphan(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", mig=True))
    gpu = nvml.device_by_index(0)
    call = "nvmlDeviceCreateGpuInstanceWithPlacement"
    nvml.fail(call, ReturnCode.INSUFFICIENT_RESOURCES)
    with pytest.raises(errors.InsufficientResourcesError):
        gpu.create_gpu_instance(19, Placement(0, 1))
    assert queries.gpu_instances(gpu) == []
    nvml.fail(call, ReturnCode.UNKNOWN, after=True)
    with pytest.raises(errors.NvmlError) as raised:
        gpu.create_gpu_instance(19, Placement(0, 1))
    assert raised.value.code == ReturnCode.UNKNOWN
    assert [instance.info().placement for instance in queries.gpu_instances(gpu)] == [Placement(0, 1)]


@pytest.mark.parametrize("code", [ReturnCode.INVALID_ARGUMENT, ReturnCode.NOT_SUPPORTED])
def test_a_profile_kind_that_the_driver_does_not_know_hides_no_other_profile(make_nvml, code):
    nvml = make_nvml(fake_gpu("A100-40GB"))
    wanted = [profile.kind for profile in queries.gpu_instance_profiles(nvml.device_by_index(0))]
    nvml.fail("nvmlDeviceGetGpuInstanceProfileInfoV", code, nth=2)
    kinds = [profile.kind for profile in queries.gpu_instance_profiles(nvml.device_by_index(0))]
    assert kinds == [kind for kind in wanted if kind is not GpuInstanceProfileKind.SLICE_2]
