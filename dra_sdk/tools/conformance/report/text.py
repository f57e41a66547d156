"""The report for people: a table by level as the run goes on; then what failed with the evidence, and the score."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Iterator
from typing import Any

from dra_sdk.tools.conformance.catalog import BY_LEVEL
from dra_sdk.tools.conformance.check import Result, Severity, Status
from dra_sdk.tools.conformance.report.summary import Report

WIDTH = 118
EVIDENCE = 600
"""Characters of one piece of evidence; JSON has it whole."""
_MARKS = {
    Status.PASSED: "passed",
    Status.FAILED: "FAILED",
    Status.NOT_APPLICABLE: "n/a",
    Status.NOT_RUN: "not run",
}


class Table:
    """The table of a run, as it grows: a heading for each level, a row for each check."""

    def __init__(self) -> None:
        self._level = ""

    def rows(self, result: Result) -> Iterator[str]:
        """The lines that one more result adds."""
        if result.check.level != self._level:
            self._level = result.check.level
            yield ""
            yield BY_LEVEL[self._level].title
        yield from _row(result)


def closing(report: Report) -> Iterator[str]:
    """What failed, with the evidence, and the score."""
    for result in report.failures:
        yield ""
        yield from failure(result)
    yield ""
    yield from _summary(report)


def _row(result: Result) -> Iterator[str]:
    mark = _MARKS[result.status]
    if result.failed and result.check.severity is Severity.SHOULD:
        mark = "failed"
    yield f"  {result.check.id:<11}{mark:<9}{result.check.severity:<8}{result.check.title}"
    if result.status in {Status.NOT_APPLICABLE, Status.NOT_RUN}:
        yield from _wrapped(printable(result.reason.partition("\n")[0]), " " * 30)


def failure(result: Result) -> Iterator[str]:
    """What a failed check is about, what was found, and the evidence."""
    check = result.check
    yield f"{check.id} {'FAILED' if check.severity is Severity.MUST else 'failed (should)'}"
    yield from _wrapped(f"contract: {check.contract}", "  ")
    yield from _wrapped(f"stated in: {check.source}", "  ")
    first, *others = result.reason.splitlines() or ["(no reason)"]
    yield from _wrapped(f"found: {printable(first)}", "  ")
    yield from (f"    {printable(each)}" for each in others)
    for name, value in result.evidence:
        yield from _wrapped(f"{name}: {_short(value)}", "    ")


def _summary(report: Report) -> Iterator[str]:
    counts = [f"{report.count(status)} {status}" for status in Status]
    yield f"driver {report.driver or 'unknown'} ({report.target}), API server {report.server}, {report.seconds:.0f} s"
    checks = len(report.results)
    yield f"{checks} check{'' if checks == 1 else 's'}: {', '.join(counts)}"
    verdict = "conforms" if report.conformant else "does not conform" if report.seen else "could not be checked"
    yield f"must {report.score(Severity.MUST)}, should {report.score(Severity.SHOULD)}: the driver {verdict}"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ") or [indent]


def _short(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = printable(" ".join(text.split()))
    return text if len(text) <= EVIDENCE else f"{text[:EVIDENCE]}…"


def printable(text: str) -> str:
    """One line that every terminal takes, whatever a driver answers."""
    return "".join(each if each.isprintable() else each.encode("unicode_escape").decode() for each in text)
