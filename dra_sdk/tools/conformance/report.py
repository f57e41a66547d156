"""The report of one run: as text for people, as JUnit XML for CI, as JSON for programs."""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Final
from xml.etree import ElementTree as ET

from dra_sdk.texts import counted, printable
from dra_sdk.tools.conformance.check import Result, Severity, Status
from dra_sdk.tools.conformance.checks import BY_LEVEL

JSON_FORMAT: Final = "conformance.dra-sdk/v1"
WIDTH: Final = 118
EVIDENCE_LENGTH: Final = 600
"""Characters of one piece of evidence in the text; the JSON report has all of them."""
_STATUS_WORDS: Final = {
    Status.PASSED: "passed",
    Status.FAILED: "FAILED",
    Status.NOT_APPLICABLE: "n/a",
    Status.NOT_RUN: "not run",
}
_NOT_XML: Final = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


@dataclass(frozen=True)
class Report:
    """One run.

    driver: the driver's name; empty if it never registered.
    target: how the driver was reached.
    server: version of the API server.
    started: time of the start, RFC 3339.
    seconds: duration.
    results: the results in running order.
    strict: whether a failed `should` means that the driver does not conform.
    """

    driver: str
    target: str
    server: str
    started: str
    seconds: float
    results: Sequence[Result]
    strict: bool = False

    def count(self, status: Status, severity: Severity | None = None) -> int:
        """Return how many checks have this status."""
        wanted = set(Severity) if severity is None else {severity}
        return sum(result.status is status and result.check.severity in wanted for result in self.results)

    def score(self, severity: Severity) -> str:
        """Return passed checks of those that passed or failed, such as `60/61`."""
        passed = self.count(Status.PASSED, severity)
        return f"{passed}/{passed + self.count(Status.FAILED, severity)}"

    @property
    def failures(self) -> list[Result]:
        """The failed checks, `must` first."""
        return sorted((result for result in self.results if result.failed), key=lambda result: result.check.severity)

    @property
    def conformant(self) -> bool:
        """Whether a check passed, and no `must` failed (if strict, no `should` either)."""
        failed = self.count(Status.FAILED, None if self.strict else Severity.MUST)
        return not failed and self.count(Status.PASSED) > 0

    @property
    def conclusive(self) -> bool:
        """Whether at least one check passed or failed."""
        return self.count(Status.PASSED) + self.count(Status.FAILED) > 0

    @property
    def exit_status(self) -> int:
        """0 if the driver conforms, 1 if it does not, 2 if no check could decide."""
        if not self.conclusive:
            return 2
        return 0 if self.conformant else 1


# -- text


class Table:
    """The table of a run while it grows: a heading for each level, a row for each check."""

    def __init__(self) -> None:
        self._level = ""

    def rows(self, result: Result) -> Iterator[str]:
        """Yield the lines for one more result."""
        if result.check.level != self._level:
            self._level = result.check.level
            yield ""
            yield BY_LEVEL[self._level].title
        yield from _row(result)


def closing_lines(report: Report) -> Iterator[str]:
    """Yield the lines after the table: what failed, with the evidence, and the score."""
    for result in report.failures:
        yield ""
        yield from failure_lines(result)
    yield ""
    yield from _score_lines(report)


def failure_lines(result: Result) -> Iterator[str]:
    """Yield the contract of a failed check, what was found, and the evidence."""
    check = result.check
    yield f"{check.id} {'FAILED' if check.severity is Severity.MUST else 'failed (should)'}"
    yield from _wrapped(f"contract: {check.contract}", "  ")
    yield from _wrapped(f"source: {check.source}", "  ")
    first, *others = result.reason.splitlines() or ["(no reason)"]
    yield from _wrapped(f"found: {printable(first)}", "  ")
    yield from (f"    {printable(line)}" for line in others)
    for name, value in result.evidence:
        yield from _wrapped(f"{name}: {_shortened(value)}", "    ")


def _row(result: Result) -> Iterator[str]:
    word = _STATUS_WORDS[result.status]
    if result.failed and result.check.severity is Severity.SHOULD:
        word = "failed"
    yield f"  {result.check.id:<11}{word:<9}{result.check.severity:<8}{result.check.title}"
    if result.status in {Status.NOT_APPLICABLE, Status.NOT_RUN}:
        yield from _wrapped(printable(result.reason.partition("\n")[0]), " " * 30)


def _score_lines(report: Report) -> Iterator[str]:
    counts = [f"{report.count(status)} {status}" for status in Status]
    yield f"driver {report.driver or 'unknown'} ({report.target}), API server {report.server}, {report.seconds:.0f} s"
    checks = len(report.results)
    yield f"{counted(checks, 'check')}: {', '.join(counts)}"
    verdict = "could not be checked"
    if report.conclusive:
        verdict = "conforms" if report.conformant else "does not conform"
    yield f"must {report.score(Severity.MUST)}, should {report.score(Severity.SHOULD)}: the driver {verdict}"


def _wrapped(text: str, indent: str) -> Iterator[str]:
    yield from textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=indent + "  ") or [indent]


def _shortened(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, default=str)
    text = printable(" ".join(text.split()))
    return text if len(text) <= EVIDENCE_LENGTH else f"{text[:EVIDENCE_LENGTH]}…"


# -- JSON


def json_document(report: Report) -> str:
    """Return the whole report as JSON. Within one `format`, fields are added but never changed."""
    document = {
        "format": JSON_FORMAT,
        "driver": report.driver,
        "target": report.target,
        "apiServer": report.server,
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "conformant": report.conformant,
        "score": {severity.value: report.score(severity) for severity in Severity},
        "counts": {status.value: report.count(status) for status in Status},
        "checks": [_encoded(result) for result in report.results],
    }
    return json.dumps(document, indent=2, default=str) + "\n"


def _encoded(result: Result) -> dict[str, Any]:
    check = result.check
    return {
        "id": check.id,
        "level": check.level,
        "severity": check.severity.value,
        "title": check.title,
        "contract": check.contract,
        "source": check.source,
        "status": result.status.value,
        "reason": result.reason,
        "seconds": round(result.seconds, 4),
        "evidence": [{"name": name, "value": value} for name, value in result.evidence],
    }


# -- JUnit XML


def junit_document(report: Report) -> str:
    """Return a test suite for each level, a test case for each check.

    A `should` that failed is shown as skipped, with the reason, unless the run is strict. So CI fails if and only if
    the driver does not conform.
    """
    root = ET.Element("testsuites", name="dra-sdk conformance", time=f"{report.seconds:.3f}")
    for level, results in groupby(report.results, lambda result: result.check.level):
        root.append(_suite(level, list(results), report))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(level: str, results: Sequence[Result], report: Report) -> ET.Element:
    cases = [_case(result, strict=report.strict) for result in results]
    suite = ET.Element(
        "testsuite",
        name=BY_LEVEL[level].title,
        tests=str(len(cases)),
        failures=str(sum(case.find("failure") is not None for case in cases)),
        errors="0",
        skipped=str(sum(case.find("skipped") is not None for case in cases)),
        time=f"{sum(result.seconds for result in results):.3f}",
        timestamp=report.started,
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("driver", report.driver), ("target", report.target), ("apiServer", report.server)):
        ET.SubElement(properties, "property", name=name, value=_xml_text(value))
    suite.extend(cases)
    return suite


def _case(result: Result, *, strict: bool) -> ET.Element:
    check = result.check
    case = ET.Element("testcase", name=f"{check.id} {check.title}", time=f"{result.seconds:.3f}")
    case.set("classname", f"conformance.{check.level}")
    if result.failed:
        fails = strict or check.severity is Severity.MUST
        tag, message = ("failure", result.reason) if fails else ("skipped", f"should, but does not: {result.reason}")
        details = [f"contract: {check.contract}", f"source: {check.source}"]
        details += [f"{name}: {json.dumps(value, default=str)}" for name, value in result.evidence]
        element = ET.SubElement(case, tag, message=_xml_text(message), type=check.severity.value)
        element.text = _xml_text("\n".join(details))
    elif result.status is not Status.PASSED:
        ET.SubElement(case, "skipped", message=_xml_text(f"{result.status.value}: {result.reason}"))
    return case


def _xml_text(text: str) -> str:
    """Return the text without the characters that XML does not allow."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
