"""Waiting for events: without spinning if there are none, and without drowning in a storm of them; XIDs in words."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic, thread_time
from typing import Any

import pytest
from dra_driver_gpu.describe import PublishOptions
from dra_driver_gpu.health import HealthRules
from dra_driver_gpu.health.events import EventListener, describe_xid
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.values import EventType
from dra_driver_gpu.testing.nvml import MemoryNvml, fake_gpu
from dra_driver_gpu.testing.nvml.library import MemoryEventSet

from dra_sdk import HealthStatus

XID = EventType.XID_CRITICAL_ERROR
WAIT, READ = "nvmlEventSetWait_v2", "nvmlDeviceGetFieldValues"
Watch = Callable[..., Any]


@pytest.mark.parametrize("models", [(), ("L4",)])
def test_an_empty_set_is_not_waited_for(models: tuple[str, ...]) -> None:
    """NVML does not document such a wait: it may answer at once, again and again."""
    nvml = MemoryNvml([fake_gpu(model) for model in models])
    nvml.init()
    nvml.fail("nvmlDeviceGetSupportedEventTypes", ReturnCode.NOT_SUPPORTED, times=10**6)
    listener = EventListener()
    listener.follow(nvml, {gpu.uuid: nvml.device_by_uuid(gpu.uuid) for gpu in nvml.gpus})
    assert not listener.active
    assert listener.wait(1) is None
    assert WAIT not in nvml.faults.calls
    listener.close()
    nvml.shutdown()


def test_where_nvml_has_no_events_gpus_are_watched_by_their_counters(
    watch: Watch, caplog: pytest.LogCaptureFixture
) -> None:
    node = watch("L4", interval=0.1)
    node.nvml.fail("nvmlEventSetCreate", ReturnCode.NOT_SUPPORTED, times=10**6)
    for _ in range(3):
        node.step()
        assert node.unhealthy() == {}
    assert caplog.text.count("NVML has no events here, so only the counters of GPUs are watched") == 1


def test_a_gpu_that_reports_no_events_is_watched_by_its_counters(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    node = watch("L4", interval=0.1)
    node.nvml.fail("nvmlDeviceGetSupportedEventTypes", ReturnCode.NOT_SUPPORTED, times=10**6)
    monkeypatch.setattr(MemoryEventSet, "wait", lambda _set, _milliseconds: None)  # at once
    node.step()
    before, cpu = monotonic(), thread_time()
    for _ in range(3):
        assert node.unhealthy() == {}
    assert monotonic() - before >= 0.25
    assert thread_time() - cpu < 0.2


def test_a_storm_of_events_is_one_report_and_a_few_lines_of_log(
    watch: Watch, caplog: pytest.LogCaptureFixture, own_time: Any
) -> None:
    caplog.set_level(logging.INFO, "dra_driver_gpu.health")
    node = watch("H100-80GB", "L4", interval=0.5, listener=own_time)
    node.step()
    node.nvml.faults.clear()
    for number in range(500):
        node.nvml.inject_event(node.gpus[0], XID, 74)
        node.nvml.inject_event(node.gpus[1], XID, 13 if number % 2 else 31)
    assert node.unhealthy() == {"gpu-0": "XID 74 (NVLink error)"}  # at once
    report = node.step()
    assert report["gpu-0"].message == "XID 74 (NVLink error), 500 times"
    programs = "XID 13 (graphics engine exception), 250 times; XID 31 (memory page fault of a program), 250 times"
    assert report["gpu-1"].message == programs
    assert node.nvml.faults.calls.count(READ) == 4  # two readings of two GPUs
    assert len([record for record in caplog.records if "XID" in record.message]) == 3


def test_a_storm_that_does_not_end_is_reported(watch: Watch, monkeypatch: pytest.MonkeyPatch) -> None:
    node = watch("H100-80GB", interval=0.2)
    node.step()
    real = EventListener.wait

    def endless(self: EventListener, milliseconds: int) -> Any:
        node.nvml.inject_event(node.gpus[0], XID, 74)
        return real(self, milliseconds)

    monkeypatch.setattr(EventListener, "wait", endless)
    for _ in range(3):
        assert list(node.unhealthy()) == ["gpu-0"]


def test_an_event_of_an_unknown_instance_concerns_the_whole_gpu(watch: Watch) -> None:
    node = watch("H100-80GB", mig=True, options=PublishOptions(dynamic_mig=True))
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, 94, gpu_instance_id=13, compute_instance_id=5)
    assert set(node.unhealthy()) == set(node.step())


def test_a_gpu_that_needs_a_reset_is_unhealthy(watch: Watch) -> None:
    node = watch("H100-80GB", "L4")
    node.step()
    gpu = node.nvml.gpus[0]
    node.nvml.fail("nvmlDeviceGetHandleByIndex_v2", ReturnCode.RESET_REQUIRED, times=1)
    node.nvml.fail("nvmlDeviceGetHandleByUUID", ReturnCode.RESET_REQUIRED, times=1)
    assert node.unhealthy() == {"gpu-0": "the GPU needs a reset"}
    assert node.unhealthy() == {}
    assert node.nvml.state(gpu.uuid).lost is False


@pytest.mark.parametrize("code", [ReturnCode.LIB_RM_VERSION_MISMATCH, ReturnCode.UNKNOWN, ReturnCode.DRIVER_NOT_LOADED])
def test_a_driver_that_is_loaded_later_is_waited_for(watch: Watch, code: ReturnCode) -> None:
    node = watch("H100-80GB")
    node.nvml.fail("nvmlInitWithFlags", code, times=3)
    report: dict[str, Any] = {}
    while not report:
        report = node.step()
    assert report["gpu-0"].status is HealthStatus.HEALTHY
    node.nvml.inject_event(node.gpus[0], XID, 79)
    assert list(node.unhealthy()) == ["gpu-0"]


def test_the_event_set_is_created_again_when_the_driver_was_reloaded(watch: Watch) -> None:
    node = watch("H100-80GB")
    node.step()
    for code in (ReturnCode.UNINITIALIZED, ReturnCode.INVALID_ARGUMENT, ReturnCode.UNKNOWN):
        node.nvml.fail(WAIT, code)
        node.step()
        node.nvml.inject_event(node.gpus[0], XID, 48)
        assert list(node.unhealthy()) == ["gpu-0"]


def test_some_xids_are_the_fault_of_programs_and_an_operator_adds_others() -> None:
    rules = HealthRules(also_benign=frozenset({94, 63}))
    assert [xid for xid in (13, 63, 94, 48, 79) if rules.is_benign(xid)] == [13, 63, 94]


def test_xids_in_words() -> None:
    assert describe_xid(79) == "XID 79 (the GPU has fallen off the bus)"
    assert describe_xid(5000) == "XID 5000"
