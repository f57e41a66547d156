from __future__ import annotations

from dra_sdk.tools.conformance.check import Result, Status
from dra_sdk.tools.conformance.report import text
from tests.tools.conformance.report.results import RESULTS, report


def test_the_table_has_a_heading_for_each_level() -> None:
    table = text.Table()
    lines = [line for result in RESULTS for line in table.rows(result)]
    assert lines == [
        "",
        "Registration with the kubelet",
        "  REG-001    passed   must    socket is found",
        "",
        "NodePrepareResources",
        "  PREP-001   FAILED   must    one entry for a claim",
        "  PREP-012   failed   should  refuses a device that another claim holds",
        "  PREP-014   n/a      must    answers each share with its id",
        "                              nothing to share",
        "",
        "Rolling updates",
        "  ROLL-001   not run  must    side by side",
        "                              needs two instances",
    ]


def test_failures_come_with_contract_source_and_evidence() -> None:
    lines = list(text.closing(report()))
    start = lines.index("PREP-001 FAILED")
    assert lines[start + 1].startswith("  contract: An allocated claim is prepared")
    assert "  stated in: Kubernetes pkg/kubelet/cm/dra/manager.go, prepareResources" in lines
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


def test_long_evidence_and_logs_stay_readable() -> None:
    check = RESULTS[0].check
    result = Result(
        check, Status.FAILED, "the process ended; it printed last:\nline 1\nline 2", 0, (("x", "y" * 2000),)
    )
    lines = list(text.failure(result))
    found = next(index for index, line in enumerate(lines) if line.startswith("  found"))
    assert lines[found : found + 3] == ["  found: the process ended; it printed last:", "    line 1", "    line 2"]
    assert lines[-1].endswith("…")
    assert sum(map(len, lines[found:])) < 800
    assert "  found: (no reason)" in text.failure(Result(check, Status.FAILED))
