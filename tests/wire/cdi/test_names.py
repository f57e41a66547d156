from __future__ import annotations

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.cdi import parse_qualified_name, qualified_name, split_kind
from dra_sdk.wire.cdi.names import device_problem, kind_problem, split_device

KIND = "gpu.example.com/device"


def test_a_qualified_name_is_split_into_what_it_was_made_of():
    name = parse_qualified_name(qualified_name(KIND, "claim-1_gpu:0"))
    assert (name.vendor, name.class_, name.device) == ("gpu.example.com", "device", "claim-1_gpu:0")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "must be vendor/class=name"),
        ("/dev/null=x", "must be vendor/class=name"),
        ("vendor.com=x", "must be vendor/class=name"),
        ("vendor.com/class", "must be vendor/class=name"),
        ("1vendor.com/class=x", "vendor '1vendor.com' of the kind must start with a letter"),
        ("vendor.com/cl@ss=x", "class 'cl@ss' of the kind must start with a letter"),
        ("vendor.com/class=x_", "device name 'x_' must start and end with a letter or digit"),
    ],
)
def test_a_bad_qualified_name_is_explained(text, problem):
    with pytest.raises(InvalidObjectError) as refused:
        parse_qualified_name(text)
    assert refused.value.subject == f"CDI device name {text!r}"
    assert refused.value.problems[0].startswith(problem)


@pytest.mark.parametrize("kind", ["a/b", "gpu.example.com/device", "a-b_c.d/e.f-g_h", "A1/B2"])
def test_good_kinds_have_no_problem(kind):
    assert kind_problem(kind) is None
    assert "/".join(split_kind(kind)) == kind


@pytest.mark.parametrize("kind", ["", "a", "a/", "/b", "a/b/c", "a./b", "a/-b", "ä/b", "a\n/b"])
def test_bad_kinds_have_a_problem(kind):
    assert "must" in (kind_problem(kind) or "")


@pytest.mark.parametrize("name", ["a", "0", "0a", "a:b", "a_b-c.d:e0"])
def test_good_device_names_have_no_problem(name):
    assert device_problem(name) is None


@pytest.mark.parametrize("name", ["", "-", ":a", "a:", "a b", "a/b", "a\n"])
def test_bad_device_names_are_quoted_in_their_problem(name):
    assert repr(name) in (device_problem(name) or "")


def test_a_name_that_is_not_qualified_is_not_split():
    assert split_device("/dev/gpu=0") == ("", "", "/dev/gpu=0")
