"""Each alert of the chart, tried by Prometheus' own rule tests: when it fires, and that it is silent otherwise."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk.tools.manifests import CHART
from tests.tools.manifests.promtool import find_promtool, rule_test

JSON = dict[str, Any]
RULES = CHART / "files/alerts.yaml"
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
NODE = 'driver="dra.cpu",node="a"'
INFO = f'dra_sdk_build_info{{{NODE},version="1"}}'
UP = 'up{daemonset="dra-cpu",node="a",pod="dra-cpu-x"}'
WANTED = 'kube_daemonset_status_desired_number_scheduled{daemonset="dra-cpu",namespace="dra-sdk"}'
READY = 'kube_daemonset_status_number_ready{daemonset="dra-cpu",namespace="dra-sdk"}'
CALL = f'dra_sdk_call_seconds_count{{{NODE},call="prepare",result="error"}}'


def devices(health: str, pod: str = "") -> str:
    return f'dra_sdk_devices{{{NODE},pool="a",health="{health}"{pod}}}'


def left_out(kind: str, pod: str = "") -> str:
    return f'dra_sdk_hardware_left_out{{{NODE},kind="{kind}",subject="node 1"{pod}}}'


FIRES: dict[str, tuple[dict[str, str], str, dict[str, str]]] = {
    "DraNoDriver": ({"up": "1x30"}, "20m", {}),
    "DraDriverDown": ({UP: "1x5 0x30"}, "20m", {"daemonset": "dra-cpu", "node": "a", "pod": "dra-cpu-x"}),
    "DraDriverGone": ({INFO: "1x10 stale"}, "30m", {"driver": "dra.cpu", "node": "a"}),
    "DraDaemonSetIncomplete": (
        {WANTED: "3x40", READY: "3x5 2x35"},
        "30m",
        {"daemonset": "dra-cpu", "namespace": "dra-sdk"},
    ),
    "DraDriverNotRegistered": ({f"dra_sdk_registered{{{NODE}}}": "0x30"}, "10m", {"driver": "dra.cpu", "node": "a"}),
    "DraSlicesNotSynced": ({f"dra_sdk_slices_synced{{{NODE}}}": "0x30"}, "10m", {"driver": "dra.cpu", "node": "a"}),
    "DraSlicesFail": ({f"dra_sdk_slice_errors_total{{{NODE}}}": "0+1x60"}, "40m", {"driver": "dra.cpu", "node": "a"}),
    "DraDevicesUnhealthy": (
        {devices("healthy"): "3x30", devices("unhealthy"): "0x5 1x30"},
        "20m",
        {"driver": "dra.cpu", "node": "a", "pool": "a"},
    ),
    "DraDevicesFewer": ({devices("healthy"): "4x20 3x60"}, "60m", {"driver": "dra.cpu", "node": "a"}),
    "DraDeviceLeftOut": (
        {left_out("device"): "0x5 1x40", left_out("device", ',pod="old"'): "1x3 stale"},
        "30m",
        {"driver": "dra.cpu", "node": "a", "subject": "node 1"},
    ),
    "DraStateFileUnreadable": (
        {f"dra_sdk_state_files_unreadable{{{NODE}}}": "1x30"},
        "5m",
        {"driver": "dra.cpu", "node": "a"},
    ),
    "DraClaimHeldByUndo": (
        {f"dra_sdk_claims_held_by_undo{{{NODE}}}": "1x60"},
        "50m",
        {"driver": "dra.cpu", "node": "a"},
    ),
    "DraNriNotConnected": ({f"dra_sdk_nri_connected{{{NODE}}}": "0x30"}, "10m", {"driver": "dra.cpu", "node": "a"}),
    "DraContainersNotPinned": (
        {f"dra_sdk_nri_failed_updates_total{{{NODE}}}": "0x5 1x30"},
        "15m",
        {"driver": "dra.cpu", "node": "a"},
    ),
    "DraCallsFail": ({CALL: "0+1x60"}, "40m", {"driver": "dra.cpu", "node": "a", "call": "prepare"}),
    "DraCallsSlow": (
        {
            f'dra_sdk_call_seconds_bucket{{{NODE},call="prepare",result="ok",le="20"}}': "0x90",
            f'dra_sdk_call_seconds_bucket{{{NODE},call="prepare",result="ok",le="45"}}': "0+1x90",
            f'dra_sdk_call_seconds_bucket{{{NODE},call="prepare",result="ok",le="+Inf"}}': "0+1x90",
        },
        "60m",
        {"driver": "dra.cpu", "node": "a", "call": "prepare"},
    ),
    "DraApiRequestsFail": (
        {f'dra_sdk_api_requests_total{{{NODE},method="GET",status="503"}}': "0+60x90"},
        "60m",
        {"driver": "dra.cpu", "node": "a"},
    ),
}
"""For each alert: series by the minute that make it fire, at which time it is looked at, and its labels then."""

VALUES = {"DraDaemonSetIncomplete": "1", "DraDevicesUnhealthy": "1", "DraDevicesFewer": "3"}
"""What an alert has in its sentence as `$value`."""
CALM: dict[str, str] = {
    INFO: "1x120",
    UP: "1x120",
    WANTED: "3x120",
    READY: "3x120",
    f"dra_sdk_registered{{{NODE}}}": "1x120",
    f"dra_sdk_slices_synced{{{NODE}}}": "1x120",
    f"dra_sdk_slice_errors_total{{{NODE}}}": "0x20 1x100",  # one write that was refused and repeated
    f"dra_sdk_state_files_unreadable{{{NODE}}}": "0x120",
    left_out("device"): "0x10 1x10 0x100",  # one discovery that failed and was repeated
    left_out("fact"): "1x120",
    f"dra_sdk_nri_connected{{{NODE}}}": "1x120",
    f"dra_sdk_nri_failed_updates_total{{{NODE}}}": "2x120",
    devices("healthy", ',pod="old"'): "4x60 stale",  # both pods of a rolling update publish the same devices
    devices("healthy", ',pod="new"'): "_x50 4x70",
    devices("unhealthy", ',pod="new"'): "_x50 0x70",
    f'dra_sdk_api_requests_total{{{NODE},method="GET",status="200"}}': "0+60x120",
}


@pytest.fixture(scope="session")
def promtool() -> Path:
    path = find_promtool()
    if path is None:
        pytest.skip("there is no promtool: `make promtool` gets it")
    return path


def summary(name: str, labels: dict[str, str], value: str) -> str:
    """The sentence with the labels of an alert."""
    text: str = ALERTS[name]["annotations"]["summary"]
    return re.sub(r"{{ \$labels\.(\w+) }}", lambda match: labels[match[1]], text).replace("{{ $value }}", value)


def test_every_alert_is_tried() -> None:
    assert set(FIRES) == set(ALERTS)


def test_the_rules_are_what_prometheus_reads(promtool: Path) -> None:
    done = subprocess.run([promtool, "check", "rules", RULES], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_fires_when_it_should(name: str, promtool: Path, tmp_path: Path) -> None:
    values, at, labels = FIRES[name]
    severity = ALERTS[name]["labels"]["severity"]
    fired = {
        "exp_labels": {**labels, "severity": severity},
        "exp_annotations": {"summary": summary(name, labels, VALUES.get(name, ""))},
    }
    alerts = [{"alertname": name, "eval_time": at, "exp_alerts": [fired]}]
    assert rule_test(promtool, RULES, [_test(values, alerts)], tmp_path) == ""


@pytest.mark.parametrize("name", ALERTS)
def test_an_alert_is_silent_while_drivers_work_and_are_updated(name: str, promtool: Path, tmp_path: Path) -> None:
    alerts = [{"alertname": name, "eval_time": f"{minute}m", "exp_alerts": []} for minute in (10, 30, 55, 75, 110)]
    assert rule_test(promtool, RULES, [_test(CALM, alerts)], tmp_path) == ""


def _test(values: dict[str, str], alerts: list[JSON]) -> JSON:
    series = [{"series": name, "values": text} for name, text in values.items()]
    return {"interval": "1m", "input_series": series, "alert_rule_test": alerts}
