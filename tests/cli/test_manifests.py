"""`dra-sdk manifests`: the objects that install drivers."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from dra_sdk.tools.manifests import Chart
from tests.cli.commands import Run, runner

LAMPS = "tests.lamps:LampDriver"


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    return runner(capsys)


def test_the_objects_of_a_driver_come_in_the_order_in_which_they_are_applied(run: Run) -> None:
    done = run("manifests", "cpu")
    assert done.status == 0, done.err
    objects = list(yaml.safe_load_all(done.out))
    assert [obj["kind"] for obj in objects][:2] == ["Namespace", "ServiceAccount"]
    assert objects[-1]["kind"] == "DaemonSet"
    assert "# the new pod takes over" in done.out


def test_they_are_those_of_the_chart(run: Run) -> None:
    objects = list(yaml.safe_load_all(run("manifests", "cpu", "gpu", "--namespace", "here").out))
    values = {"namespace": {"create": True}, "drivers": {"cpu": {"enabled": True}, "gpu": {"enabled": True}}}
    assert objects == [manifest.object for manifest in Chart().render(values, namespace="here")]


def test_a_server_would_take_them(run: Run, tmp_path: Path) -> None:
    (tmp_path / "all.yaml").write_text(run("manifests", "cpu", "gpu", "gpu-amd", LAMPS).out)
    done = run("validate", tmp_path / "all.yaml")
    assert (done.status, done.out) == (0, ""), done.err


def test_each_resource_of_a_device_plugin_has_a_class_for_claims_and_pods(run: Run, tmp_path: Path) -> None:
    name = "drivers.device-plugin.driverName=things.example.com"
    resources = ("--resource", "vendor.com/Thing_2", "--resource", "vendor.com/other")
    done = run("manifests", "device-plugin", *resources, "--set", name)
    assert "must not both serve vendor.com/Thing_2, vendor.com/other" in done.err
    classes = [obj for obj in yaml.safe_load_all(done.out) if obj["kind"] == "DeviceClass"]
    specs = {obj["metadata"]["name"]: obj["spec"] for obj in classes}
    assert [*specs] == ["things.example.com", "thing-2.vendor.com", "other.vendor.com"]
    of_thing = specs["thing-2.vendor.com"]
    assert of_thing["extendedResourceName"] == "vendor.com/Thing_2"
    expression = 'device.attributes["things.example.com"].resource == "vendor.com/Thing_2"'
    assert expression in of_thing["selectors"][0]["cel"]["expression"]
    (tmp_path / "all.yaml").write_text(done.out)
    assert run("validate", tmp_path / "all.yaml").status == 0


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["cpu", "--resource", "vendor.com/thing"], "--resource is for the driver device-plugin"),
        (["device-plugin", "--resource", "thing"], "must be the name of an extended resource"),
        (["device-plugin", "--resource", f"vendor.com/{'x' * 63}"], "has 74 characters"),
    ],
)
def test_a_resource_that_makes_no_class_is_refused(run: Run, arguments: list[str], problem: str) -> None:
    done = run("manifests", *arguments)
    assert done.status == 2
    assert problem in done.err


def test_a_driver_that_the_chart_does_not_know_needs_only_its_name(run: Run) -> None:
    by_kind = {obj["kind"]: obj for obj in yaml.safe_load_all(run("manifests", LAMPS).out)}
    assert by_kind["DeviceClass"]["metadata"]["name"] == "lamps.example.com"
    assert by_kind["DaemonSet"]["metadata"]["name"] == "dra-lamps-example-com"
    assert by_kind["DaemonSet"]["spec"]["template"]["spec"]["containers"][0]["args"] == ["run", LAMPS]


def test_the_values_for_helm_make_the_same_objects(run: Run, tmp_path: Path) -> None:
    (tmp_path / "values.yaml").write_text(run("manifests", LAMPS, "cpu", "--print-values").out)
    values = "--values", tmp_path / "values.yaml"
    assert run("manifests", *values).out == run("manifests", LAMPS, "cpu").out


def test_later_values_win_over_earlier_ones(run: Run, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("image: {repository: r.example.com/a, tag: '1'}\n")
    (tmp_path / "b.yaml").write_text("image: {tag: '2'}\n")
    words = "manifests", "cpu", "-f", tmp_path / "a.yaml", "-f", tmp_path / "b.yaml"
    assert "image: r.example.com/a:2" in run(*words).out
    assert "image: r.example.com/a:3" in run(*words, "--set", "image.tag='3'").out


def test_a_dot_in_a_key_is_escaped(run: Run) -> None:
    done = run("manifests", "cpu", "--set", r"drivers.cpu.nodeSelector.example\.com/cpus=many")
    assert "example.com/cpus: many" in done.out


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        ([], "no driver is switched on: name one"),
        (["cpu", "--set", "drivers.cpu.enabld=true"], "value drivers.cpu.enabld"),
        (["cpu", "--set", "a"], "must be PATH=VALUE"),
        (["cpu", "--namespace", "A"], "must be a DNS label"),
        (["nothing-like-that"], "nothing-like-that"),
        (["cpu", "-f", "missing.yaml"], "missing.yaml"),
    ],
)
def test_bad_input_is_named(run: Run, words: list[str], problem: str) -> None:
    done = run("manifests", *words)
    assert done.status == 2
    assert problem in done.err
    assert done.out == ""


def test_a_file_of_values_that_is_no_mapping_is_named(run: Run, tmp_path: Path) -> None:
    (tmp_path / "list.yaml").write_text("- a\n")
    assert run("manifests", "cpu", "-f", tmp_path / "list.yaml").err.endswith("list.yaml must be a YAML mapping\n")
