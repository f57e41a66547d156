"""A guard of the node's prepare package, taken out, is found by the model of the protocol.

Each run takes out a share of them, another one each day; FULL=1 takes out each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import pytest

from tests.counts import share
from tests.faults.protocol import program
from tests.faults.protocol_guards import GUARDS, Guard

SEED: Final = 1
STEPS: Final = 300_000
"""Within which it is found. Seed and interpreter are the same each time, so it does not depend on luck."""
SHARES: Final = 6


@pytest.mark.timeout(3600)  # two minutes of processor time, on a machine that may be busy
@pytest.mark.parametrize("guard", share(GUARDS, SHARES), ids=lambda guard: guard.name)
def test_a_guard_that_is_taken_out_is_missed(guard: Guard, record_property: Callable[[str, object], None]) -> None:
    record_property("told", f"guard taken out: {guard.name}")
    with program(SEED, STEPS, guard.name) as run:
        try:
            printed, errors = run.communicate()
        finally:
            run.kill()  # a program whose time is over would be waited for; one that has ended is left alone
    assert run.returncode == 1, f"{guard.name}: nothing was found in {printed}"
    assert "AssertionError" in errors.splitlines()[-1] or "AssertionError: " in errors, errors
    assert "mend the list of guards" not in errors, errors
