"""The report as JSON, whole, for programs."""

from __future__ import annotations

import json
from typing import Any

from dra_sdk.tools.conformance.check import Result, Severity, Status
from dra_sdk.tools.conformance.report.summary import Report

FORMAT = "conformance.dra-sdk/v1"


def encoded(report: Report) -> dict[str, Any]:
    """The report as JSON values; fields are only ever added within one `format`."""
    return {
        "format": FORMAT,
        "driver": report.driver,
        "target": report.target,
        "apiServer": report.server,
        "started": report.started,
        "seconds": round(report.seconds, 3),
        "conformant": report.conformant,
        "score": {severity.value: report.score(severity) for severity in Severity},
        "counts": {status.value: report.count(status) for status in Status},
        "checks": [_check(each) for each in report.results],
    }


def text(report: Report) -> str:
    """The report as a document."""
    return json.dumps(encoded(report), indent=2, default=str) + "\n"


def _check(result: Result) -> dict[str, Any]:
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
