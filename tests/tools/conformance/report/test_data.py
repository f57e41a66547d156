from __future__ import annotations

import json

from dra_sdk.tools.conformance.report import data
from tests.tools.conformance.report.results import report


def test_everything_is_there() -> None:
    found = json.loads(data.text(report()))
    assert found["format"] == "conformance.dra-sdk/v1"
    assert found["driver"] == "d.example.com"
    assert found["conformant"] is False
    assert found["score"] == {"must": "1/2", "should": "0/1"}
    assert found["counts"] == {"passed": 1, "failed": 2, "not applicable": 1, "not run": 1}
    passed, failed, *_ = found["checks"]
    assert passed["id"] == "REG-001"
    assert passed["evidence"] == []
    assert failed["status"] == "failed"
    assert failed["level"] == "prepare"
    assert failed["severity"] == "must"
    assert failed["contract"].startswith("An allocated claim")
    assert failed["evidence"][0]["name"] == "NodePrepareResources"
