"""MIG devices of claims: created on demand, shared, and those of others."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.nvml.queries import compute_instance_profiles
from dra_driver_gpu.testing.nvml import fake_gpu

from dra_sdk import DraError, PermanentError, RetriableError
from dra_sdk.testing import NotAllocatedError, claim, request


def mig(profile="1g.10gb", name="mig", **more):
    where = f'device.attributes["gpu.nvidia.com"].profile == "{profile}"'
    return request(name, where=where, device_class="mig.nvidia.com", **more)


def create_mig(harness, profile_id=19, start=0, size=1, *, index=0, compute=True):
    """Create a MIG device, as an operator does."""
    with harness.memory_open() as nvml:
        gpu = nvml.device_by_index(index)
        if not gpu.mig_mode().current:
            gpu.set_mig_mode(True)
        instance = gpu.create_gpu_instance(profile_id, Placement(start, size))
        if compute:
            whole = max(compute_instance_profiles(instance), key=lambda profile: profile.slices)
            instance.create_compute_instance(whole.id)


def instances(harness, index=0):
    return sorted(
        (instance.row.name, instance.placement.start)
        for instance in harness.memory.state(harness.memory.gpus[index].uuid).instances.values()
    )


def mig_on(harness, index=0):
    return harness.memory.state(harness.memory.gpus[index].uuid).mig.current


def test_a_mig_device_is_created_for_a_claim_and_removed_with_it(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    assert not mig_on(harness)
    prepared = harness.driver.prepare(claim(mig("2g.20gb")))
    assert instances(harness) == [("2g.20gb", 4)]
    assert [path for path in prepared.container().devices if "cap" in path] == [
        "/dev/nvidia-caps/nvidia-cap48",
        "/dev/nvidia-caps/nvidia-cap49",
    ]
    assert "/dev/dri/card1" not in prepared.container().devices
    harness.driver.unprepare(prepared)
    assert instances(harness) == []
    assert not mig_on(harness)
    harness.driver.assert_clean()


def test_mig_stays_on_until_the_last_mig_device_is_removed(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    first, second = (harness.driver.prepare(claim(mig())) for _ in range(2))
    harness.driver.unprepare(first)
    assert (mig_on(harness), len(instances(harness))) == (True, 1)
    harness.driver.restart()
    harness.driver.unprepare(second)
    assert not mig_on(harness)


def test_mig_that_was_on_before_stays_on(make_gpus):
    harness = make_gpus(fake_gpu("H100-80GB", mig=True), dynamic_mig=True)
    harness.driver.unprepare(harness.driver.prepare(claim(mig())))
    assert mig_on(harness)


def test_the_whole_compute_instance_is_chosen_by_kind(make_gpus):
    """The largest profile has a second compute instance of its size, with other engines."""
    gpu = fake_gpu("H100-80GB")
    harness = make_gpus(replace(gpu, model=replace(gpu.model, nvl_profile=True)), dynamic_mig=True)
    harness.driver.prepare(claim(mig("7g.80gb")))
    (made,) = harness.memory.state(gpu.uuid).instances.values()
    assert [compute_instance.profile.kind.name for compute_instance in made.compute_instances.values()] == ["SLICE_7"]


def test_the_whole_gpu_and_its_mig_devices_exclude_each_other(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    part = harness.driver.prepare(claim(mig()))
    with pytest.raises(NotAllocatedError):
        harness.driver.allocate(claim("gpu"))
    harness.driver.unprepare(part)
    harness.driver.prepare(claim("gpu"))
    with pytest.raises(NotAllocatedError):
        harness.driver.allocate(claim(mig()))


def test_small_mig_devices_leave_room_for_large_ones(make_gpus):
    """The scheduler takes the first that fits: in the order of memory slices, 1g at 0 would block 4g."""
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    for profile in ("1g.10gb", "1g.10gb", "1g.10gb", "4g.40gb"):
        harness.driver.prepare(claim(mig(profile)))
    assert instances(harness) == [("1g.10gb", 4), ("1g.10gb", 5), ("1g.10gb", 6), ("4g.40gb", 0)]


def test_mig_devices_of_one_claim_on_a_node_with_several_models(make_gpus):
    harness = make_gpus("A30", "H100-80GB", "L4", dynamic_mig=True)
    assert [name for name in harness.driver.devices if "mig" not in name] == ["gpu-0", "gpu-1", "gpu-2"]
    prepared = harness.driver.prepare(claim(mig("3g.40gb", count=2)))
    assert prepared.names == ["gpu-1-mig-3g40gb-9-4", "gpu-1-mig-3g40gb-9-0"]


# -- MIG devices that others created


def test_a_static_mig_device_is_used_and_stays(make_gpus):
    harness = make_gpus(fake_gpu("A100-40GB", mig=True))
    create_mig(harness, start=2)
    prepared = harness.driver.prepare(claim(mig("1g.5gb")))
    assert prepared.names == ["gpu-0-mig-1g5gb-19-2"]
    assert len([path for path in prepared.container().devices if "cap" in path]) == 2
    harness.driver.unprepare(prepared)
    assert instances(harness) == [("1g.5gb", 2)]


def test_a_static_mig_device_that_is_gone_is_an_error(make_gpus):
    harness = make_gpus(fake_gpu("A100-40GB", mig=True))
    create_mig(harness)
    asked = harness.driver.allocate(claim(mig("1g.5gb")))
    harness.memory.reset(harness.memory.gpus[0].uuid)
    harness.memory.state(harness.memory.gpus[0].uuid).set_mig(True)
    with pytest.raises(RetriableError, match="no longer exists, and is not created on demand"):
        harness.driver.prepare(harness.prepared(asked))


def test_with_dynamic_mig_the_mig_devices_of_others_stay(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    create_mig(harness, 9, 0, 4)
    names = set(harness.driver.devices)
    assert "gpu-0" not in names
    assert "gpu-0-mig-3g40gb-9-0" in names  # the existing one itself
    assert not {"gpu-0-mig-1g10gb-19-0", "gpu-0-mig-7g80gb-0-0", "gpu-0-mig-4g40gb-5-0"} & names
    assert {"gpu-0-mig-1g10gb-19-4", "gpu-0-mig-3g40gb-9-4"} <= names
    both = harness.driver.prepare(claim(mig("3g.40gb", count=2)))
    harness.driver.unprepare(both)
    assert instances(harness) == [("3g.40gb", 0)]
    assert mig_on(harness)


def test_a_gpu_instance_without_compute_instance_takes_room(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = harness.driver.allocate(claim(mig()))
    create_mig(harness, 9, 4, 4, compute=False)
    with pytest.raises(RetriableError, match=r"no room for 1g.10gb at slice 6: MIG devices take slices 4-7"):
        harness.driver.prepare(harness.prepared(asked))
    assert instances(harness) == [("3g.40gb", 4)]
    harness.driver.assert_clean()


@pytest.mark.parametrize("parts", [0, 2])
def test_a_foreign_gpu_instance_of_the_same_placement_is_not_removed(make_gpus, parts):
    """Its compute instance may just be about to be created, or it has several."""
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = harness.driver.allocate(claim(mig("2g.20gb")))
    create_mig(harness, 14, 4, 2, compute=False)
    with harness.memory_open() as nvml:
        (instance,) = nvml.device_by_index(0).gpu_instances(14)
        small = min(compute_instance_profiles(instance), key=lambda profile: profile.slices)
        for _ in range(parts):
            instance.create_compute_instance(small.id)
    with pytest.raises(
        RetriableError, match="somebody else's GPU instance is there, without compute instance or with several"
    ):
        harness.driver.prepare(harness.prepared(asked))
    (left,) = harness.memory.state(harness.memory.gpus[0].uuid).instances.values()
    assert (left.row.name, len(left.compute_instances)) == ("2g.20gb", parts)
    assert mig_on(harness)
    harness.driver.assert_clean()


def test_a_gpu_with_mig_of_an_operator_is_not_published_as_a_whole(make_gpus):
    """We would not turn MIG off, so a claim for it could never be prepared, although another GPU is free."""
    harness = make_gpus(fake_gpu("H100-80GB", mig=True), "H100-80GB", dynamic_mig=True, passthrough=True)
    whole = {name for name in harness.driver.devices if "mig" not in name}
    assert whole == {"gpu-1", "gpu-vfio-1"}
    assert harness.driver.prepare(claim("gpu")).names == ["gpu-1"]
    harness.driver.prepare(claim(mig()))
    assert instances(harness) == [("1g.10gb", 6)]


def test_mig_that_we_left_on_is_turned_off_after_dynamic_mig_was_disabled(make_gpus):
    """Somebody used the GPU when the last MIG device was removed; then the operator changed the setting."""
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    prepared = harness.driver.prepare(claim(mig()))
    harness.memory.add_process(harness.memory.gpus[0].uuid, 4711)
    harness.driver.unprepare(prepared)
    harness.memory.end_process(4711)
    harness.settings = harness.settings.model_copy(update={"dynamic_mig": False})
    harness.driver.restart()
    assert mig_on(harness)
    assert harness.driver.prepare(claim("gpu")).names == ["gpu-0"]
    assert not mig_on(harness)


def test_compute_instances_of_a_foreign_gpu_instance_are_used_as_they_are(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    create_mig(harness, 9, 4, 4, compute=False)
    with harness.memory_open() as nvml:
        (instance,) = nvml.device_by_index(0).gpu_instances(9)
        small = min(compute_instance_profiles(instance), key=lambda profile: profile.slices)
        for _ in range(3):
            instance.create_compute_instance(small.id)
    shares = {f"gpu-0-mig-1c3g40gb-ci{number}-9-4" for number in range(3)}
    assert shares < harness.driver.devices.keys()
    prepared = harness.driver.prepare(claim(mig("1c.3g.40gb", count=3), mig("3g.40gb", name="other")))
    assert set(prepared.names) == {*shares, "gpu-0-mig-3g40gb-9-0"}
    harness.driver.unprepare(prepared)
    assert instances(harness) == [("3g.40gb", 4)]


def test_a_whole_gpu_on_which_somebody_created_a_mig_device_is_an_error(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = harness.driver.allocate(claim("gpu"))
    create_mig(harness)
    with pytest.raises(RetriableError, match="cannot be used whole: MIG is on, with 1 GPU instances"):
        harness.driver.prepare(harness.prepared(asked))
    assert instances(harness) == [("1g.10gb", 0)]


def test_before_hopper_mig_is_not_turned_on(make_gpus):
    harness = make_gpus(fake_gpu("A100-40GB", mig=True), dynamic_mig=True)
    asked = harness.driver.allocate(claim(mig("1g.5gb")))
    harness.memory.reset(harness.memory.gpus[0].uuid)
    harness.memory.state(harness.memory.gpus[0].uuid).set_mig(False)
    with pytest.raises(PermanentError, match="turning it on needs a reset before Hopper"):
        harness.driver.prepare(harness.prepared(asked))
    assert not mig_on(harness)


# -- failures


def test_a_process_on_a_mig_device_is_waited_for(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    prepared = harness.driver.prepare(claim(mig()))
    harness.memory.fail("nvmlComputeInstanceDestroy", ReturnCode.IN_USE, times=3)
    harness.driver.unprepare(prepared)
    assert not mig_on(harness)


def test_a_process_that_stays_on_a_mig_device_fails_the_unprepare(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    prepared = harness.driver.prepare(claim(mig()))
    (instance,) = harness.memory.state(harness.memory.gpus[0].uuid).instances
    harness.memory.add_process(harness.memory.gpus[0].uuid, 4711, gpu_instance_id=instance, compute_instance_id=0)
    with pytest.raises(RetriableError, match="still in use by process 4711 after 0 s: nvmlComputeInstanceDestroy"):
        harness.driver.unprepare(prepared)
    harness.memory.end_process(4711)
    harness.driver.unprepare(prepared)
    assert instances(harness) == []


def test_mig_that_stays_on_is_turned_off_for_the_next_whole_gpu(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    prepared = harness.driver.prepare(claim(mig()))
    harness.memory.add_process(harness.memory.gpus[0].uuid, 4711)
    harness.driver.unprepare(prepared)
    assert mig_on(harness)
    harness.memory.end_process(4711)
    harness.driver.prepare(claim("gpu"))
    assert not mig_on(harness)


def test_a_monitor_does_not_delay_the_unprepare(make_gpus):
    """A node's monitor has all GPUs open all the time, and must not delay the end of every pod."""
    harness = make_gpus("H100-80GB", dynamic_mig=True, busy_seconds=30.0)
    prepared = harness.driver.prepare(claim(mig()))
    harness.memory.fail("nvmlDeviceSetMigMode", ReturnCode.IN_USE, times=10**6)
    began = time.monotonic()
    harness.driver.unprepare(prepared)
    assert time.monotonic() - began < 25  # not the 30 for processes on the device
    assert mig_on(harness)


@pytest.mark.parametrize("kind", ["mig", "gpu"])
def test_a_monitor_that_blocks_a_change_of_mig_mode_is_named(make_gpus, kind):
    """It runs nothing on the GPU, so NVML does not list it."""
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    if kind == "gpu":
        prepared = harness.driver.prepare(claim(mig()))
        harness.memory.fail("nvmlDeviceSetMigMode", ReturnCode.IN_USE, times=1000)
        harness.driver.unprepare(prepared)
    harness.memory.faults.clear()
    asked = harness.driver.allocate(claim(mig() if kind == "mig" else "gpu"))
    link = harness.node.path("/proc/4711/fd/3")
    link.parent.mkdir(parents=True)
    link.symlink_to("/dev/nvidia0")
    harness.memory.fail("nvmlDeviceSetMigMode", ReturnCode.IN_USE, times=1000)
    with pytest.raises(RetriableError, match="in use by process 4711"):
        harness.driver.prepare(asked)


def test_a_lost_gpu_does_not_fail_the_unprepare(make_gpus, caplog):
    harness = make_gpus("H100-80GB", "H100-80GB", dynamic_mig=True)
    prepared = harness.driver.prepare(claim(mig()))
    harness.memory.lose(harness.memory.gpus[0].uuid)
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert "is gone, and with it what was set" in caplog.text
    harness.memory.reset(harness.memory.gpus[0].uuid)
    harness.driver.prepare(claim(mig()))


def test_mig_devices_of_a_claim_without_state_are_removed_at_the_first_claim(make_gpus, caplog):
    harness = make_gpus("H100-80GB", "H100-80GB", dynamic_mig=True)
    lost, kept = harness.driver.prepare(claim(mig("3g.40gb"))), harness.driver.prepare(claim(mig("3g.40gb")))
    create_mig(harness, index=1)
    next(path for path in harness.driver.data.glob("claims/*") if lost.ref.uid in path.name).unlink()
    harness.driver.restart()
    harness.driver.cluster.claims.pop(lost.ref.uid)
    harness.driver.prepare(claim(mig()))
    assert instances(harness) == [("1g.10gb", 6), ("3g.40gb", 0)]
    assert instances(harness, 1) == [("1g.10gb", 0)]
    assert f"undid a step of claim {lost.ref.uid}, which holds nothing" in caplog.text
    assert kept.ref.uid not in caplog.text


def test_a_step_that_cannot_be_undone_is_undone_at_a_later_claim(make_gpus, monkeypatch):
    harness = make_gpus("H100-80GB", "L4", dynamic_mig=True)
    lost = harness.driver.prepare(claim(mig()))
    uuid = harness.memory.gpus[0].uuid
    (instance,) = harness.memory.state(uuid).instances
    harness.memory.add_process(uuid, 4711, gpu_instance_id=instance, compute_instance_id=0)
    next(harness.driver.data.glob("claims/*.json")).unlink()
    harness.driver.restart()
    harness.driver.cluster.claims.pop(lost.ref.uid)
    other = request("gpu", where='device.attributes["gpu.nvidia.com"].productName == "NVIDIA L4"')
    first = harness.driver.prepare(claim(other))
    assert len(instances(harness)) == 1
    harness.memory.end_process(4711)
    harness.driver.unprepare(first)
    harness.driver.prepare(claim(other))
    assert (instances(harness), mig_on(harness)) == ([], False)


def test_after_a_reboot_nothing_is_destroyed(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    prepared = harness.driver.prepare(claim(mig()))
    harness.memory.reset(harness.memory.gpus[0].uuid)
    harness.driver.reboot()
    create_mig(harness)
    harness.driver.unprepare(prepared)
    harness.driver.assert_clean()
    assert (instances(harness), mig_on(harness)) == ([("1g.10gb", 0)], True)


def test_a_shared_mig_device_is_removed_with_its_last_claim(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True, sharing="4")
    first = harness.driver.prepare(claim(mig(capacity={"memory": "1Gi"})))
    second = harness.driver.prepare(harness.copy_of(first, shareID="another"))
    assert first.names == second.names
    harness.driver.unprepare(first)
    assert len(instances(harness)) == 1
    harness.driver.unprepare(second)
    assert (instances(harness), mig_on(harness)) == ([], False)


def test_admin_access_creates_nothing(make_gpus):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    admin = harness.driver.prepare(claim(mig(admin_access=True)))
    assert (instances(harness), mig_on(harness)) == ([], False)
    assert {"/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap2"} <= set(admin.container().devices)
    user = harness.driver.prepare(claim(mig()))
    again = harness.driver.prepare(harness.copy_of(user, adminAccess=True))
    assert set(user.container().devices) <= set(again.container().devices)
    harness.driver.unprepare(again)
    harness.driver.unprepare(admin)
    assert len(instances(harness)) == 1


@pytest.mark.parametrize("call", ["nvmlDeviceCreateGpuInstanceWithPlacement", "nvmlGpuInstanceCreateComputeInstance"])
def test_an_incomplete_mig_device_is_removed_even_if_the_answer_is_lost(make_gpus, call):
    harness = make_gpus("H100-80GB", dynamic_mig=True)
    asked = harness.driver.allocate(claim(mig()))
    harness.memory.fail(call, ReturnCode.UNKNOWN, after=True)
    with pytest.raises(DraError):
        harness.driver.prepare(asked)
    assert (instances(harness), mig_on(harness)) == ([], False)
    harness.driver.prepare(asked)
    assert len(instances(harness)) == 1
