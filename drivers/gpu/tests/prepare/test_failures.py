"""A failure at every call of NVML, every write to the kernel and every start of a program, in prepare and unprepare.

After a failed prepare the node is as before. After a failed unprepare the next one succeeds. One that succeeds although
a step was refused has left only what does no harm. In all cases the claim can be prepared and unprepared again, and
then the node is as before. The number of points of failure is printed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from dra_driver_gpu.config import API_VERSION
from dra_driver_gpu.nvml.errors import ReturnCode
from dra_driver_gpu.testing.harness import GpuHarness
from dra_driver_gpu.testing.nvml import FakeGpu, fake_gpu

from dra_sdk import DraError
from dra_sdk.node.prepare.checkpoint import Checkpoint
from dra_sdk.node.prepare.state_files import read_checkpoint
from dra_sdk.testing import FakeClaim, PreparedClaim, claim, request

pytestmark = pytest.mark.faults


def config(kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": API_VERSION, "kind": kind, **fields}


TIME_SLICING = config("GpuConfig", sharing={"strategy": "TimeSlicing", "timeSlicingConfig": {"interval": "Long"}})
LIMITS = {"defaultActiveThreadPercentage": 50, "defaultPinnedDeviceMemoryLimit": "10Gi"}
MPS = config("GpuConfig", sharing={"strategy": "MPS", "mpsConfig": LIMITS})
MIG_MPS = config("MigDeviceConfig", sharing={"strategy": "MPS"})


def mig(name: str = "mig", count: int = 1) -> dict[str, Any]:
    return request(name, device_class="mig.nvidia.com", count=count)


def vfio(name: str = "vm") -> dict[str, Any]:
    return request(name, device_class="vfio.gpu.nvidia.com")


@dataclass(frozen=True)
class Scenario:
    name: str
    make: Callable[[], FakeClaim]
    settings: dict[str, Any] = field(default_factory=dict)
    gpus: tuple[FakeGpu, ...] = (fake_gpu("H100-80GB", 0),)
    also: tuple[str, ...] = ()  # files of the node, with a 0 in each


CODES = (ReturnCode.UNKNOWN, ReturnCode.NO_PERMISSION, ReturnCode.IN_USE, ReturnCode.OPERATING_SYSTEM)
HARMLESS = "which does no harm to the next claim"
DYNAMIC = {"dynamic_mig": True}
PASSTHROUGH = {"passthrough": True, "vfio_seconds": 0.2}
EVERYTHING = {**DYNAMIC, **PASSTHROUGH}
SCENARIOS = (
    Scenario("static", lambda: claim("gpu")),
    Scenario("dynamic MIG", lambda: claim(mig()), DYNAMIC),
    Scenario("two dynamic MIG devices", lambda: claim(mig(count=2)), DYNAMIC),
    Scenario("time-slicing", lambda: claim("gpu", config=TIME_SLICING)),
    Scenario("MPS", lambda: claim("gpu", config=MPS), {"mps_shm": "private"}),
    Scenario("VFIO", lambda: claim(vfio()), PASSTHROUGH, also=("/proc/driver/nvidia/gpus/0000:10:00.0/unbindLock",)),
    Scenario(
        "mixed",
        lambda: claim("gpu", mig(), vfio()).configured(TIME_SLICING, "gpu").configured(MIG_MPS, "mig"),
        EVERYTHING,
        (fake_gpu("H100-80GB", 0), fake_gpu("H100-80GB", 1), fake_gpu("H100-80GB", 2)),
    ),
)


def _when(after: bool) -> str:
    return "after the effect" if after else "before the effect"


class Bench:
    """One claim on one node, and failures at its points."""

    def __init__(self, directory: Path, scenario: Scenario) -> None:
        self.harness = GpuHarness(directory, scenario.gpus, **scenario.settings)
        for path in scenario.also:
            self.harness.node.file(path, "0")
        raw = self.harness.driver.allocate(scenario.make())
        self.claim = PreparedClaim(raw, (), None, {"main": None}, self.harness.node)
        for gpu in self.harness.memory.gpus:  # not the default, so that a default does not look restored
            self.harness.memory.state(gpu.uuid).persistence = True
        self.before = self.harness.state()

    def prepare(self) -> None:
        self.harness.driver.prepare(self.claim)

    def unprepare(self) -> None:
        self.harness.unprepare(self.claim)

    def points(self, operation: Callable[[], None], *, after: bool) -> Iterator[tuple[str, int, bool]]:
        """The points of failure of an operation: in NVML or elsewhere, at which call, before or after its effect."""
        nvml, other = len(self.harness.memory.faults.calls), len(self.harness.effects.calls)
        operation()
        for nth in range(1, len(self.harness.memory.faults.calls) - nvml + 1):
            yield "nvml", nth, after
        for nth in range(1, len(self.harness.effects.calls) - other + 1):
            yield "effect", nth, after

    def fails(
        self, operation: Callable[[], None], where: str, nth: int, after: bool, code: ReturnCode = ReturnCode.UNKNOWN
    ) -> bool:
        """Whether the operation fails because of a failure at this point."""
        self.harness.driver.discover()  # as a new process does first; its calls do not fail
        if where == "nvml":
            self.harness.memory.faults.fail_call(nth, code, after=after)
        else:
            self.harness.effects.fail_call(nth, after=after)
        try:
            operation()
        except DraError:
            return True
        finally:
            self.harness.memory.faults.clear()
            self.harness.effects.clear()
        return False

    def refused(self) -> Sequence[tuple[str, str]]:
        """The steps that hold the claim, as its state file has them."""
        state = read_checkpoint(self.harness.driver.data / "claims" / f"{self.claim.ref.uid}.json")
        assert isinstance(state, Checkpoint)
        return state.refused

    def do_by_hand(self) -> None:
        """Restore what a claim that has ended left, as its warning says; the next claim does the rest."""
        self.harness.driver.assert_clean()
        for gpu in self.harness.memory.gpus:
            self.harness.memory.state(gpu.uuid).persistence = True
        self.prepare()
        self.unprepare()

    def assert_as_before(self) -> None:
        assert self.harness.state() == self.before
        self.harness.driver.assert_clean()
        assert not self.harness.effects.running_daemons()


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("after", [False, True], ids=["refused", "done"])
def test_a_failure_of_prepare_leaves_the_node_as_it_was(tmp_path, scenario, after, capsys):
    bench = Bench(tmp_path, scenario)
    points = list(bench.points(bench.prepare, after=after))
    bench.unprepare()
    bench.assert_as_before()
    failed = 0
    for point in points:
        if bench.fails(bench.prepare, *point):
            failed += 1
            bench.assert_as_before()
        bench.prepare()
        bench.unprepare()
        bench.assert_as_before()
    with capsys.disabled():
        print(f"\nprepare, {scenario.name}, {_when(after)}: {len(points)} points of failure, {failed} made it fail")
    assert failed > len(points) / 2


@pytest.mark.parametrize("scenario", SCENARIOS[1:], ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("after", [False, True], ids=["refused", "done"])
def test_unprepare_succeeds_after_it_failed_or_left_only_what_is_harmless(tmp_path, scenario, after, capsys, caplog):
    bench = Bench(tmp_path, scenario)
    bench.prepare()
    points = list(bench.points(bench.unprepare, after=after))
    bench.assert_as_before()
    failed = harmless = 0
    for point in points:
        bench.prepare()
        if bench.fails(bench.unprepare, *point, CODES[point[1] % len(CODES)]):
            failed += 1
            assert [held.uid for held in bench.harness.driver.held] == [bench.claim.ref.uid]
            assert len(bench.refused()) == 1, "all other steps are done"
            bench.unprepare()
        elif HARMLESS in caplog.text:
            harmless += 1
            bench.do_by_hand()
        caplog.clear()
        bench.assert_as_before()
    with capsys.disabled():
        print(
            f"\nunprepare, {scenario.name}, {_when(after)}: {len(points)} points of failure, {failed} made it fail, "
            f"{harmless} were harmless"
        )
    assert points


def _dead(*_: object) -> None:
    """A process that has ended undoes nothing; its journal and records stay."""
    raise OSError("the process has ended")


@pytest.mark.parametrize("scenario", SCENARIOS[1:6], ids=lambda scenario: scenario.name)
@pytest.mark.parametrize("again", ["prepare", "unprepare"])
def test_a_new_process_undoes_what_one_that_ended_left(tmp_path, scenario, again, monkeypatch, capsys):
    bench = Bench(tmp_path, scenario)
    points = list(bench.points(bench.prepare, after=False))
    bench.unprepare()
    points += [(where, nth, True) for where, nth, _ in points]
    died = 0
    for point in points:
        with monkeypatch.context() as patch:
            patch.setattr("dra_driver_gpu.driver.unprepare", _dead)
            died += bench.fails(bench.prepare, *point)
        bench.harness.driver.restart()
        if again == "prepare":
            bench.prepare()
        bench.unprepare()
        bench.assert_as_before()
    with capsys.disabled():
        print(f"\nprocess ends in prepare, {scenario.name}, then {again}: {died} points")
    assert died
