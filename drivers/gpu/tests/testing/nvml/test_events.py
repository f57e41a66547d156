"""Event sets."""

from __future__ import annotations

import threading

import pytest
from dra_driver_gpu.nvml import errors
from dra_driver_gpu.nvml.values import WHOLE_GPU, EventType
from dra_driver_gpu.testing.nvml import fake_gpu

_XID = EventType.XID_CRITICAL_ERROR
_SOON_MS = 50_000


def test_events_come_in_order_with_all_their_fields(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", 0), fake_gpu("A100-40GB", 1))
    events = nvml.create_event_set()
    for number in range(2):
        events.register(nvml.device_by_index(number), _XID | EventType.DOUBLE_BIT_ECC_ERROR)
    nvml.inject_event(nvml.gpus[1].uuid, _XID, 79)
    nvml.inject_event(nvml.gpus[0].uuid, EventType.DOUBLE_BIT_ECC_ERROR)
    nvml.inject_event(nvml.gpus[0].uuid, _XID, 31, gpu_instance_id=7, compute_instance_id=0)
    seen = [events.wait(_SOON_MS) for _ in range(3)]
    assert [
        (event.gpu, event.type, event.data, event.gpu_instance_id, event.compute_instance_id) for event in seen
    ] == [
        (nvml.device_by_index(1), _XID, 79, WHOLE_GPU, WHOLE_GPU),
        (nvml.device_by_index(0), EventType.DOUBLE_BIT_ECC_ERROR, 0, WHOLE_GPU, WHOLE_GPU),
        (nvml.device_by_index(0), _XID, 31, 7, 0),
    ]
    assert events.wait(0) is None
    events.free()


def test_a_set_gets_only_events_that_it_is_registered_for(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", 0), fake_gpu("A100-40GB", 1))
    nvml.inject_event(nvml.gpus[0].uuid, _XID, 1)  # before the set exists
    events = nvml.create_event_set()
    events.register(nvml.device_by_index(0), _XID)
    nvml.inject_event(nvml.gpus[1].uuid, _XID, 2)
    nvml.inject_event(nvml.gpus[0].uuid, EventType.SINGLE_BIT_ECC_ERROR)
    assert events.wait(20) is None
    events.register(nvml.device_by_index(1), _XID)
    assert events.wait(20) is None
    events.free()


def test_every_set_gets_the_event(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB"))
    sets = [nvml.create_event_set() for _ in range(2)]
    for event_set in sets:
        event_set.register(nvml.device_by_index(0), _XID)
    nvml.inject_event(nvml.gpus[0].uuid, _XID, 48)
    assert [event_set.wait(_SOON_MS).data for event_set in sets] == [48, 48]
    for event_set in sets:
        event_set.free()


def test_unsupported_types_are_refused_and_the_set_still_works(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", ecc=False))
    events = nvml.create_event_set()
    with pytest.raises(errors.NotSupportedError):
        events.register(nvml.device_by_index(0), _XID | EventType.SINGLE_BIT_ECC_ERROR)
    nvml.inject_event(nvml.gpus[0].uuid, _XID, 1)
    assert events.wait(20) is None  # none of the types was registered
    events.register(
        nvml.device_by_index(0), nvml.device_by_index(0).supported_events() & (_XID | EventType.SINGLE_BIT_ECC_ERROR)
    )
    nvml.inject_event(nvml.gpus[0].uuid, _XID, 2)
    assert events.wait(_SOON_MS).data == 2
    events.free()


def test_waiting_ends_when_something_happens(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB"))
    events = nvml.create_event_set()
    events.register(nvml.device_by_index(0), _XID)
    timer = threading.Timer(0.05, nvml.inject_event, (nvml.gpus[0].uuid, _XID, 63))
    timer.start()
    assert events.wait(30_000).data == 63
    timer.join()
    events.free()


def test_a_lost_gpu_ends_the_wait_after_earlier_events(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB", 0), fake_gpu("A100-40GB", 1))
    events = nvml.create_event_set()
    events.register(nvml.device_by_index(0), _XID)
    nvml.inject_event(nvml.gpus[0].uuid, _XID, 79)
    nvml.lose(nvml.gpus[1].uuid)  # the set is not registered for it
    assert events.wait(_SOON_MS).data == 79
    assert events.wait(20) is None
    nvml.lose(nvml.gpus[0].uuid)
    for _ in range(2):
        with pytest.raises(errors.GpuIsLostError):
            events.wait(30_000)
    nvml.reset(nvml.gpus[0].uuid)
    assert events.wait(20) is None
    events.free()


def test_a_freed_set_is_invalid(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB"))
    events = nvml.create_event_set()
    events.free()
    with pytest.raises(errors.InvalidArgumentError):
        events.register(nvml.device_by_index(0), _XID)
    with pytest.raises(errors.InvalidArgumentError):
        events.wait(0)
    with pytest.raises(errors.InvalidArgumentError):
        events.free()


def test_a_gpu_of_another_library_is_refused(make_nvml):
    nvml = make_nvml(fake_gpu("A100-40GB"))
    events = nvml.create_event_set()
    with pytest.raises(TypeError, match="GPUs of the same library"):
        events.register(object(), _XID)
    events.free()
