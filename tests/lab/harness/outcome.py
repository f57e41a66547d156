"""What the tests inside the machine said: pytest's exit status, its JUnit file, and the machine's console."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

_ENDINGS = ("failure", "error", "skipped")


@dataclass(frozen=True)
class Case:
    """One test: `ending` is passed, failure, error or skipped; `said` is what goes with it."""

    ending: str
    seconds: float
    said: str = ""


@dataclass(frozen=True)
class Outcome:
    """`status` is pytest's, None where the machine ended before; `cases` are by node id, as pytest prints it."""

    status: int | None
    cases: dict[str, Case] = field(repr=False)
    console: str = field(repr=False)
    why: str = ""

    def problem(self, test: str) -> str:
        """Why a test cannot count as passed; empty where it did."""
        case = self.cases.get(test)
        if case is None:
            return f"{test} did not run in the machine: {self.ended}; its console ends:\n{self.tail(12)}"
        return "" if case.ending == "passed" else f"{test} in the machine: {case.ending}\n{case.said}"

    @property
    def ended(self) -> str:
        """How it came to its end."""
        status = "the machine ended before pytest" if self.status is None else f"pytest ended with status {self.status}"
        return self.why or status

    def tail(self, lines: int = 100) -> str:
        """The end of the console; one that panicked needs some lines to tell."""
        return "\n".join(self.console.splitlines()[-lines:])


def read(results: Path, console: str, why: str = "") -> Outcome:
    """From the directory that the machine wrote to; what it did not come to write is missing."""
    status, junit = results / "status", results / "junit.xml"
    return Outcome(
        int(status.read_text()) if status.exists() else None,
        cases(junit.read_text()) if junit.exists() else {},
        console,
        why,
    )


def cases(junit: str) -> dict[str, Case]:
    """The tests of a JUnit file. One that is there twice, because its teardown failed too, counts by the worse."""
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
