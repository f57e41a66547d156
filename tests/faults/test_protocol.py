"""The protocol as a model, many steps of it, a hundred thousand with FULL=1: see `protocol`."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from random import SystemRandom
from time import monotonic
from typing import Final

import pytest

from tests.counts import count
from tests.faults.protocol import program

SEED: Final = "DRA_SDK_PROTOCOL_SEED"
"""An environment variable: the seed that a run told, to draw the same steps again in the same release of hypothesis."""
STEPS: Final = count(20_000, 100_000)
WORKERS: Final = 2


@pytest.mark.timeout(1200)
def test_many_steps_in_any_order(record_property: Callable[[str, object], None]) -> None:
    seed = int(os.environ.get(SEED) or SystemRandom().randrange(1 << 32))
    record_property("told", f"protocol: seed {seed}; {SEED}={seed} draws the same steps")
    begun = monotonic()
    happened: Counter[str] = Counter()
    with ExitStack() as stack:
        workers = []
        for number in range(WORKERS):
            workers.append(stack.enter_context(program(WORKERS * seed + number, STEPS // WORKERS)))
            stack.callback(workers[-1].kill)
        for number, worker in enumerate(workers):
            printed, errors = worker.communicate()
            rerun = f"PYTHONHASHSEED=0 python -m tests.faults.protocol {WORKERS * seed + number} {STEPS // WORKERS}"
            assert worker.returncode == 0, f"{SEED}={seed}, or {rerun}\n{errors}"
            happened.update(json.loads(printed.splitlines()[-1]))
    seconds = monotonic() - begun
    steps = happened.pop("steps")
    record_property(
        "told",
        f"protocol: {steps} steps (seed {seed}), {steps / seconds:.0f} a second: {dict(sorted(happened.items()))}",
    )
    assert steps >= STEPS
    for each in ("prepare: done", "unprepare: done", "prepare: DeviceHeldError", "kills of calls under way"):
        assert happened[each] > STEPS / 1000, f"{each!r} hardly ever happened"
