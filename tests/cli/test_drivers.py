"""`dra-sdk drivers --schema` and `--policy`; the list is in test_main.py."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml

from tests.cli.commands import Run, runner

BARE = """
from dra_sdk import Device, DriverInfo

class Bare:
    def dra_driver_info(self):
        return DriverInfo("bare.example.com")

    def dra_discover(self):
        return [Device("bare")]

    def dra_prepare(self, claim):
        return [device.prepared() for device in claim.devices]
"""


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_schema_of_a_driver_is_printed(run: Run) -> None:
    done = run("drivers", "--schema", "cpu")
    assert done.status == 0
    schema = json.loads(done.out)
    assert schema["title"] == "Opaque configuration of dra.cpu"
    assert schema["oneOf"] == [{"$ref": "#/$defs/CpuConfig"}]
    assert schema["$defs"]["CpuConfig"]["properties"]["apiVersion"] == {"const": "dra.cpu/v1alpha1"}


def test_two_entry_points_of_one_driver_are_told(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("one", "two"):
        info = tmp_path / f"{name}-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[dra_sdk.drivers]\n{name} = bare_driver:Bare\n")
    (tmp_path / "bare_driver.py").write_text(BARE)
    monkeypatch.syspath_prepend(tmp_path)
    done = run("drivers")
    assert "warning: one and two are both driver bare.example.com: only one of them can run on a node\n" in done.err
    assert done.err.count("warning:") == 1


def test_a_driver_without_configuration_has_no_schema(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "bare_driver.py").write_text(BARE)
    monkeypatch.syspath_prepend(tmp_path)
    bare = run("drivers", "--schema", "bare_driver:Bare")
    assert (bare.status, bare.out) == (2, "")
    assert bare.err == "dra-sdk: driver bare.example.com takes no configuration, so it has no schema\n"
    assert "unknown driver 'bare'" in run("drivers", "--schema", "bare").err
    policy = run("drivers", "--policy", "bare_driver:Bare")
    assert (policy.status, policy.out) == (2, "")
    assert policy.err == "dra-sdk: driver bare.example.com takes no configuration, so there is nothing to check\n"


def test_the_policy_of_a_driver_is_printed_for_kubectl(run: Run) -> None:
    done = run("drivers", "--policy", "cpu")
    assert (done.status, done.err) == (0, "")
    policy, binding = yaml.safe_load_all(done.out)
    assert [policy["kind"], binding["kind"]] == ["ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"]
    assert policy["metadata"]["name"] == binding["spec"]["policyName"] == "dra-config-dra.cpu"


def test_the_list_as_json(run):
    drivers = {driver["name"]: driver for driver in json.loads(run("drivers", "-o", "json").out)}
    assert (drivers["cpu"]["driver"], drivers["cpu"]["from"].partition(" ")[0]) == ("dra.cpu", "dra-driver-cpu")
    assert {"discover", "prepare"} <= set(drivers["cpu"]["hooks"])
