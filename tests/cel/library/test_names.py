from __future__ import annotations

from collections.abc import Callable

import pytest

from dra_sdk.cel.library.names import FORMATS


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("dns1123Label", "a-1"),
        ("dns1123Subdomain", "a.b-1"),
        ("dns1035Label", "a-1"),
        ("qualifiedName", "example.com/My_name.1"),
        ("qualifiedName", "a"),
        ("dns1123LabelPrefix", "a-"),
        ("dns1123SubdomainPrefix", "a.b-"),
        ("dns1035LabelPrefix", "a-"),
        ("labelValue", ""),
        ("uri", "https://a/b"),
        ("uuid", "123E4567-e89b-12d3-a456-426614174000"),
        ("byte", "YWI="),
        ("date", "2020-02-29"),
        ("datetime", "2020-02-29T23:59:59.5+02:00"),
    ],
)
def test_texts_of_a_format(name: str, text: str):
    assert FORMATS[name].problems(text) == []


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("dns1123Label", "a.b", "must not contain dots"),
        ("dns1123Label", "A", "a lowercase RFC 1123 label must consist of"),
        ("dns1123Label", "a" * 64, "must be no more than 63 characters"),
        ("dns1123Subdomain", "a..b", "a lowercase RFC 1123 subdomain must consist of"),
        ("dns1035Label", "1a", "a DNS-1035 label must consist of"),
        ("qualifiedName", "a/b/c", "with an optional DNS subdomain prefix and '/'"),
        ("qualifiedName", "/b", "prefix part must be non-empty"),
        ("qualifiedName", "a/", "name part must be non-empty"),
        ("labelValue", "-", "a valid label must be an empty string or consist of"),
        ("uri", "x", 'parse "x": invalid URI for request'),
        ("uuid", "x", "does not match the UUID format"),
        ("byte", "", "invalid base64"),
        ("date", "2021-02-29", "invalid date"),
        ("datetime", "2020-02-29T24:00:00Z", "invalid datetime"),
    ],
)
def test_texts_that_are_not(name: str, text: str, problem: str):
    assert problem in FORMATS[name].problems(text)[0]


@pytest.mark.parametrize(
    "expression",
    [
        "format.dns1123Label().validate('a') == optional.none()",
        "format.dns1123Label().validate('a.b').value() == ['must not contain dots']",
        "format.named('uuid').value().validate(@.model).hasValue() && !format.named('nothing').hasValue()",
        "format.uuid() == format.uuid() && format.uuid() != format.date()",
    ],
)
def test_in_an_expression(holds: Callable[[str], bool], expression: str):
    assert holds(expression)
