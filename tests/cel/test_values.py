from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest

from dra_sdk.cel import types
from dra_sdk.cel.values import (
    NONE,
    Cidr,
    Duration,
    EvaluationError,
    Optional,
    Semver,
    Timestamp,
    UInt,
    check_size,
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
        (Timestamp(0), "google.protobuf.Timestamp"),
        (Duration(0), "google.protobuf.Duration"),
    ],
)
def test_type_of(value: Any, name: str):
    assert type_of(value).name == name


def test_fits_looks_at_the_first_item_of_a_list():
    assert fits([1], types.list_of(types.INT))
    assert not fits(["a"], types.list_of(types.INT))
    assert fits([], types.list_of(types.INT))
    assert fits("a", types.DYN)


def test_sizes():
    sized = ["é", b"\xc3\xa9", [1, 2], {"a": 1}, 7, ip_address("10.0.0.1"), Cidr(ip_address("::"), 65), Optional("ab")]
    assert [size(value) for value in sized] == [1, 2, 2, 1, 1, 4, 9, 2]


def test_versions_are_ordered_as_semver_says():
    texts = ["1.0.0-alpha", "1.0.0-alpha.1", "1.0.0-alpha.beta", "1.0.0-beta.2", "1.0.0-beta.11", "1.0.0", "1.0.1"]
    versions = [Semver(text) for text in texts]
    assert sorted(versions, key=lambda version: version) == versions
    assert len(set(versions)) == len(texts)


@pytest.mark.parametrize(
    "text", ["1.0", "v1.0.0", "1.0.0-", "1.0.0-01", "01.0.0", "1.0.0-a..b", "1.0.0+a..b", "", "9" * 30]
)
def test_what_is_no_version(text: str):
    with pytest.raises(ValueError, match="is not a semantic version"):
        Semver(text)


def test_large_values_are_refused():
    with pytest.raises(EvaluationError, match="too large"):
        check_size(10**9)
