from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from dra_sdk.cel import types
from dra_sdk.cel.values import (
    MISSING,
    NONE,
    Cidr,
    EvaluationError,
    Optional,
    Semver,
    UInt,
    bounded,
    compare,
    equal,
    find,
    fits,
    size,
    type_of,
)
from dra_sdk.model.quantity import Quantity


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (True, "bool"),
        (1, "int"),
        (UInt(1), "uint"),
        (1.0, "double"),
        ("", "string"),
        (b"", "bytes"),
        (None, "null_type"),
        ([], "list"),
        ({}, "map"),
        (Quantity(1), "kubernetes.Quantity"),
        (Semver("1.0.0"), "kubernetes.Semver"),
        (NONE, "optional_type"),
        (ip_address("::1"), "net.IP"),
        (Cidr(ip_address("10.0.0.0"), 8), "net.CIDR"),
        (types.INT, "type"),
    ],
)
def test_type_of(value: Any, name: str):
    assert type_of(value).name == name


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, 1.0),
        (1, UInt(1)),
        ([1, [2]], [1.0, [UInt(2)]]),
        ({"a": 1}, {"a": 1.0}),
        (Quantity("1Gi"), Quantity(2**30)),
        (Optional(1), Optional(1.0)),
        (NONE, NONE),
        (Semver("1.0.0+a"), Semver("1.0.0+b")),
    ],
)
def test_equal(left: Any, right: Any):
    assert equal(left, right)


@pytest.mark.parametrize(
    ("left", "right"),
    [
        (1, True),
        (True, 1),
        ("a", b"a"),
        (None, 0),
        ([1], [True]),
        ([1], [1, 1]),
        ([], {}),
        ({"a": 1}, {"a": 1, "b": 2}),
        (float("nan"), float("nan")),
        (Optional(1), NONE),
        (types.INT, types.UINT),
    ],
)
def test_unequal(left: Any, right: Any):
    assert not equal(left, right)


@pytest.mark.parametrize("right", ["1Gi", Semver("1.0.0"), None, True])
def test_a_quantity_cannot_be_compared_with_anything_else(right: Any):
    with pytest.raises(EvaluationError, match="no such overload"):
        equal(Quantity(1), right)


@pytest.mark.parametrize(("left", "right", "order"), [(1, 1.5, -1), ("b", "a", 1), (b"a", b"a", 0), (False, True, -1)])
def test_compare(left: Any, right: Any, order: int):
    assert compare(left, right) == order


@pytest.mark.parametrize(("left", "right"), [(1, "a"), (1, True), ([1], [2]), (None, None), (float("nan"), 1.0)])
def test_what_has_no_order(left: Any, right: Any):
    with pytest.raises(EvaluationError):
        compare(left, right)


def test_keys_of_maps_keep_their_types_apart():
    assert find({True: "yes"}, 1) is MISSING
    assert find({1: "one"}, True) is MISSING
    assert find({1: "one"}, 1.0) == "one"
    assert find({"a": 1}, "b") is MISSING


def test_fits_looks_at_the_first_item_of_a_list():
    assert fits([1], types.list_of(types.INT))
    assert not fits(["a"], types.list_of(types.INT))
    assert fits([], types.list_of(types.INT))
    assert fits("a", types.DYN)


def test_sizes():
    sized = ["é", b"\xc3\xa9", [1, 2], {"a": 1}, 7, ip_address("10.0.0.1"), Cidr(ip_address("::"), 65), Optional("ab")]
    assert [size(each) for each in sized] == [1, 2, 2, 1, 1, 4, 9, 2]


def test_versions_are_ordered_as_semver_says():
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1"]
    versions = [Semver(each) for each in texts]
    assert sorted(versions, key=lambda each: each) == versions
    assert len(set(versions)) == len(texts)


@pytest.mark.parametrize(
    "text", ["1.0", "v1.0.0", "1.0.0-", "1.0.0-01", "01.0.0", "1.0.0-a..b", "1.0.0+a..b", "", "9" * 30]
)
def test_what_is_no_version(text: str):
    with pytest.raises(ValueError, match="is not a semantic version"):
        Semver(text)


def test_large_values_are_refused():
    with pytest.raises(EvaluationError, match="too large"):
        bounded(10**9)
