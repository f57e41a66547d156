"""The state machine of one GPU."""

from __future__ import annotations

from dra_driver_gpu.health.history import GpuHistory, Reach
from dra_driver_gpu.health.readings import Reading
from dra_driver_gpu.health.sites import Site
from dra_driver_gpu.nvml.values import Placement, RecoveryAction, RemappedRows

GPU = Site("GPU-0")
LEFT, RIGHT = Site("GPU-0", Placement(0, 4)), Site("GPU-0", Placement(4, 4))
FINE = Reading(RecoveryAction.NONE)


def history() -> GpuHistory:
    return GpuHistory(settle=60)


def problems(found: GpuHistory, site: Site = GPU) -> list[str]:
    return list(found.problems(site))


def test_a_fault_of_a_part_concerns_the_part_and_the_whole() -> None:
    found = history()
    found.error(LEFT, "XID 94", 0)
    assert problems(found) == problems(found, LEFT) == ["XID 94"]
    assert problems(found, RIGHT) == []


def test_a_fault_of_the_whole_concerns_every_part() -> None:
    found = history()
    found.error(GPU, "XID 79", 0)
    found.error(GPU, "XID 79", 1)
    assert problems(found, RIGHT) == ["XID 79, 2 times"]


def test_a_lighter_fault_hides_no_worse_one() -> None:
    found = history()
    found.error(GPU, "XID 79", 0)
    found.benign["XID 13"] += 1
    found.read(GPU, Reading(corrected=3), 1)
    assert problems(found) == ["XID 79"]


def test_without_a_recovery_action_an_xid_stays() -> None:
    found = history()
    found.error(GPU, "XID 79", 0)
    found.read(GPU, Reading(), 100_000)
    assert problems(found) == ["XID 79"]


def test_it_is_forgotten_when_the_driver_has_long_said_that_nothing_is_to_be_done() -> None:
    found = history()
    found.error(GPU, "XID 79", 0)
    found.read(GPU, FINE, 59)
    assert problems(found) == ["XID 79"]
    found.read(GPU, FINE, 60)
    assert problems(found) == []


def test_the_recovery_action_is_a_fault_and_its_end_the_recovery() -> None:
    found = history()
    found.error(GPU, "XID 48", 0)
    found.read(GPU, Reading(RecoveryAction.GPU_RESET), 1)
    assert problems(found) == ["the driver asks for GPU_RESET", "XID 48"]
    found.read(GPU, Reading(), 2)  # a reading that failed says nothing
    assert len(problems(found)) == 2
    found.read(GPU, FINE, 3)
    assert problems(found) == []


def test_being_lost_ends_with_an_answer_and_takes_all_else_along() -> None:
    found = history()
    found.error(GPU, "XID 79", 0)
    found.missing(Reach.LOST)
    assert problems(found)[0] == "the GPU is lost"
    found.read(GPU, Reading(), 1)
    assert problems(found) == []


def test_a_gpu_that_comes_back_from_a_virtual_machine_was_reset() -> None:
    found = history()
    found.error(GPU, "XID 79", 0)
    found.missing(Reach.AWAY)
    assert problems(found) == ["XID 79"]
    found.read(GPU, Reading(), 1)
    assert problems(found) == []


def test_what_cannot_be_read_once_is_no_news() -> None:
    found = history()
    found.missing(Reach.UNREADABLE, "no answer")
    assert found.reach is Reach.SEEN
    found.missing(Reach.UNREADABLE, "no answer")
    assert (found.reach, found.trouble) == (Reach.UNREADABLE, "no answer")
    found.error(GPU, "XID 62", 0)
    found.read(GPU, Reading(), 1)
    assert (found.reach, problems(found)) == (Reach.SEEN, ["XID 62"])


def test_rows() -> None:
    found = history()
    found.read(GPU, Reading(rows=RemappedRows(0, 1, pending=True, failed=True)), 0)
    assert problems(found) == ["a memory row could not be remapped", "a remapped memory row waits for a reset"]
    found.read(GPU, Reading(rows=None), 1)  # not told while MIG devices exist
    assert len(problems(found)) == 2
    found.read(GPU, Reading(rows=RemappedRows(0, 1, pending=False, failed=False)), 2)
    assert problems(found) == []


def test_a_double_bit_event_stays_in_its_part_though_the_counter_is_the_gpus() -> None:
    found = history()
    found.read(GPU, Reading(uncorrected=0), 0)
    found.double_bit(LEFT, 1)
    found.read(GPU, Reading(uncorrected=1), 2)
    found.read(GPU, Reading(uncorrected=1), 3)
    assert (problems(found, LEFT), problems(found, RIGHT)) == (["double-bit ECC error"], [])


def test_an_event_may_come_after_the_counter() -> None:
    found = history()
    found.read(GPU, Reading(uncorrected=0), 0)
    found.read(GPU, Reading(uncorrected=1), 1)
    found.double_bit(LEFT, 2)
    found.read(GPU, Reading(uncorrected=1), 3)
    assert problems(found, RIGHT) == []


def test_a_counter_that_no_event_explains_is_of_the_whole_gpu() -> None:
    found = history()
    for second, count in enumerate((0, 1, 1, 1)):
        found.read(GPU, Reading(uncorrected=count), second)
    assert problems(found, RIGHT) == ["double-bit ECC error"]
    found.read(GPU, Reading(uncorrected=0), 9)  # counters start again when the GPU is reset
    assert problems(found) == []


def test_errors_from_before_count_unless_the_driver_says_that_all_is_well() -> None:
    for action, wanted in ((None, 1), (RecoveryAction.GPU_RESET, 2), (RecoveryAction.NONE, 0)):
        found = history()
        found.read(GPU, Reading(action, uncorrected=2), 0)
        assert len(problems(found)) == wanted


def test_remarks_of_a_healthy_gpu() -> None:
    found = history()
    found.benign["XID 31"] += 2
    found.read(GPU, Reading(corrected=7), 0)
    assert list(found.remarks()) == ["XID 31, 2 times", "corrected memory errors: 7"]
