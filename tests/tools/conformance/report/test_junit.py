from __future__ import annotations

from xml.etree import ElementTree as ET

from dra_sdk.tools.conformance.report import junit
from tests.tools.conformance.report.results import report


def test_suites_and_cases() -> None:
    root = ET.fromstring(junit.text(report()))
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["Registration with the kubelet", "NodePrepareResources", "Rolling updates"]
    prepare = suites["NodePrepareResources"]
    counts = [prepare.get(name) for name in ("tests", "failures", "skipped", "errors")]
    assert counts == ["3", "1", "2", "0"]
    failed, should, absent = prepare.findall("testcase")
    assert failed.get("name") == "PREP-001 one entry for a claim"
    assert failed.get("classname") == "conformance.prepare"
    failure = failed.find("failure")
    assert failure is not None
    assert failure.get("message") == "no entry for claim \ufffd\ufffd"
    assert failure.text
    assert "stated in: Kubernetes" in failure.text
    skipped = should.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "should, and does not: given away twice"
    skipped = absent.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "not applicable: nothing to share"
    assert {each.get("name"): each.get("value") for each in prepare.iter("property")}["driver"] == "d.example.com"


def test_a_strict_run_goes_red_for_what_should_hold() -> None:
    root = ET.fromstring(junit.text(report(strict=True)))
    assert [suite.get("failures") for suite in root] == ["0", "2", "0"]
