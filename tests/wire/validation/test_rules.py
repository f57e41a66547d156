from __future__ import annotations

import pytest

from dra_sdk.wire.resource.claims import DeviceClaim
from dra_sdk.wire.resource.slices import Device, DeviceTaint, ResourceSliceSpec
from dra_sdk.wire.validation import ServerProfile
from dra_sdk.wire.validation.names import dns_label
from dra_sdk.wire.validation.problems import invalid
from dra_sdk.wire.validation.rules import (
    accept,
    check_list,
    check_map,
    check_set,
    immutable,
    semantically_equal,
)

OLD, MIDDLE, NEW = (ServerProfile.of(version) for version in ("1.34", "1.35", "1.36"))


def refuse(_item, field):
    yield invalid(field, "refused")


def found(problems):
    return [(problem.field, str(problem.type)) for problem in problems]


def test_items_are_checked_with_their_index():
    assert found(check_list(["a", "b"], "f", refuse, NEW)) == [("f[0]", "Invalid"), ("f[1]", "Invalid")]
    assert found(check_list(None, "f", refuse, NEW)) == []


def test_only_1_34_checks_the_items_of_a_list_that_is_too_long():
    assert found(check_list(["a", "b"], "f", refuse, NEW, at_most=1)) == [("f", "TooMany")]
    assert len(found(check_list(["a", "b"], "f", refuse, OLD, at_most=1))) == 3


@pytest.mark.parametrize(("profile", "field"), [(NEW, "f[2]"), (MIDDLE, "f[2]"), (OLD, "f[2].name")])
def test_the_path_of_a_duplicate_differs_by_release(profile, field):
    problems = check_set(["a", "b", "a"], "f", accept, profile, key=str, key_field="name")
    assert found(problems) == [(field, "Duplicate")]


def test_duplicates_in_a_set_that_is_too_long_are_reported_before_1_35_only():
    assert found(check_set(["a", "a"], "f", accept, NEW, at_most=1)) == [("f", "TooMany")]
    assert found(check_set(["a", "a"], "f", accept, OLD, at_most=1)) == [
        ("f", "TooMany"),
        ("f[1]", "Duplicate"),
    ]


@pytest.mark.parametrize(("profile", "field"), [(NEW, "f"), (MIDDLE, "f[A]"), (OLD, "f[A]")])
def test_the_path_of_a_wrong_key_differs_by_release(profile, field):
    problems = check_map({"A": 1}, "f", dns_label, refuse, profile, longest_key=63)
    assert found(problems) == [(field, "Invalid"), ("f[A]", "Invalid")]


def test_paths_show_long_keys_without_their_middle():
    problems = check_map({"a" * 10 + "b" * 10: 1}, "f", accept, refuse, NEW, longest_key=4)
    assert found(problems) == [("f[aaaaaaa...bbbbbb]", "Invalid")]


def test_only_1_34_checks_the_entries_of_a_map_that_is_too_large():
    assert found(check_map({"A": 1, "B": 2}, "f", dns_label, accept, NEW, longest_key=63, at_most=1)) == [
        ("f", "TooMany")
    ]
    assert len(found(check_map({"A": 1, "B": 2}, "f", dns_label, accept, OLD, longest_key=63, at_most=1))) == 3


@pytest.mark.parametrize(
    ("model", "left", "right"),
    [
        (Device, {"name": "a"}, {"name": "a", "attributes": {}, "taints": [], "nodeName": None}),
        (Device, {"capacity": {"m": {"value": "1000m"}}}, {"capacity": {"m": {"value": 1}}}),
        (DeviceTaint, {"timeAdded": "2026-01-01T12:00:00Z"}, {"timeAdded": "2026-01-01T13:00:00+01:00"}),
        (DeviceTaint, {"value": ""}, {}),
        (
            DeviceClaim,
            {"config": [{"opaque": {"parameters": {"a": 1, "b": [2]}}}]},
            {"config": [{"opaque": {"parameters": {"b": [2], "a": 1}}}]},
        ),
    ],
)
def test_values_with_the_same_meaning_are_equal(model, left, right):
    assert semantically_equal(model.model_validate(left), model.model_validate(right))


@pytest.mark.parametrize(
    ("model", "left", "right"),
    [
        (Device, {"capacity": {"m": {"value": "1"}}}, {"capacity": {"m": {"value": "2"}}}),
        (Device, {"attributes": {"a": {}}}, {}),
        (Device, {"allNodes": False}, {}),
        (ResourceSliceSpec, {"nodeName": ""}, {}),
        (DeviceTaint, {"timeAdded": "2026-01-01T12:00:00Z"}, {"timeAdded": "2026-01-01T12:00:01Z"}),
        (DeviceClaim, {"requests": [{"name": "a"}, {"name": "b"}]}, {"requests": [{"name": "b"}, {"name": "a"}]}),
    ],
)
def test_values_with_other_meanings_are_not_equal(model, left, right):
    assert not semantically_equal(model.model_validate(left), model.model_validate(right))


def test_a_change_of_an_immutable_field_is_a_problem():
    assert list(immutable("a", "a", "spec.driver")) == []
    assert [str(problem.type) for problem in immutable("a", "b", "spec.driver")] == ["Invalid"]
