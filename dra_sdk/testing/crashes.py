"""Kills a driver at every point of prepare and unprepare, and tests that the next call repairs everything.

    assert_survives_crashes(driver, claim("lamp"))

A child process does the work and is killed with SIGKILL: before each step that the SDK takes on disk, and before each
line of the driver's own code. Then a new driver prepares the claim and unprepares it, as the kubelet would have it, or
unprepares it at once. After that the node must be as it was before. So the driver may change only files of the node.
A line before which nothing on the node has changed (no file, and nothing was done through `node.effects`) counts as a
crash but is not tried: a new driver would find what it found after the crash before.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import traceback
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.testing.claims import FakeClaim
from dra_sdk.testing.harness import DriverHarness, QuickFiles
from dra_sdk.testing.node import FakeNode
from dra_sdk.tools.node_archive.trees import Entries, Tree, differences, entries, tree

__all__ = ["Tree", "assert_survives_crashes", "differences", "tree"]


def assert_survives_crashes(
    driver: DriverHarness, claim: FakeClaim, *, lines: bool = True, modules: Sequence[ModuleType] = ()
) -> int:
    """Raise AssertionError with the point of the crash and what went wrong after it; otherwise the number of crashes.

    Without `lines` the driver is killed only at the SDK's steps. Lines of `modules`, such as a block that the driver
    stands on, count as its own. Needs a driver that is given as a class or function, and a test process without other
    threads.
    """
    if not driver.restartable:
        raise TypeError("give the driver as a class or a function, so that each process can make a new one")
    allocated = driver.allocate(claim)
    before = tree(driver.node.root)
    traced = (_source_prefix(driver.plugin), *(str(module.__file__) for module in modules)) if lines else ()
    _Scenario(driver, allocated, before, traced, "prepare", prepares_again=True).recover()  # without a crash
    scenarios = [_Scenario(driver, allocated, before, traced, *operation) for operation in _OPERATIONS]
    return sum(_crash_at_every_point(scenario) for scenario in scenarios)


@dataclass(frozen=True)
class _Scenario:
    """Crashes in `operation`; then the kubelet prepares the claim again if `prepares_again`, and unprepares it.

    `lines` are the beginnings of the paths of files whose lines are points.
    """

    driver: DriverHarness
    claim: JSON
    before: Tree
    lines: tuple[str, ...]
    operation: str
    prepares_again: bool

    def set_up(self) -> None:
        """Do what comes before the operation."""
        self.driver.restart()
        self.driver.cluster.adopt(self.claim)
        if self.operation == "unprepare":
            self.driver.prepare(self.claim)

    def operate(self) -> None:
        """Do the operation."""
        if self.operation == "unprepare":
            self.driver.unprepare(self.claim)
        else:
            self.driver.prepare(self.claim)

    def recover(self) -> None:
        """Do what the kubelet does after a restart of the driver, and check that nothing is left."""
        self.driver.restart()
        if self.prepares_again:
            self.driver.prepare(self.claim).container()
        self.driver.unprepare(self.claim)
        self.driver.assert_clean()
        after = tree(self.driver.node.root)
        if changed := differences(self.before, after):
            raise AssertionError(f"files of the node are not as before: {'; '.join(changed)}")


_OPERATIONS: Final = (("prepare", True), ("prepare", False), ("unprepare", True), ("unprepare", False))


def _crash_at_every_point(scenario: _Scenario) -> int:
    last: _Crash | None = None
    while True:
        scenario.set_up()
        crash = _crash_after(scenario, last)
        try:
            scenario.recover()
        except Exception as error:
            next_calls = "prepare and unprepare" if scenario.prepares_again else "unprepare"
            where = f"killed in {scenario.operation} at point {crash.point} ({crash.where})"
            raise AssertionError(f"{where}, then {next_calls}: {type(error).__name__}: {error}") from error
        if not crash.where:
            return crash.point - 1
        last = crash


@dataclass(frozen=True)
class _Crash:
    """One crash of a scenario.

    point: the number of steps and lines up to the crash, from 1; one more than there are if the operation ended first.
    where: the step or line before which the process was killed, "" if the operation ended first.
    actions: how many writes, programs and daemons it had done through `node.effects`.
    state: what the process left on the node; empty without lines.
    """

    point: int
    where: str
    actions: int
    state: Entries


def _crash_after(scenario: _Scenario, last: _Crash | None) -> _Crash:
    """Run the operation in a child process and kill it at the next point that is worth it."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which a harness does not start
        child = os.fork()
    if child == 0:
        os.close(reading)
        _run_child(scenario, last, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        message = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise AssertionError(f"{scenario.operation} failed without a crash:\n{message}")
    point, actions, where = message.split(" ", 2)
    return _Crash(int(point), where, int(actions), entries(scenario.driver.node.root) if scenario.lines else {})


def _run_child(scenario: _Scenario, last: _Crash | None, pipe: int) -> None:
    """Run the operation and end the process."""
    status = 1
    try:
        killer = _Killer(pipe, scenario.driver.node, scenario.lines, last)
        scenario.driver.restart(QuickFiles(lambda step, path: killer.step(f"{step} of {path.name}")))
        if scenario.lines:
            sys.settrace(killer.trace)
        scenario.operate()
        sys.settrace(None)
        killer.report("")
        status = 0
    except BaseException:  # noqa: BLE001 (the child must never continue as its parent)
        sys.settrace(None)
        os.write(pipe, traceback.format_exc().encode())
    finally:
        os._exit(status)


@dataclass
class _Killer:
    """Counts points and kills its process at one of them, after it has written the point to a pipe.

    That is the first step of the SDK after the last crash, or before it the first line at which the node is not as
    the last crash left it. Between two steps of the SDK a line counts once, so that the points of a loop are limited.

    pipe: takes the number of the point and its place.
    node: the node.
    source_prefixes: how the paths of the files begin whose lines count.
    last: the last crash, None if there was none.
    passed: how many points the process has passed.
    seen: the file and line of each line since the last step.
    """

    pipe: int
    node: FakeNode
    source_prefixes: tuple[str, ...]
    last: _Crash | None
    passed: int = 0
    seen: set[tuple[str, int]] = field(default_factory=set)

    def __post_init__(self) -> None:
        """Count actions from now on."""
        self._before = len(self.node.effects.calls)

    def step(self, where: str) -> None:
        """Count a step of the SDK."""
        self.seen.clear()
        self.passed += 1
        if self.last is None or self.passed > self.last.point:
            self._kill(where)

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """Count lines of the files that count; a trace function for `sys.settrace`."""
        if not frame.f_code.co_filename.startswith(self.source_prefixes):
            return None
        line = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line not in self.seen:
            self.seen.add(line)
            self.passed += 1
            if self._is_worth_it():
                self._kill(f"{Path(line[0]).name}, line {line[1]}")
        return self.trace

    def report(self, where: str) -> None:
        """Tell the parent the point; it is one after all others at the end of the operation."""
        os.write(self.pipe, f"{self.passed + (not where)} {self._actions} {where}".encode())

    @property
    def _actions(self) -> int:
        return len(self.node.effects.calls) - self._before

    def _is_worth_it(self) -> bool:
        last = self.last
        if last is None:
            return True
        return self.passed > last.point and (self._actions != last.actions or entries(self.node.root) != last.state)

    def _kill(self, where: str) -> None:
        self.report(where)
        os.kill(os.getpid(), signal.SIGKILL)


def _source_prefix(plugin: object) -> str:
    """Return the start of the paths of the driver's code: the directory of its package, or its file."""
    path = Path(inspect.getfile(type(plugin)))
    return f"{path.parent}{os.sep}" if (path.parent / "__init__.py").exists() else str(path)
