"""What only the in-memory NVML has: watchers, and threads that share it."""

from __future__ import annotations

import threading

import pytest
from dra_driver_gpu.nvml.errors import GpuIsLostError, InvalidArgumentError
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.nvml.values import EventType
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu

_XID = EventType.XID_CRITICAL_ERROR


@pytest.fixture
def nvml():
    nvml = MemoryNvml([fake_gpu("A100-40GB", mig=True)])
    nvml.init()
    return nvml


def test_watchers_see_each_change(nvml):
    seen = []
    nvml.watch(
        lambda state: seen.append({number: list(gi.compute_instances) for number, gi in state.instances.items()})
    )
    instance = nvml.device_by_index(0).create_gpu_instance(19, Placement(2, 1))
    compute = instance.create_compute_instance(0)
    compute.destroy()
    nvml.device_by_index(0).uuid()
    nvml.reset(nvml.gpus[0].uuid)
    assert seen == [{9: []}, {9: [0]}, {9: []}, {}]


def test_freeing_a_set_ends_the_wait_of_another_thread(nvml):
    events = nvml.create_event_set()
    events.register(nvml.device_by_index(0), _XID)
    ended = []

    def wait():
        try:
            events.wait(30_000)
        except InvalidArgumentError:
            ended.append("invalid")

    waiter = threading.Thread(target=wait)
    waiter.start()
    while "nvmlEventSetWait_v2" not in nvml.faults.calls:
        pass
    events.free()
    waiter.join(timeout=30)
    assert ended == ["invalid"]


def test_losing_a_gpu_ends_the_wait(nvml):
    events = nvml.create_event_set()
    events.register(nvml.device_by_index(0), _XID)
    timer = threading.Timer(0.05, nvml.lose, (nvml.gpus[0].uuid,))
    timer.start()
    with pytest.raises(GpuIsLostError):
        events.wait(30_000)
    timer.join()


def test_many_threads_get_each_slice_once(nvml):
    gpu = nvml.device_by_index(0)
    made = []

    def create():
        made.append(gpu.create_gpu_instance(19).info().placement)

    threads = [threading.Thread(target=create) for _ in range(7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(made) == [Placement(start, 1) for start in range(7)]


def test_instance_ids_follow_from_the_placement(nvml):
    gpu = nvml.device_by_index(0)
    ids = {}
    for profile_id, placement in (
        (0, Placement(0, 8)),
        (9, Placement(4, 4)),
        (14, Placement(4, 2)),
        (19, Placement(6, 1)),
    ):
        instance = gpu.create_gpu_instance(profile_id, placement)
        ids[placement] = instance.info().id
        instance.destroy()
    assert list(ids.values()) == [0, 2, 5, 13]


def test_a_handle_to_an_instance_that_is_created_again_is_a_new_one(nvml):
    gpu = nvml.device_by_index(0)
    old = gpu.create_gpu_instance(19, Placement(0, 1))
    old.destroy()
    new = gpu.create_gpu_instance(19, Placement(0, 1))
    assert new != old
    with pytest.raises(InvalidArgumentError):
        old.destroy()
    assert gpu.gpu_instances(19) == [new]
