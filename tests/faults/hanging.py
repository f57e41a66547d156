"""A driver in another process whose hooks hang where the test wants it, for as long as it wants."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path

from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import ClaimRef
from dra_sdk.tools.simulator.kubelet.calls import V1
from tests.faults.lamps import WatchedLamps
from tests.faults.outside import Outside


class HangingDriver(WatchedLamps):
    """Hangs at each step for which there is a file of that name beside the lamps."""

    def __init__(self) -> None:
        super().__init__()
        self.step = self.hang

    def hang(self, step: str) -> None:
        if (knob := self.lamps.parent / step).exists():
            knob.with_suffix(".hangs").touch()
            wait(lambda: not knob.exists())


def hang(driver: Outside, step: str) -> Path:
    """Have the driver hang at this step until the file is removed."""
    knob = driver.lamps.parent / step
    knob.touch()
    return knob


def wait_hanging(knob: Path) -> None:
    """Until it has come to that step."""
    wait(knob.with_suffix(".hangs").exists)


def calling(pool: ThreadPoolExecutor, driver: Outside, step: str, *refs: ClaimRef, by: str = V1) -> Future[str]:
    """What is wrong with the answer to a call that hangs by now. It does not end with the registration."""
    knob = hang(driver, step)
    call = pool.submit(_straight, driver, step.partition(":")[0], refs, by)
    wait_hanging(knob)
    return call


def _straight(driver: Outside, kind: str, refs: Sequence[ClaimRef], version: str) -> str:
    with driver.calls() as calls:
        call = calls.prepare if kind == "prepare" else calls.unprepare
        return call(refs, version, LONG).problem(refs)
