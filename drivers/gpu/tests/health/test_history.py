"""The health of one GPU, from readings and events."""

from __future__ import annotations

from dra_driver_gpu.health.history import GpuHistory, Reachability, Reading
from dra_driver_gpu.nvml.values import RecoveryAction, RemappedRows

from dra_sdk.hardware.health import Units

GPU, LEFT, RIGHT = Units(), Units.of(range(4)), Units.of(range(4, 8))
FINE = Reading(RecoveryAction.NONE)


def history() -> GpuHistory:
    return GpuHistory(settle=60)


def problems(gpu_history: GpuHistory, part: Units = GPU) -> list[str]:
    return list(gpu_history.problems(part))


def test_a_fault_of_a_part_concerns_the_part_and_the_whole() -> None:
    gpu_history = history()
    gpu_history.error(LEFT, "XID 94", 0)
    assert problems(gpu_history) == problems(gpu_history, LEFT) == ["XID 94"]
    assert problems(gpu_history, RIGHT) == []


def test_a_fault_of_the_whole_concerns_every_part() -> None:
    gpu_history = history()
    gpu_history.error(GPU, "XID 79", 0)
    gpu_history.error(GPU, "XID 79", 1)
    assert problems(gpu_history, RIGHT) == ["XID 79, 2 times"]


def test_a_lighter_fault_hides_no_worse_one() -> None:
    gpu_history = history()
    gpu_history.error(GPU, "XID 79", 0)
    gpu_history.remark("XID 13")
    gpu_history.answered(Reading(corrected=3), 1)
    assert problems(gpu_history) == ["XID 79"]


def test_without_a_recovery_action_an_xid_stays() -> None:
    gpu_history = history()
    gpu_history.error(GPU, "XID 79", 0)
    gpu_history.answered(Reading(), 100_000)
    assert problems(gpu_history) == ["XID 79"]


def test_a_fault_is_forgotten_when_the_driver_has_long_asked_for_nothing() -> None:
    gpu_history = history()
    gpu_history.error(GPU, "XID 79", 0)
    gpu_history.answered(FINE, 59)
    assert problems(gpu_history) == ["XID 79"]
    gpu_history.answered(FINE, 60)
    assert problems(gpu_history) == []


def test_the_recovery_action_is_a_fault_and_its_end_the_recovery() -> None:
    gpu_history = history()
    gpu_history.error(GPU, "XID 48", 0)
    gpu_history.answered(Reading(RecoveryAction.GPU_RESET), 1)
    assert problems(gpu_history) == ["the driver asks for GPU_RESET", "XID 48"]
    gpu_history.answered(Reading(), 2)  # a reading without the action changes nothing
    assert len(problems(gpu_history)) == 2
    gpu_history.answered(FINE, 3)
    assert problems(gpu_history) == []


def test_a_lost_gpu_that_answers_again_has_no_faults() -> None:
    gpu_history = history()
    gpu_history.error(GPU, "XID 79", 0)
    gpu_history.missing(Reachability.LOST)
    assert problems(gpu_history)[0] == "the GPU is lost"
    gpu_history.answered(Reading(), 1)
    assert problems(gpu_history) == []


def test_a_gpu_that_comes_back_from_a_virtual_machine_was_reset() -> None:
    gpu_history = history()
    gpu_history.error(GPU, "XID 79", 0)
    gpu_history.missing(Reachability.AWAY)
    assert problems(gpu_history) == ["XID 79"]
    gpu_history.answered(Reading(), 1)
    assert problems(gpu_history) == []


def test_a_gpu_is_unreadable_only_from_the_second_failure_on() -> None:
    gpu_history = history()
    gpu_history.missing(Reachability.UNREADABLE, "no answer")
    assert gpu_history.reach is Reachability.SEEN
    gpu_history.missing(Reachability.UNREADABLE, "no answer")
    assert (gpu_history.reach, gpu_history.trouble) == (Reachability.UNREADABLE, "no answer")
    gpu_history.error(GPU, "XID 62", 0)
    gpu_history.answered(Reading(), 1)
    assert (gpu_history.reach, problems(gpu_history)) == (Reachability.SEEN, ["XID 62"])


def test_remapped_rows() -> None:
    gpu_history = history()
    gpu_history.answered(Reading(rows=RemappedRows(0, 1, pending=True, failed=True)), 0)
    assert problems(gpu_history) == ["a memory row could not be remapped", "a remapped memory row waits for a reset"]
    gpu_history.answered(Reading(rows=None), 1)  # NVML does not report rows while MIG devices exist
    assert len(problems(gpu_history)) == 2
    gpu_history.answered(Reading(rows=RemappedRows(0, 1, pending=False, failed=False)), 2)
    assert problems(gpu_history) == []


def test_a_double_bit_event_concerns_its_part() -> None:
    gpu_history = history()
    gpu_history.answered(Reading(uncorrected=0), 0)
    gpu_history.double_bit(LEFT, 1)
    gpu_history.answered(Reading(uncorrected=1), 2)
    gpu_history.answered(Reading(uncorrected=1), 3)
    assert (problems(gpu_history, LEFT), problems(gpu_history, RIGHT)) == (["double-bit ECC error"], [])


def test_an_event_may_come_after_the_counter() -> None:
    gpu_history = history()
    gpu_history.answered(Reading(uncorrected=0), 0)
    gpu_history.answered(Reading(uncorrected=1), 1)
    gpu_history.double_bit(LEFT, 2)
    gpu_history.answered(Reading(uncorrected=1), 3)
    assert problems(gpu_history, RIGHT) == []


def test_earlier_errors_are_no_fault_if_counters_are_not_trusted() -> None:
    """A driver before R570 does not say whether an error was contained."""
    gpu_history = GpuHistory(60, trust_counters=False)
    for second, count in enumerate((3, 3, 4, 4, 4)):
        gpu_history.answered(Reading(uncorrected=count), second)
        assert problems(gpu_history) == []
    gpu_history.double_bit(LEFT, 9)
    assert problems(gpu_history) == ["double-bit ECC error"]


def test_counters_are_trusted_if_the_driver_names_recovery_actions() -> None:
    gpu_history = GpuHistory(60, trust_counters=False)
    for second, count in enumerate((0, 1, 1)):
        gpu_history.answered(Reading(RecoveryAction.NONE, uncorrected=count), second)
    assert problems(gpu_history) == ["double-bit ECC error"]


def test_a_rise_that_no_event_explains_concerns_the_whole_gpu() -> None:
    gpu_history = history()
    for second, count in enumerate((0, 1, 1, 1)):
        gpu_history.answered(Reading(uncorrected=count), second)
    assert problems(gpu_history, RIGHT) == ["double-bit ECC error"]
    gpu_history.answered(Reading(uncorrected=0), 9)  # counters start again when the GPU is reset
    assert problems(gpu_history) == []


def test_earlier_errors_count_unless_the_driver_says_that_all_is_well() -> None:
    for action, wanted in ((None, 1), (RecoveryAction.GPU_RESET, 2), (RecoveryAction.NONE, 0)):
        gpu_history = history()
        gpu_history.answered(Reading(action, uncorrected=2), 0)
        assert len(problems(gpu_history)) == wanted


def test_remarks_of_a_healthy_gpu() -> None:
    gpu_history = history()
    assert [gpu_history.remark("XID 31") for _ in range(2)] == [True, False]
    gpu_history.answered(Reading(corrected=7), 0)
    assert list(gpu_history.remarks()) == ["XID 31, 2 times", "corrected memory errors: 7"]
