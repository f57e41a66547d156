from __future__ import annotations

import copy
from typing import Any

import pytest

from dra_sdk.tools.simulator.patching import PatchError, json_patched, merge_patched
from dra_sdk.tools.simulator.resources import CATALOG


@pytest.mark.parametrize(
    ("target", "patch", "merged"),
    [
        ({"a": "b"}, {"a": "c"}, {"a": "c"}),
        ({"a": "b"}, {"b": "c"}, {"a": "b", "b": "c"}),
        ({"a": "b", "b": "c"}, {"a": None}, {"b": "c"}),
        ({"a": ["b"]}, {"a": "c"}, {"a": "c"}),
        ({"a": "c"}, {"a": ["b"]}, {"a": ["b"]}),
        ({"a": {"b": "c"}}, {"a": {"b": "d", "c": None}}, {"a": {"b": "d"}}),
        ({"a": [{"b": "c"}]}, {"a": [1]}, {"a": [1]}),
        ({"e": None}, {"a": 1}, {"e": None, "a": 1}),
        ({}, {"a": {"bb": {"ccc": None}}}, {"a": {"bb": {}}}),
        ([1], {"a": 1}, {"a": 1}),
        ({"a": 1}, [1], [1]),
    ],
)
def test_the_examples_of_the_rfc(target: Any, patch: Any, merged: Any) -> None:
    assert merge_patched(target, patch) == merged


def test_nothing_is_changed_in_place() -> None:
    target = {"a": {"b": 1}}
    merge_patched(target, {"a": {"b": 2}})
    assert target == {"a": {"b": 1}}


@pytest.mark.parametrize(
    ("target", "operation", "patched"),
    [
        ({"a": 1}, {"op": "add", "path": "/b", "value": 2}, {"a": 1, "b": 2}),
        ({"a": [1, 3]}, {"op": "add", "path": "/a/1", "value": 2}, {"a": [1, 2, 3]}),
        ({"a": [1]}, {"op": "add", "path": "/a/-", "value": 2}, {"a": [1, 2]}),
        ({"a": 1}, {"op": "add", "path": "", "value": {"b": 2}}, {"b": 2}),
        ({"a": 1, "b": 2}, {"op": "remove", "path": "/a"}, {"b": 2}),
        ({"a": [1, 2]}, {"op": "remove", "path": "/a/0"}, {"a": [2]}),
        ({"a": {"b": 1}}, {"op": "replace", "path": "/a/b", "value": None}, {"a": {"b": None}}),
        ({"a": [1, 2]}, {"op": "replace", "path": "/a/1", "value": 3}, {"a": [1, 3]}),
        ({"a": 1}, {"op": "move", "from": "/a", "path": "/b"}, {"b": 1}),
        ({"a": [1]}, {"op": "copy", "from": "/a", "path": "/b"}, {"a": [1], "b": [1]}),
        ({"a/b": 1, "~": 2}, {"op": "remove", "path": "/a~1b"}, {"~": 2}),
        ({"~": 2}, {"op": "test", "path": "/~0", "value": 2}, {"~": 2}),
    ],
)
def test_a_json_patch(target: Any, operation: dict[str, Any], patched: Any) -> None:
    before = copy.deepcopy(target)
    assert json_patched(target, [operation]) == patched
    assert target == before


@pytest.mark.parametrize(
    ("operation", "readable"),
    [
        ({"op": "remove", "path": "/x"}, True),
        ({"op": "remove", "path": "/a/5"}, True),
        ({"op": "add", "path": "/x/y", "value": 1}, True),
        ({"op": "add", "path": "/a/5", "value": 1}, True),
        ({"op": "add", "path": "/a/x", "value": 1}, True),
        ({"op": "add", "path": "/b/x", "value": 1}, True),
        ({"op": "test", "path": "/b", "value": 2}, True),
        ({"op": "add", "path": "/b"}, False),
        ({"op": "dance", "path": "/b"}, False),
        ({"op": "remove", "path": "b"}, False),
        ({"path": "/b"}, False),
        ("remove", False),
    ],
)
def test_a_json_patch_that_does_not_fit(operation: Any, readable: bool) -> None:
    with pytest.raises(PatchError) as caught:
        json_patched({"a": [1, 2], "b": 1}, [operation])
    error = caught.value.status(CATALOG["pods"], "p")
    assert (caught.value.readable, error.code) == (readable, 422 if readable else 400)
