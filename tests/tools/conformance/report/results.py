"""A report to write in each format."""

from __future__ import annotations

from dra_sdk.tools.conformance.catalog import BY_ID
from dra_sdk.tools.conformance.check import Result, Status
from dra_sdk.tools.conformance.report.summary import Report

EXCHANGE = ("NodePrepareResources", {"request": {"claims": []}, "answer": "INTERNAL: \x1b[31m", "seconds": 0.1})
RESULTS = (
    Result(BY_ID["REG-001"], Status.PASSED, seconds=0.25),
    Result(BY_ID["PREP-001"], Status.FAILED, "no entry for claim \x00\x1b", 0.5, (EXCHANGE,)),
    Result(BY_ID["PREP-012"], Status.FAILED, "given away twice"),
    Result(BY_ID["PREP-014"], Status.NOT_APPLICABLE, "nothing to share"),
    Result(BY_ID["ROLL-001"], Status.NOT_RUN, "needs two instances"),
)


def report(*results: Result, strict: bool = False) -> Report:
    return Report("d.example.com", "run d", "v1.36.3", "2026-01-01T00:00:00+00:00", 1.5, results or RESULTS, strict)
