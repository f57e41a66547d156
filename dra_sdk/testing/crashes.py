"""Killing a driver at every point of prepare and unprepare, and seeing that the next call puts everything right.

    assert_survives_crashes(driver, claim("lamp"))

A child process does the work and is killed with SIGKILL: before each step the SDK takes on disk, and before each line
of the driver's own code. Then, as the kubelet would, a fresh driver prepares the claim and unprepares it, or unprepares
it at once; after that the node must be as it was before. What a driver changes must therefore be files of the node.
"""

from __future__ import annotations

import inspect
import os
import signal
import sys
import traceback
import warnings
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.testing.claims import FakeClaim
from dra_sdk.testing.files import QuickFiles
from dra_sdk.testing.harness import DriverHarness

Tree = dict[str, bytes | str]


def assert_survives_crashes(driver: DriverHarness, claim: FakeClaim, *, lines: bool = True) -> int:
    """AssertionError names the point and what went wrong after it; else how many times the driver was killed.

    Without `lines` it is killed at the SDK's steps only. Needs a driver that is given as a class or function, and a
    test process without other threads.
    """
    if not driver.restartable:
        raise TypeError("give the driver as a class or a function, so that each process has one of its own")
    raw = driver.allocate(claim)
    before = tree(driver.node.root)
    _Run(driver, raw, before, lines, "prepare", True).recover()  # as it goes without a crash
    return sum(_killed_everywhere(_Run(driver, raw, before, lines, *each)) for each in _SCENARIOS)


def tree(root: Path) -> Tree:
    """The files and links below a directory with their contents and targets, to see whether anything changed."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


@dataclass(frozen=True)
class _Run:
    """One kind of crash: in `operation`, after which the kubelet asks to `prepare` again, or to unprepare at once."""

    driver: DriverHarness
    claim: JSON
    before: Tree
    lines: bool
    operation: str
    prepares: bool

    def begin(self) -> None:
        """Up to the operation, as it goes without a crash."""
        self.driver.restart()
        self.driver.match.adopt(self.claim)
        if self.operation == "unprepare":
            self.driver.prepare(self.claim)

    def work(self) -> None:
        """The operation itself."""
        if self.operation == "unprepare":
            self.driver.unprepare(self.claim)
        else:
            self.driver.prepare(self.claim)

    def recover(self) -> None:
        """What the kubelet does after a restart of the driver, and what must be true then."""
        self.driver.restart()
        if self.prepares:
            self.driver.prepare(self.claim).container()
        self.driver.unprepare(self.claim)
        self.driver.assert_clean()
        after = tree(self.driver.node.root)
        if changed := [name for name in {**self.before, **after} if self.before.get(name) != after.get(name)]:
            raise AssertionError(f"files of the node are not as before: {', '.join(changed)}")


_SCENARIOS = (("prepare", True), ("prepare", False), ("unprepare", True), ("unprepare", False))


def _killed_everywhere(run: _Run) -> int:
    for point in count(1):
        run.begin()
        where = _killed_at(run, point)
        follow_up = "prepare and unprepare" if run.prepares else "unprepare"
        try:
            run.recover()
        except Exception as error:
            told = f"killed in {run.operation} at point {point} ({where}), then {follow_up}"
            raise AssertionError(f"{told}: {type(error).__name__}: {error}") from error
        if not where:
            return point - 1
    raise AssertionError("a driver's code has an end")


def _killed_at(run: _Run, point: int) -> str:
    """Where a child process was killed at its point number `point`, "" if it came to its end before."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads: a harness has none
        child = os.fork()
    if child == 0:
        _child(run, point, writing)
    os.close(writing)
    with os.fdopen(reading) as told:
        said = told.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise AssertionError(f"{run.operation} failed without a crash:\n{said}")
    return said


def _child(run: _Run, point: int, told: int) -> None:
    """Never returns."""
    status = 1
    try:
        killer = _Killer(point, told, _source(run.driver.plugin))
        run.driver.start(QuickFiles(lambda step, path: killer.step(f"{step} of {path.name}")))
        if run.lines:
            sys.settrace(killer.trace)
        run.work()
        sys.settrace(None)
        status = 0
    except BaseException:  # noqa: BLE001 (whatever it is, the child must not go on as its parent)
        sys.settrace(None)
        os.write(told, traceback.format_exc().encode())
    finally:
        os._exit(status)


@dataclass
class _Killer:
    """Counts points and kills its process at one of them, after telling where that is.

    A line counts once between two steps of the SDK, so that loops come to an end.
    """

    point: int
    told: int
    source: str
    passed: int = 0
    seen: set[tuple[str, int]] = field(default_factory=set)

    def step(self, where: str) -> None:
        """One point."""
        self.seen.clear()
        self._pass(where)

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """For `sys.settrace`: looks at lines of the driver's own files alone."""
        if not frame.f_code.co_filename.startswith(self.source):
            return None
        at = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and at not in self.seen:
            self.seen.add(at)
            self._pass(f"{Path(at[0]).name}, line {at[1]}")
        return self.trace

    def _pass(self, where: str) -> None:
        self.passed += 1
        if self.passed == self.point:
            os.write(self.told, where.encode())
            os.kill(os.getpid(), signal.SIGKILL)


def _source(plugin: object) -> str:
    """Where the driver's code lies: the directory of its package, or its file."""
    path = Path(inspect.getfile(type(plugin)))
    return f"{path.parent}{os.sep}" if (path.parent / "__init__.py").exists() else str(path)
