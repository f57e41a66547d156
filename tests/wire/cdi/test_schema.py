from __future__ import annotations

import pytest

from dra_sdk.wire.cdi import schema


def read(value, what=schema.SPEC):
    problems: list[str] = []
    return what.read(value, problems), problems


def test_fields_that_are_null_are_absent():
    found, problems = read(
        {"kind": "a/b", "containerEdits": None, "devices": [{"name": "d", "annotations": {"a": None}}]}
    )
    assert found == {"kind": "a/b", "devices": [{"name": "d", "annotations": {"a": ""}}]}
    assert problems == []


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ([], ": must be an object, is a list"),
        ({"xyzzy": 1}, ".xyzzy: unknown field"),
        ({"kind": []}, ".kind: must be a string, is a list"),
        ({"devices": {}}, ".devices: must be a list, is an object"),
        ({"devices": [None]}, ".devices[0]: must be an object, is null"),
        ({"annotations": []}, ".annotations: must be an object, is a list"),
        ({"annotations": {"a": {}}}, ".annotations[a]: must be a string, is an object"),
        ({"containerEdits": {"env": ["A=1", None]}}, ".containerEdits.env[1]: must be a string, is null"),
        (
            {"containerEdits": {"additionalGids": [-1]}},
            ".containerEdits.additionalGids[0]: must be from 0 to 4294967295, is -1",
        ),
        (
            {"containerEdits": {"additionalGids": [True]}},
            ".containerEdits.additionalGids[0]: must be a whole number, is a boolean",
        ),
        (
            {"containerEdits": {"deviceNodes": [{"path": "/dev/a"}, {"path": "/dev/b", "major": 1.5}]}},
            ".containerEdits.deviceNodes[1].major: must be a whole number, is a fraction",
        ),
        (
            {"containerEdits": {"intelRdt": {"enableMonitoring": 1}}},
            ".containerEdits.intelRdt.enableMonitoring: must be a boolean, is a number",
        ),
        ({"containerEdits": {"intelRdt": {"enableCMT": True}}}, ".containerEdits.intelRdt.enableCMT: unknown field"),
        (
            {"containerEdits": {"hooks": [{"timeout": 2**63}]}},
            f".containerEdits.hooks[0].timeout: must be from {-(2**63)} to {2**63 - 1}, is {2**63}",
        ),
    ],
)
def test_a_wrong_type_is_named_with_its_path(value, problem):
    assert read(value)[1] == [problem]


def test_numbers_and_booleans_are_accepted_as_strings():
    found, problems = read(
        {"devices": [{"name": 0}], "annotations": {"a": True}, "containerEdits": {"env": ["A=1", 1.5]}}
    )
    assert found == {
        "devices": [{"name": "0"}],
        "annotations": {"a": "true"},
        "containerEdits": {"env": ["A=1", "1.5"]},
    }
    assert problems == []


def test_other_python_values_are_named_by_type(tmp_path):
    assert read({"kind": tmp_path})[1] == [f".kind: must be a string, is a {type(tmp_path).__name__}"]
