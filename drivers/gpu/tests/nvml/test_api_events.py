"""Event sets: the same tests for the NVML in memory and for the real binding."""

from __future__ import annotations

import threading

import pytest
from dra_driver_gpu.nvml import errors
from dra_driver_gpu.nvml.memory import fake_gpu
from dra_driver_gpu.nvml.values import WHOLE_GPU, EventType

_XID = EventType.XID_CRITICAL_ERROR
_SOON_MS = 50_000


def test_events_come_in_order_with_all_their_fields(make_rig):
    rig = make_rig(fake_gpu("A100-40GB", 0), fake_gpu("A100-40GB", 1))
    events = rig.nvml.create_event_set()
    for number in range(2):
        events.register(rig.gpu(number), _XID | EventType.DOUBLE_BIT_ECC_ERROR)
    rig.control.inject_event(rig.gpus[1].uuid, _XID, 79)
    rig.control.inject_event(rig.gpus[0].uuid, EventType.DOUBLE_BIT_ECC_ERROR)
    rig.control.inject_event(rig.gpus[0].uuid, _XID, 31, gpu_instance_id=7, compute_instance_id=0)
    found = [events.wait(_SOON_MS) for _ in range(3)]
    assert [(one.gpu, one.type, one.data, one.gpu_instance_id, one.compute_instance_id) for one in found] == [
        (rig.gpu(1), _XID, 79, WHOLE_GPU, WHOLE_GPU),
        (rig.gpu(0), EventType.DOUBLE_BIT_ECC_ERROR, 0, WHOLE_GPU, WHOLE_GPU),
        (rig.gpu(0), _XID, 31, 7, 0),
    ]
    assert events.wait(0) is None
    events.free()


def test_a_set_gets_only_events_that_it_is_registered_for(make_rig):
    rig = make_rig(fake_gpu("A100-40GB", 0), fake_gpu("A100-40GB", 1))
    rig.control.inject_event(rig.gpus[0].uuid, _XID, 1)  # before the set exists
    events = rig.nvml.create_event_set()
    events.register(rig.gpu(0), _XID)
    rig.control.inject_event(rig.gpus[1].uuid, _XID, 2)
    rig.control.inject_event(rig.gpus[0].uuid, EventType.SINGLE_BIT_ECC_ERROR)
    assert events.wait(20) is None
    events.register(rig.gpu(1), _XID)
    assert events.wait(20) is None
    events.free()


def test_every_set_gets_the_event(make_rig):
    rig = make_rig(fake_gpu("A100-40GB"))
    sets = [rig.nvml.create_event_set() for _ in range(2)]
    for one in sets:
        one.register(rig.gpu(), _XID)
    rig.control.inject_event(rig.gpus[0].uuid, _XID, 48)
    assert [one.wait(_SOON_MS).data for one in sets] == [48, 48]
    for one in sets:
        one.free()


def test_unsupported_types_are_refused_and_the_set_still_works(make_rig):
    rig = make_rig(fake_gpu("A100-40GB", ecc=False))
    events = rig.nvml.create_event_set()
    with pytest.raises(errors.NotSupportedError):
        events.register(rig.gpu(), _XID | EventType.SINGLE_BIT_ECC_ERROR)
    rig.control.inject_event(rig.gpus[0].uuid, _XID, 1)
    assert events.wait(20) is None  # none of the types was registered
    events.register(rig.gpu(), rig.gpu().supported_events() & (_XID | EventType.SINGLE_BIT_ECC_ERROR))
    rig.control.inject_event(rig.gpus[0].uuid, _XID, 2)
    assert events.wait(_SOON_MS).data == 2
    events.free()


def test_waiting_ends_when_something_happens(make_rig):
    rig = make_rig(fake_gpu("A100-40GB"))
    events = rig.nvml.create_event_set()
    events.register(rig.gpu(), _XID)
    timer = threading.Timer(0.05, rig.control.inject_event, (rig.gpus[0].uuid, _XID, 63))
    timer.start()
    assert events.wait(30_000).data == 63
    timer.join()
    events.free()


def test_a_lost_gpu_ends_the_wait_after_earlier_events(make_rig):
    rig = make_rig(fake_gpu("A100-40GB", 0), fake_gpu("A100-40GB", 1))
    events = rig.nvml.create_event_set()
    events.register(rig.gpu(0), _XID)
    rig.control.inject_event(rig.gpus[0].uuid, _XID, 79)
    rig.control.lose(rig.gpus[1].uuid)  # the set is not registered for it
    assert events.wait(_SOON_MS).data == 79
    assert events.wait(20) is None
    rig.control.lose(rig.gpus[0].uuid)
    for _ in range(2):
        with pytest.raises(errors.GpuIsLostError):
            events.wait(30_000)
    rig.control.reset(rig.gpus[0].uuid)
    assert events.wait(20) is None
    events.free()


def test_a_freed_set_is_invalid(make_rig):
    rig = make_rig(fake_gpu("A100-40GB"))
    events = rig.nvml.create_event_set()
    events.free()
    with pytest.raises(errors.InvalidArgumentError):
        events.register(rig.gpu(), _XID)
    with pytest.raises(errors.InvalidArgumentError):
        events.wait(0)
    with pytest.raises(errors.InvalidArgumentError):
        events.free()


def test_a_gpu_of_another_library_is_refused(make_rig):
    rig = make_rig(fake_gpu("A100-40GB"))
    events = rig.nvml.create_event_set()
    with pytest.raises(TypeError, match="GPUs of the same library"):
        events.register(object(), _XID)
    events.free()
