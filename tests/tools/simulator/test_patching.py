from __future__ import annotations

import copy
from typing import Any

import pytest

from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.patching import json_patched, merge_patched
from dra_sdk.tools.simulator.resources import CATALOG
from dra_sdk.tools.simulator.statuses import StatusError


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
    ("operation", "code"),
    [
        ({"op": "remove", "path": "/x"}, 422),
        ({"op": "remove", "path": "/a/5"}, 422),
        ({"op": "add", "path": "/x/y", "value": 1}, 422),
        ({"op": "add", "path": "/a/5", "value": 1}, 422),
        ({"op": "add", "path": "/a/x", "value": 1}, 422),
        ({"op": "add", "path": "/b/x", "value": 1}, 422),
        ({"op": "test", "path": "/b", "value": 2}, 422),
        ({"op": "add", "path": "/b"}, 400),
        ({"op": "dance", "path": "/b"}, 400),
        ({"op": "remove", "path": "b"}, 400),
        ({"path": "/b"}, 400),
        ("remove", 400),
    ],
)
def test_a_json_patch_that_does_not_fit(operation: Any, code: int) -> None:
    store, pods = ObjectStore(CATALOG.without("namespaces")), CATALOG["pods"]
    store.create(pods, {"metadata": {"name": "p", "namespace": "default"}, "a": [1, 2], "b": 1})
    with pytest.raises(StatusError) as caught:
        store.patch(pods, [operation], "p", "default")
    assert caught.value.code == code
