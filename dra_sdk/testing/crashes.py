"""Kills a driver at every point of prepare and unprepare, and tests that the next call repairs everything.

    assert_survives_crashes(driver, claim("lamp"))

A child process does the work and is killed with SIGKILL: before each step that the SDK takes on disk, and before each
line of the driver's own code. Then a new driver prepares the claim and unprepares it, as the kubelet would have it, or
unprepares it at once. After that the node must be as it was before. So the driver may change only files of the node.
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
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.testing.claims import FakeClaim
from dra_sdk.testing.harness import DriverHarness, QuickFiles

Tree = dict[str, bytes | str]
"""Files with their contents and links with their targets, by path."""
_LONGEST: Final = 60  # bytes of a file that a message shows


def assert_survives_crashes(driver: DriverHarness, claim: FakeClaim, *, lines: bool = True) -> int:
    """AssertionError with the point of the crash and what went wrong after it; otherwise the number of crashes.

    Without `lines` the driver is killed only at the SDK's steps. Needs a driver that is given as a class or function,
    and a test process without other threads.
    """
    if not driver.restartable:
        raise TypeError("give the driver as a class or a function, so that each process can make a new one")
    allocated = driver.allocate(claim)
    before = tree(driver.node.root)
    _Scenario(driver, allocated, before, lines, "prepare", prepares_again=True).recover()  # without a crash
    scenarios = [_Scenario(driver, allocated, before, lines, *each) for each in _OPERATIONS]
    return sum(_crash_at_every_point(each) for each in scenarios)


def tree(root: Path) -> Tree:
    """The files and links below a directory, to compare them."""
    found: Tree = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            found[name] = str(path.readlink())
        elif path.is_file():
            found[name] = path.read_bytes()
    return found


def differences(before: Tree, after: Tree) -> list[str]:
    """What differs between two trees, a phrase for each file: `sys/class/net/eth0/state: b'up\\n' → b'down'`."""
    names = sorted({**before, **after})
    return [
        f"{name}: {_shown(before.get(name))} → {_shown(after.get(name))}"
        for name in names
        if before.get(name) != after.get(name)
    ]


def _shown(content: bytes | str | None) -> str:
    """The content of a file, the target of a link; shortened if it is long."""
    if content is None:
        return "no file"
    text = repr(content[:_LONGEST]) + ("…" if len(content) > _LONGEST else "")
    return f"link to {text}" if isinstance(content, str) else text


@dataclass(frozen=True)
class _Scenario:
    """Crashes in `operation`; then the kubelet prepares the claim again if `prepares_again`, and unprepares it."""

    driver: DriverHarness
    claim: JSON
    before: Tree
    lines: bool
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
    for point in count(1):
        scenario.set_up()
        where = _crash_at(scenario, point)
        try:
            scenario.recover()
        except Exception as error:
            next_calls = "prepare and unprepare" if scenario.prepares_again else "unprepare"
            crash = f"killed in {scenario.operation} at point {point} ({where}), then {next_calls}"
            raise AssertionError(f"{crash}: {type(error).__name__}: {error}") from error
        if not where:
            return point - 1
    raise AssertionError("a driver's code has an end")


def _crash_at(scenario: _Scenario, point: int) -> str:
    """Run the operation in a child process and kill it at a point; where that was, "" if there is no such point."""
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # about threads, which a harness does not start
        child = os.fork()
    if child == 0:
        os.close(reading)
        _run_child(scenario, point, writing)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        message = pipe.read()
    status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if status not in {0, -signal.SIGKILL}:
        raise AssertionError(f"{scenario.operation} failed without a crash:\n{message}")
    return message


def _run_child(scenario: _Scenario, point: int, pipe: int) -> None:
    """Never returns."""
    status = 1
    try:
        killer = _Killer(point, pipe, _source_prefix(scenario.driver.plugin))
        scenario.driver.start(QuickFiles(lambda step, path: killer.step(f"{step} of {path.name}")))
        if scenario.lines:
            sys.settrace(killer.trace)
        scenario.operate()
        sys.settrace(None)
        status = 0
    except BaseException:  # noqa: BLE001 (the child must never continue as its parent)
        sys.settrace(None)
        os.write(pipe, traceback.format_exc().encode())
    finally:
        os._exit(status)


@dataclass
class _Killer:
    """Counts points, and kills its process at one of them after it has written the place to a pipe.

    Between two steps of the SDK a line counts once, so that the points of a loop are limited.
    """

    point: int
    pipe: int
    source_prefix: str
    passed: int = 0
    seen: set[tuple[str, int]] = field(default_factory=set)

    def step(self, where: str) -> None:
        """A step of the SDK."""
        self.seen.clear()
        self._pass(where)

    def trace(self, frame: FrameType, event: str, _argument: Any) -> Any:
        """A trace function for `sys.settrace`, for lines of the driver's own files."""
        if not frame.f_code.co_filename.startswith(self.source_prefix):
            return None
        line = (frame.f_code.co_filename, frame.f_lineno)
        if event == "line" and line not in self.seen:
            self.seen.add(line)
            self._pass(f"{Path(line[0]).name}, line {line[1]}")
        return self.trace

    def _pass(self, where: str) -> None:
        self.passed += 1
        if self.passed == self.point:
            os.write(self.pipe, where.encode())
            os.kill(os.getpid(), signal.SIGKILL)


def _source_prefix(plugin: object) -> str:
    """The start of the paths of the driver's code: the directory of its package, or its file."""
    path = Path(inspect.getfile(type(plugin)))
    return f"{path.parent}{os.sep}" if (path.parent / "__init__.py").exists() else str(path)
