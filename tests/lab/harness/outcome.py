"""Which tests are meant for the machine, and what came of them: exit status, JUnit file, console."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[3]
INSIDE, REBOOTED = "tests/lab/inside", "tests/lab/rebooted"
"""The tests of the first boot, and those of the second."""
NEEDS_KERNEL = "drivers/nic/tests/prepare/test_attach.py::test_the_kernel_makes_and_removes_a_vrf"
"""A test of a driver that the kernels of other machines skip; it runs in the first boot too."""
_FILES = ("status", "junit.xml")
_ENDINGS = ("failure", "error", "skipped")


def expected_tests() -> list[str]:
    """Returns the node ids of the tests for the machine, as pytest collects them here.

    AssertionError with pytest's output if it cannot collect them.
    """
    paths = (INSIDE, NEEDS_KERNEL, REBOOTED)
    command = [sys.executable, "-m", "pytest", *paths, "--collect-only", "-q", "-p", "no:cacheprovider"]
    environment = {**os.environ, "DRA_SDK_LAB": "collect", "PYTEST_ADDOPTS": ""}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    found = [line for line in done.stdout.splitlines() if line.startswith(paths)]
    assert done.returncode == 0, done.stdout + done.stderr
    assert found, f"no test in {INSIDE} and {REBOOTED}"
    return found


@dataclass(frozen=True)
class Case:
    """The result of one test.

    ending: passed, failure, error or skipped.
    seconds: how long it ran in the machine.
    message: what pytest said about it.
    """

    ending: str
    seconds: float
    message: str = ""


@dataclass(frozen=True)
class Outcome:
    """The result of one run of the machine.

    status: pytest's exit status; None if the machine ended before pytest.
    cases: the results by node id.
    console: what the machine printed.
    why: why the machine ended, if it did not power off by itself.
    """

    status: int | None
    cases: dict[str, Case] = field(repr=False)
    console: str = field(repr=False)
    why: str = ""

    def problem(self, test: str) -> str:
        """Returns why a test does not count as passed; empty if it does."""
        case = self.cases.get(test)
        if case is None:
            return f"{test} did not run in the machine: {self.ended}; its console ends:\n{self.tail(12)}"
        return "" if case.ending == "passed" else f"{test} in the machine: {case.ending}\n{case.message}"

    def and_then(self, other: Outcome) -> Outcome:
        """Returns the outcome of this run and the one of the machine's next boot, as of one run."""
        status = None if self.status is None or other.status is None else max(self.status, other.status)
        console = "\n".join(filter(None, (self.console, other.console)))
        return Outcome(status, {**self.cases, **other.cases}, console, other.why)

    @property
    def ended(self) -> str:
        """How the run came to its end."""
        status = "the machine ended before pytest" if self.status is None else f"pytest ended with status {self.status}"
        return self.why or status

    def tail(self, lines: int = 100) -> str:
        """Returns the end of the console. A kernel panic needs some dozen lines."""
        return "\n".join(self.console.splitlines()[-lines:])


NOTHING = Outcome(0, {}, "")
"""The outcome of no boot."""


def read(results: Path, console: str, why: str = "") -> Outcome:
    """Reads the directory that the machine wrote to; files that it did not write yet are absent."""
    status, junit = (results / name for name in _FILES)
    return Outcome(
        int(status.read_text()) if status.exists() else None,
        cases(junit.read_text()) if junit.exists() else {},
        console,
        why,
    )


def clear(results: Path) -> None:
    """Removes what `read` reads, for the next boot."""
    for name in _FILES:
        (results / name).unlink(missing_ok=True)


def cases(junit: str) -> dict[str, Case]:
    """Reads a JUnit file. A test that is there twice, because its teardown failed too, counts by the worse result."""
    found: dict[str, Case] = {}
    for element in ET.fromstring(junit).iter("testcase"):
        name = f"{element.get('classname', '').replace('.', '/')}.py::{element.get('name')}"
        case = _case(element)
        if name not in found or found[name].ending == "passed":
            found[name] = case
    return found


def _case(element: ET.Element) -> Case:
    seconds = float(element.get("time", "0"))
    for ending in _ENDINGS:
        part = element.find(ending)
        if part is not None:
            return Case(ending, seconds, f"{part.get('message', '')}\n{part.text or ''}".strip())
    return Case("passed", seconds)
