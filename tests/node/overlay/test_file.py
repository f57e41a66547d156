from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.model.device import DeviceTaint, Version
from dra_sdk.node.overlay import OverlayError, load
from dra_sdk.node.overlay.file import FILE_LIMIT

HEAD = "apiVersion: dra-sdk.dev/v1alpha1\nkind: DeviceOverlay\nrules:\n"


def write(tmp_path: Path, rules: str, head: str = HEAD) -> Path:
    path = tmp_path / "overlay.yaml"
    path.write_text(head + rules)
    return path


def problems(path: Path) -> list[str]:
    with pytest.raises(OverlayError) as caught:
        load(path)
    title = f"overlay {path}: "
    assert all(each.startswith(title) for each in caught.value.problems)
    return [each.removeprefix(title) for each in caught.value.problems]


def test_everything_a_rule_can_say(tmp_path: Path):
    rules = """
  - match: device.attributes["gpu.example.com"].index < 4
    nodes: ["gpu-*", other]
    attributes:
      topology.example.com/rail: 1
      rack: r7
      a.example.com/firmware: {version: 1.2.3}
      a.example.com/versions: {versions: [1.2.3]}
      a.example.com/flags: [true, false]
      a.example.com/time: 10:20:30
    taints: [{key: site.example.com/maintenance, value: "yes", effect: NoSchedule}]
    override: true
  - taints: [{key: a, effect: None}]
"""
    first, second = load(write(tmp_path, rules)).rules
    assert first.match is not None
    assert first.match.expression == 'device.attributes["gpu.example.com"].index < 4'
    assert (first.where, first.nodes, first.override) == ("rules[0]", ("gpu-*", "other"), True)
    assert first.attributes == {
        "topology.example.com/rail": 1,
        "rack": "r7",
        "a.example.com/firmware": "1.2.3",
        "a.example.com/versions": ["1.2.3"],
        "a.example.com/flags": [True, False],
        "a.example.com/time": "10:20:30",
    }
    assert type(first.attributes["a.example.com/firmware"]) is Version
    assert first.taints == (DeviceTaint(key="site.example.com/maintenance", value="yes", effect="NoSchedule"),)
    assert (second.match, second.nodes, second.override) == (None, (), False)
    assert second.taints == (DeviceTaint(key="a", effect="None"),)


def test_null_is_not_there(tmp_path: Path):
    rule = load(write(tmp_path, "  - {match: null, nodes: null, attributes: {a: 1}, taints: null}\n")).rules[0]
    assert (rule.match, rule.nodes, rule.taints) == (None, (), ())


def test_no_rules_is_an_overlay(tmp_path: Path):
    assert load(write(tmp_path, "  []\n")).rules == ()


@pytest.mark.parametrize(
    ("rule", "problem"),
    [
        ("{attributes: {a: 1}, atributes: {}}", "rules[0].atributes: unknown field"),
        ("{attributes: {a: 1.5}}", "rules[0].attributes[a]: want a bool, an int, a string"),
        ("{attributes: {a: []}}", "rules[0].attributes[a]: want a bool, an int, a string"),
        ("{attributes: {a: [1, b]}}", "rules[0].attributes[a]: want a bool, an int, a string"),
        ("{attributes: {a: {version: 1.2}}}", "rules[0].attributes[a]: want a bool, an int, a string"),
        ("{attributes: {a: {version: v1.2.3}}}", "rules[0].attributes[a]: must be a semantic version"),
        ("{attributes: {a: 9223372036854775808}}", "rules[0].attributes[a]: attribute a: 9223372036854775808"),
        (f"{{attributes: {{a: {'x' * 65}}}}}", "rules[0].attributes[a]: must be at most 64 bytes"),
        ("{attributes: {x.example.com/ra-il: 1}}", "rules[0].attributes[x.example.com/ra-il]: must be a C identifier"),
        ("{attributes: {/a: 1}}", "rules[0].attributes[/a]: the domain must not be empty"),
        ("{taints: [{key: a b, effect: NoSchedule}]}", "rules[0].taints[0].key: must be name or domain/name"),
        ("{taints: [{key: a, effect: NoRun}]}", "rules[0].taints[0].effect: Input should be 'NoSchedule'"),
        ("{taints: [{key: a}]}", "rules[0].taints[0].effect: is required"),
        ("{taints: [{key: a, value: yes, effect: NoSchedule}]}", "rules[0].taints[0].value: want a string in quotes"),
        ("{taints: [{key: a, value: a b, effect: NoSchedule}]}", "rules[0].taints[0].value: must be a label value"),
        (
            "{taints: [{key: a, effect: NoSchedule}, {key: a, value: b, effect: NoSchedule}]}",
            "rules[0].taints[1]: key a with effect NoSchedule is given twice",
        ),
        ("{match: true, attributes: {a: 1}}", "rules[0].match: want a string in quotes"),
        ("{match: 'device.foo', attributes: {a: 1}}", "rules[0].match: line 1, column 7: undefined field 'foo'"),
        ("{match: '1', attributes: {a: 1}}", "must evaluate to bool or the unknown type, not int"),
        ("{nodes: [], attributes: {a: 1}}", "rules[0].nodes: List should have at least 1 item"),
        ("{override: true}", "rules[0]: has neither attributes nor taints nor publish"),
        ("5", "rules[0]: Input should be a valid dictionary"),
    ],
)
def test_what_is_wrong_with_a_rule(tmp_path: Path, rule: str, problem: str):
    found = problems(write(tmp_path, f"  - {rule}\n"))
    assert len(found) == 1
    assert found[0].startswith("line 4: ")
    assert problem in found[0]


def test_every_problem_is_told_with_its_line(tmp_path: Path):
    rules = "  - attributes:\n      a-b: 1\n  - match: device.x\n    attributes: {c-d: 1}\n"
    found = problems(write(tmp_path, rules))
    assert [each.split(":")[0] for each in found] == ["line 5", "line 7", "line 6"]


def test_a_match_that_the_api_server_would_refuse(tmp_path: Path):
    costly = "lists.range(1000).all(x, lists.range(1000).all(y, x + y >= 0))"
    assert "too complex" in problems(write(tmp_path, f"  - match: {costly}\n    attributes: {{a: 1}}\n"))[0]


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("", "want one document of kind DeviceOverlay, found 0"),
        ("[]", "want one document of kind DeviceOverlay, found 1"),
        (HEAD + "  []\n---\n" + HEAD + "  []\n", "want one document of kind DeviceOverlay, found 2"),
        ("rules: [", "line 1"),
        (
            "apiVersion: v1\nkind: DeviceOverlay\nrules: []\n",
            "line 1: apiVersion: Input should be 'dra-sdk.dev/v1alpha1'",
        ),
        (
            "apiVersion: dra-sdk.dev/v1alpha1\nkind: Overlay\nrules: []\n",
            "line 2: kind: Input should be 'DeviceOverlay'",
        ),
        ("apiVersion: dra-sdk.dev/v1alpha1\nkind: DeviceOverlay\n", "rules: is required"),
        (HEAD + "  - attributes: {a: 1, a: 2}\n", "line 4"),
    ],
)
def test_what_is_no_overlay(tmp_path: Path, content: str, problem: str):
    assert problem in problems(write(tmp_path, content, head=""))[0]


def test_a_pattern_without_its_library_is_a_problem_of_its_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    match = 'device.driver.matches("only in this test")'
    (problem,) = problems(write(tmp_path, f"  - match: {match}\n    attributes: {{a: 1}}\n"))
    assert problem.startswith(
        "line 4: rules[0].match: regular expressions need the package google-re2, which is not installed"
    )


def test_a_file_that_is_not_there(tmp_path: Path):
    assert problems(tmp_path / "missing.yaml") == ["cannot be read: No such file or directory"]
    assert issubclass(OverlayError, SettingsError)


def test_an_overlay_is_read_up_to_a_limit(tmp_path: Path):
    assert load(write(tmp_path, " []\n#" + "x" * (FILE_LIMIT - len(HEAD) - 5))).rules == ()
    assert problems(write(tmp_path, " []\n#" + "x" * (FILE_LIMIT - len(HEAD) - 4))) == [
        "cannot be read: it has more than 4 MiB, the most that is read"
    ]
