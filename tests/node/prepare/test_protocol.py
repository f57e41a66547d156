"""The model of the protocol, for a moment; `make faults` runs many thousands of steps of it."""

from __future__ import annotations

import pytest

from tests.faults.protocol import happened, run
from tests.faults.protocol_guards import GUARDS, Guard


def test_a_few_hundred_steps_in_any_order() -> None:
    run(seed_number=1, steps=500)
    assert happened["steps"] >= 500
    assert happened["prepare: done"]


@pytest.mark.parametrize("guard", GUARDS, ids=lambda guard: guard.name)
def test_the_text_of_each_guard_is_in_the_code(guard: Guard, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise `make faults` could not take it out."""
    assert guard.take_out(monkeypatch) > 0
