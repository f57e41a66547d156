from __future__ import annotations

from time import monotonic

from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.conformance.timeouts import poll, wait_until


def test_waiting_ends_with_the_first_true_result() -> None:
    answers = iter([0, "", "now", "later"])
    assert wait_until(lambda: next(answers), LONG, 0.001) == "now"


def test_waiting_without_success_returns_the_last_result() -> None:
    assert wait_until(list, 0.01, 0.001) == []
    assert wait_until(lambda: 0, 0) == 0


def test_polling_looks_at_once_and_again_after_the_end() -> None:
    assert len(list(poll(0))) == 1
    began = monotonic()
    looks = [monotonic() - began for _ in poll(0.05, 0.01)]
    assert looks[-1] >= 0.05
    assert len(looks) > 1
