from __future__ import annotations

import json
from xml.etree import ElementTree as ET

from dra_sdk.tools.conformance.check import Result, Severity, Status
from dra_sdk.tools.conformance.checks import BY_ID
from dra_sdk.tools.conformance.report import (
    Report,
    Table,
    closing_lines,
    failure_lines,
    json_document,
    junit_document,
)

EXCHANGE = ("NodePrepareResources", {"request": {"claims": []}, "answer": "INTERNAL: \x1b[31m", "seconds": 0.1})
RESULTS = (
    Result(BY_ID["REG-001"], Status.PASSED, seconds=0.25),
    Result(BY_ID["PREP-001"], Status.FAILED, "no entry for claim \x00\x1b", 0.5, (EXCHANGE,)),
    Result(BY_ID["PREP-012"], Status.FAILED, "prepared twice"),
    Result(BY_ID["PREP-014"], Status.NOT_APPLICABLE, "no shared device"),
    Result(BY_ID["ROLL-001"], Status.NOT_RUN, "needs two instances"),
)
PASSED, MUST, SHOULD, NOT_APPLICABLE, _ = RESULTS


def report(*results: Result, strict: bool = False) -> Report:
    return Report("d.example.com", "run d", "v1.36.3", "2026-01-01T00:00:00+00:00", 1.5, results or RESULTS, strict)


# -- the verdict


def test_a_report_counts_and_scores() -> None:
    made = report()
    assert [made.count(status) for status in Status] == [1, 2, 1, 1]
    assert made.score(Severity.MUST) == "1/2"
    assert made.score(Severity.SHOULD) == "0/1"
    assert [result.check.id for result in made.failures] == ["PREP-001", "PREP-012"]


def test_a_driver_conforms_unless_a_must_failed() -> None:
    assert report(PASSED, MUST).exit_status == 1
    assert report(PASSED, SHOULD).exit_status == 0
    assert report(PASSED, SHOULD, strict=True).exit_status == 1
    assert report(PASSED, NOT_APPLICABLE).exit_status == 0


def test_a_run_that_could_decide_nothing_has_status_2() -> None:
    assert not report(NOT_APPLICABLE).conformant
    assert report(NOT_APPLICABLE).exit_status == 2
    assert list(closing_lines(report(NOT_APPLICABLE)))[-1].endswith("the driver could not be checked")


# -- text


def test_the_table_has_a_heading_for_each_level() -> None:
    table = Table()
    lines = [line for result in RESULTS for line in table.rows(result)]
    assert lines == [
        "",
        "Registration with the kubelet",
        "  REG-001    passed   must    socket is found",
        "",
        "NodePrepareResources",
        "  PREP-001   FAILED   must    one entry per claim",
        "  PREP-012   failed   should  refuses a held device",
        "  PREP-014   n/a      must    answers each share with its id",
        "                              no shared device",
        "",
        "Rolling updates",
        "  ROLL-001   not run  must    two instances serve",
        "                              needs two instances",
    ]


def test_a_failure_has_contract_source_and_evidence() -> None:
    lines = list(closing_lines(report()))
    start = lines.index("PREP-001 FAILED")
    assert lines[start + 1].startswith("  contract: An allocated claim")
    assert "  source: Kubernetes pkg/kubelet/cm/dra/manager.go, prepareResources" in lines
    assert "  found: no entry for claim \\x00\\x1b" in lines
    assert (
        '    NodePrepareResources: {"request": {"claims": []}, "answer": "INTERNAL: \\u001b[31m", "seconds": 0.1}'
        in lines
    )
    assert "PREP-012 failed (should)" in lines
    assert lines[-3:] == [
        "driver d.example.com (run d), API server v1.36.3, 2 s",
        "5 checks: 1 passed, 2 failed, 1 not applicable, 1 not run",
        "must 1/2, should 0/1: the driver does not conform",
    ]


def test_long_evidence_is_cut_and_output_keeps_its_lines() -> None:
    check = RESULTS[0].check
    reason = "the process ended; last lines of its output:\nline 1\nline 2"
    lines = list(failure_lines(Result(check, Status.FAILED, reason, 0, (("x", "y" * 2000),))))
    start = next(index for index, line in enumerate(lines) if line.startswith("  found"))
    first = "  found: the process ended; last lines of its output:"
    assert lines[start : start + 3] == [first, "    line 1", "    line 2"]
    assert lines[-1].endswith("…")
    assert sum(map(len, lines[start:])) < 800
    assert "  found: (no reason)" in failure_lines(Result(check, Status.FAILED))


# -- JSON


def test_the_json_report_is_complete() -> None:
    document = json.loads(json_document(report()))
    assert document["format"] == "conformance.dra-sdk/v1"
    assert document["driver"] == "d.example.com"
    assert document["conformant"] is False
    assert document["score"] == {"must": "1/2", "should": "0/1"}
    assert document["counts"] == {"passed": 1, "failed": 2, "not applicable": 1, "not run": 1}
    passed, failed, *_ = document["checks"]
    assert passed["id"] == "REG-001"
    assert passed["evidence"] == []
    assert failed["status"] == "failed"
    assert failed["level"] == "prepare"
    assert failed["severity"] == "must"
    assert failed["contract"].startswith("An allocated claim")
    assert failed["evidence"][0]["name"] == "NodePrepareResources"


# -- JUnit XML


def test_junit_has_a_suite_per_level_and_a_case_per_check() -> None:
    root = ET.fromstring(junit_document(report()))
    suites = {suite.get("name"): suite for suite in root}
    assert list(suites) == ["Registration with the kubelet", "NodePrepareResources", "Rolling updates"]
    prepare = suites["NodePrepareResources"]
    counts = [prepare.get(name) for name in ("tests", "failures", "skipped", "errors")]
    assert counts == ["3", "1", "2", "0"]
    must, should, not_applicable = prepare.findall("testcase")
    assert must.get("name") == "PREP-001 one entry per claim"
    assert must.get("classname") == "conformance.prepare"
    failure = must.find("failure")
    assert failure is not None
    assert failure.get("message") == "no entry for claim \ufffd\ufffd"
    assert failure.text
    assert "source: Kubernetes" in failure.text
    skipped = should.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "should, but does not: prepared twice"
    skipped = not_applicable.find("skipped")
    assert skipped is not None
    assert skipped.get("message") == "not applicable: no shared device"
    assert {entry.get("name"): entry.get("value") for entry in prepare.iter("property")}["driver"] == "d.example.com"


def test_a_strict_junit_report_fails_for_a_should() -> None:
    root = ET.fromstring(junit_document(report(strict=True)))
    assert [suite.get("failures") for suite in root] == ["0", "2", "0"]
