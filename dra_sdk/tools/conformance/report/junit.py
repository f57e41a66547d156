"""The report as JUnit XML: a test suite for each level, a test case for each check.

A recommendation that is not followed is shown as skipped, with what was found, unless the run is strict: CI goes red
where a driver does not conform, and only there.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from xml.etree import ElementTree as ET

from dra_sdk.tools.conformance.catalog import BY_LEVEL
from dra_sdk.tools.conformance.check import Result, Severity, Status
from dra_sdk.tools.conformance.report.summary import Report
from dra_sdk.tools.conformance.runner import by_level

_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def text(report: Report) -> str:
    """The document."""
    root = ET.Element("testsuites", name="dra-sdk conformance", time=f"{report.seconds:.3f}")
    for level, results in by_level(report.results):
        root.append(_suite(level, results, report))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(level: str, results: Sequence[Result], report: Report) -> ET.Element:
    cases = [_case(each, strict=report.strict) for each in results]
    kinds = [case.find("failure") is not None for case in cases], [case.find("skipped") is not None for case in cases]
    suite = ET.Element(
        "testsuite",
        name=BY_LEVEL[level].title,
        tests=str(len(cases)),
        failures=str(sum(kinds[0])),
        errors="0",
        skipped=str(sum(kinds[1])),
        time=f"{sum(each.seconds for each in results):.3f}",
        timestamp=report.started,
    )
    properties = ET.SubElement(suite, "properties")
    for name, value in (("driver", report.driver), ("target", report.target), ("apiServer", report.server)):
        ET.SubElement(properties, "property", name=name, value=_clean(value))
    suite.extend(cases)
    return suite


def _case(result: Result, *, strict: bool) -> ET.Element:
    check = result.check
    case = ET.Element("testcase", name=f"{check.id} {check.title}", time=f"{result.seconds:.3f}")
    case.set("classname", f"conformance.{check.level}")
    if result.failed:
        red = strict or check.severity is Severity.MUST
        tag, message = ("failure", result.reason) if red else ("skipped", f"should, and does not: {result.reason}")
        ET.SubElement(case, tag, message=_clean(message), type=check.severity.value).text = _clean(_details(result))
    elif result.status is not Status.PASSED:
        ET.SubElement(case, "skipped", message=_clean(f"{result.status.value}: {result.reason}"))
    return case


def _details(result: Result) -> str:
    shown = [f"contract: {result.check.contract}", f"stated in: {result.check.source}"]
    shown += [f"{name}: {json.dumps(value, default=str)}" for name, value in result.evidence]
    return "\n".join(shown)


def _clean(text: str) -> str:
    """Without what no XML document may hold."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)
