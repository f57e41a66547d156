"""Events, counters and lost GPUs as the health of whole GPUs, and failures of NVML itself."""

from __future__ import annotations

import logging
from collections.abc import Callable
from threading import Thread
from typing import Any

import pytest
from dra_driver_gpu.describe import PublishOptions
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.nvml.values import EccCounter, EccKind, EventType, RecoveryAction, RemappedRows

from dra_sdk import HealthStatus

XID = EventType.XID_CRITICAL_ERROR
Watch = Callable[..., Any]


def test_healthy_gpus(watch: Watch) -> None:
    report = watch("A100-40GB", "L4").step()
    assert {name: (health.status, health.message) for name, health in report.items()} == {
        "gpu-0": (HealthStatus.HEALTHY, ""),
        "gpu-1": (HealthStatus.HEALTHY, ""),
    }


def test_an_xid_makes_its_gpu_unhealthy_at_once(watch: Watch) -> None:
    node = watch("A100-40GB", "L4", interval=60)
    node.step()
    node.nvml.inject_event(node.gpus[1], XID, 79)
    assert node.unhealthy() == {"gpu-1": "XID 79 (the GPU has fallen off the bus)"}


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109, 94])
def test_a_benign_xid_is_a_remark_and_ends_no_fault(watch: Watch, xid: int) -> None:
    node = watch("A100-40GB", also_benign=frozenset({94}))
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, xid)
    report = node.step()["gpu-0"]
    assert report.status is HealthStatus.HEALTHY
    assert report.message.startswith(f"XID {xid}")
    node.nvml.inject_event(node.gpus[0], XID, 62)
    assert list(node.unhealthy()) == ["gpu-0"]
    node.nvml.inject_event(node.gpus[0], XID, xid)
    assert node.unhealthy() == {"gpu-0": "XID 62 (internal microcontroller halt)"}


def test_a_reset_that_the_driver_asked_for_ends_the_faults(watch: Watch) -> None:
    node = watch("H100-80GB")
    node.step()
    node.nvml.set_recovery_action(node.gpus[0], RecoveryAction.GPU_RESET)
    node.nvml.inject_event(node.gpus[0], XID, 95)
    asked = {"gpu-0": "the driver asks for GPU_RESET; XID 95 (uncorrectable memory error, not contained)"}
    assert node.unhealthy() == asked
    node.nvml.reset(node.gpus[0])
    assert node.unhealthy() == {}


def test_a_fault_ends_when_the_driver_has_asked_for_nothing_for_a_while(watch: Watch, own_time: Any) -> None:
    node = watch("H100-80GB", settle=0.05, listener=own_time)
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, 32)
    assert node.unhealthy() == {"gpu-0": "XID 32"}
    assert any(node.unhealthy() == {} for _ in range(1000))


def test_without_recovery_action_a_fault_stays(watch: Watch) -> None:
    node = watch("H100-80GB", settle=0.0)
    node.nvml.fail("nvmlDeviceGetFieldValues", ReturnCode.NOT_SUPPORTED, times=10**6)
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, 32)
    assert [node.unhealthy() for _ in range(5)] == [{"gpu-0": "XID 32"}] * 5


def test_a_lost_gpu_is_unhealthy_and_hides_no_events_of_others(watch: Watch) -> None:
    node = watch("A100-40GB", "A100-40GB", interval=0.05)
    node.step()
    node.nvml.lose(node.gpus[0])
    assert node.unhealthy() == {"gpu-0": "the GPU is lost"}
    node.nvml.inject_event(node.gpus[1], XID, 48)
    assert node.unhealthy() == {"gpu-0": "the GPU is lost", "gpu-1": "XID 48 (uncorrectable memory error)"}
    node.nvml.reset(node.gpus[0])
    assert list(node.unhealthy()) == ["gpu-1"]
    node.nvml.inject_event(node.gpus[0], XID, 119)  # it is listened to again
    assert list(node.unhealthy()) == ["gpu-0", "gpu-1"]


def test_the_taints_are_those_for_which_tolerations_exist(watch: Watch) -> None:
    watched = watch("L4", "L4", "L4")
    first, second, third = watched.gpus
    watched.step()
    for xid in (94, 62, 94, 31):
        watched.nvml.inject_event(first, EventType.XID_CRITICAL_ERROR, xid)
        watched.step()
    watched.nvml.set_recovery_action(first, RecoveryAction.GPU_RESET)
    watched.nvml.lose(second)
    watched.nvml.set_recovery_action(third, RecoveryAction.GPU_RESET)
    report = watched.step()
    assert [tuple(health.taints) for health in report.values()] == [("xid=62", "xid=94"), ("gpu-lost",), ()]
    assert {health.status for health in report.values()} == {HealthStatus.UNHEALTHY}
    watched.nvml.reset(first)
    assert watched.step()["gpu-0"].taints == ()


def test_waiting_for_a_lost_gpu_does_not_spin(watch: Watch) -> None:
    node = watch("A100-40GB", interval=0.2)
    node.step()
    node.nvml.faults.clear()
    node.nvml.fail("nvmlEventSetWait_v2", ReturnCode.GPU_IS_LOST, times=10**6)
    for _ in range(6):
        assert node.unhealthy() == {}  # every GPU answers, although the wait fails
    assert node.nvml.faults.calls.count("nvmlEventSetWait_v2") <= 7


def test_ecc_errors(watch: Watch) -> None:
    node = watch("A100-40GB")
    node.step()
    node.nvml.inject_event(node.gpus[0], EventType.SINGLE_BIT_ECC_ERROR)
    node.nvml.set_ecc_errors(node.gpus[0], EccKind.CORRECTED, EccCounter.VOLATILE, 3)
    assert node.step()["gpu-0"].message == "corrected memory errors: 3"
    node.nvml.inject_event(node.gpus[0], EventType.DOUBLE_BIT_ECC_ERROR)
    assert node.unhealthy() == {"gpu-0": "double-bit ECC error"}


def test_a_gpu_without_ecc_is_watched_as_well(watch: Watch) -> None:
    node = watch("GB10", "T4")
    for gpu in node.gpus:
        node.nvml.set_remapped_rows(gpu, RemappedRows(0, 1, pending=True, failed=False))
    assert node.unhealthy() == {"gpu-0": "a remapped memory row waits for a reset"}  # Turing remaps no rows


def test_a_hidden_gpu_is_not_reported(watch: Watch) -> None:
    node = watch("A100-40GB", "L4", options=PublishOptions(selected=lambda gpu: gpu.minor == 1))
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, 79)
    assert list(node.step()) == ["gpu-1"]


def test_nvml_that_does_not_start_is_tried_again(watch: Watch) -> None:
    node = watch("A100-40GB")
    node.nvml.fail("nvmlInitWithFlags", ReturnCode.DRIVER_NOT_LOADED, times=3)
    assert node.unhealthy() == {}


def test_it_stops_using_nvml_when_closing_is_requested(watch: Watch) -> None:
    node = watch("A100-40GB", interval=60)
    node.step()
    users: list[int] = []

    def close() -> None:
        with node.library.closed():
            users.append(node.nvml.users)

    closing = Thread(target=close)
    closing.start()
    assert node.unhealthy() == {}  # after NVML was closed and opened again
    closing.join()
    assert users == [0]


def test_faults_are_kept_when_the_hook_is_started_again(watch: Watch) -> None:
    node = watch("A100-40GB")
    node.step()
    node.nvml.inject_event(node.gpus[0], XID, 79)
    assert node.unhealthy()
    node.end()
    node.restart()
    assert list(node.unhealthy()) == ["gpu-0"]


def test_it_survives_a_failure_of_any_call(watch: Watch, caplog: pytest.LogCaptureFixture) -> None:
    """Each of the first calls fails once, with one of a few return codes; afterwards all faults are noticed."""
    caplog.set_level(logging.CRITICAL)
    first = watch("A30", "L4")
    for _ in range(3):
        first.step()
    points = len(first.nvml.faults.calls)
    assert points > 100
    codes = (ReturnCode.UNKNOWN, ReturnCode.GPU_IS_LOST, ReturnCode.UNINITIALIZED, ReturnCode.NOT_SUPPORTED)
    for point in range(1, points + 1):
        node = first.again(interval=0.001)
        node.nvml.faults.fail_call(point, codes[point % len(codes)])
        for _ in range(3):
            node.step()
        for _ in range(3):  # an event before the registration is lost: NVML does not keep it
            node.nvml.inject_event(node.gpus[0], XID, 79)
            report = node.step()
        assert [health.status for health in report.values()] == [HealthStatus.UNHEALTHY, HealthStatus.HEALTHY], point
        node.close()
    print(f"{points} NVML calls, each failed once")
