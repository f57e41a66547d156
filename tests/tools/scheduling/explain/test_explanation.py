from __future__ import annotations

import json

from dra_sdk.tools.scheduling.explain import explain
from dra_sdk.tools.scheduling.explain.explanation import Explanation, NodeReport
from tests.tools.scheduling.explain import situations


def test_to_json():
    as_json = explain(situations.shared(), ("default", "c")).to_json()
    assert json.loads(json.dumps(as_json)) == as_json
    assert as_json["satisfiable"] is False
    assert as_json["reports"][0]["requests"][0]["deviceClass"] == "cpu"
    assert as_json["changes"][0]["field"] == "spec.devices.requests[0].exactly.capacity.requests[dra.cpu/cpu]"
    assert "pod" not in as_json


def test_to_json_returns_a_new_copy():
    report = NodeReport(("n1", "n2"), fits=False)
    explanation = Explanation("c", False, "no", reports=(report,))
    assert explanation.to_json()["reports"][0] == {"nodes": ["n1", "n2"], "fits": False, "final": False}
    assert report.example == "n1"
    explanation.to_json()["reports"].clear()
    assert explanation.to_json()["reports"]
