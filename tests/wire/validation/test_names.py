from __future__ import annotations

import pytest

from dra_sdk.wire.validation import ServerProfile, names

NEW, OLD = ServerProfile.of("1.36"), ServerProfile.of("1.34")
LABEL_63 = "a" * 63


def types(problems):
    return [str(problem.type) for problem in problems]


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (names.dns_label, ["a", "0", "a-b", LABEL_63], ["", "A", "a.b", "-a", "a-", "a_b", LABEL_63 + "a", "ä", "a\n"]),
        (names.dns_subdomain, ["a", "a.b-c.0", ".".join([LABEL_63] * 3)], ["", "a..b", ".a", "a.-b", "A.b", "a" * 254]),
        (names.driver_name, ["a", "GPU.example.com", LABEL_63], ["a b", "a/b"]),
        (names.pool_name, ["a", "node-1.example.com/pool/b"], ["a//b", "/a", "a_b"]),
        (
            names.label_key,
            ["a", "A_b.c-0", "example.com/a", LABEL_63],
            ["", "-a", "a/b/c", "/a", "a/", "A/b", "x" * 64],
        ),
        (names.label_value, ["", "a", "A_b.c-0", LABEL_63], ["-a", "a b", "a/b", LABEL_63 + "a"]),
        (names.identifier, ["a", "_a9", "A" * 32], ["", "9a", "a-b", "a.b", "ä"]),
        (
            names.uuid,
            ["00000000-0000-4000-8000-00000000000a"],
            ["", "x", "00000000-0000-4000-8000-00000000000A", "0" * 32],
        ),
        (
            names.semantic_version,
            ["0.0.0", "1.2.3", "1.2.3-alpha.1+build.007", "1.0.0-0a", "1.0.0--"],
            ["", "1", "1.2", "v1.2.3", "01.2.3", "1.2.3-01", "1.2.3-", "1.2.3+", "1.2.3 "],
        ),
        (
            names.extended_resource_name,
            ["example.com/gpu"],
            ["gpu", "kubernetes.io/gpu", "x.kubernetes.io/gpu", "requests.example.com/gpu", "example.com/", "a/b/c"],
        ),
    ],
)
def test_each_format_is_checked(check, good, bad):
    assert {value: types(check(value, "f")) for value in good} == {value: [] for value in good}
    assert {value: types(check(value, "f"))[:1] for value in bad} == {value: ["Invalid"] for value in bad}


@pytest.mark.parametrize("check", [names.driver_name, names.pool_name, names.required_subdomain])
def test_required_names_must_not_be_empty(check):
    assert types(check("", "f")) == ["Required"]


def test_each_name_has_its_own_limit():
    assert types(names.driver_name("a" * 64, "f")) == ["TooLong"]
    assert types(names.pool_name("/".join(["a" * 63] * 4), "f")) == ["TooLong"]
    assert types(names.identifier("a" * 33, "f")) == ["TooLong"]


@pytest.mark.parametrize(
    ("name", "new", "old"),
    [
        ("memory", [], []),
        ("example.com/memory", [], []),
        ("a/b/c", [], []),
        ("", ["Invalid"], ["Required"]),
        ("/memory", ["Invalid"], ["Required"]),
        ("example.com/", ["Invalid"], ["Required"]),
        ("example.com/1", ["Invalid"], ["Invalid"]),
        ("exa_mple/memory", ["Invalid"], ["Invalid"]),
        (f"{'a' * 64}/{'b' * 33}", ["TooLong", "TooLong"], ["TooLong", "TooLong"]),
    ],
)
def test_qualified_names_are_identifiers_with_an_optional_domain(name, new, old):
    assert types(names.qualified_name(name, "f", NEW)) == new
    assert types(names.qualified_name(name, "f", OLD)) == old


@pytest.mark.parametrize(
    ("name", "new", "old"),
    [("example.com/a", [], []), ("a", ["Invalid"], ["Invalid"]), ("", ["Invalid", "Invalid"], ["Required"])],
)
def test_fully_qualified_names_need_a_domain(name, new, old):
    assert types(names.fully_qualified_name(name, "f", NEW)) == new
    assert types(names.fully_qualified_name(name, "f", OLD)) == old


def test_a_problem_states_the_rule_and_the_value():
    (problem,) = names.dns_label("GPU", "spec.devices[0].name")
    assert str(problem) == (
        "spec.devices[0].name: must be a DNS label (lower-case letters, digits and inner '-', at most 63 characters),"
        " is 'GPU'"
    )
