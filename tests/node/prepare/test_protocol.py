"""The model of the protocol, for a moment; `make faults` runs a hundred thousand steps of it."""

from __future__ import annotations

from tests.faults.protocol import happened, run


def test_a_few_hundred_steps_in_any_order() -> None:
    run(seed_number=1, steps=500)
    assert happened["steps"] >= 500
    assert happened["prepare: done"]
