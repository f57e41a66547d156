from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "int('-12') == -12 && int(3.9) == 3 && int(-3.9) == -3 && int(5u) == 5",
        "uint('12') == 12u && uint(3.9) == 3u && uint(5) == 5u",
        "double('1.5') == 1.5 && double(3) == 3.0 && double('1e3') == 1000.0",
        "bool('t') && !bool('FALSE') && bool(true)",
        "string(1) == '1' && string(2u) == '2' && string(true) == 'true' && string(b'a') == 'a' && string('a') == 'a'",
        "string(1.5) == '1.5' && string(100000.0) == '100000' && string(1000000.0) == '1e+06'",
        "string(-0.00001) == '-1e-05' && string(1.0 / 0.0) == '+Inf' && string(0.0) == '0'",
        "bytes('é') == b'\\xc3\\xa9' && bytes(b'a') == b'a'",
        "string(@.index) == '3' && int(string(@.index)) == 3",
        "string(ip('::1')) == '::1' && string(cidr('10.0.0.0/8')) == '10.0.0.0/8'",
        "type(1) == int && type(1u) == uint && type('') == string && type(type(1)) == type && type(null) == null_type",
    ],
)
def test_true(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("int(@.model) == 1", "type conversion error from 'string' to 'int'"),
        ("int(string(@.index) + '_0') == 30", "type conversion error"),
        ("int(double(@.index) * 1e30) == 1", "integer overflow"),
        ("int(1.0 / double(@.index - 3)) == 1", "integer overflow"),
        ("uint(@.index - 4) == 1u", "unsigned integer overflow"),
        ("uint('-' + string(@.index)) == 1u", "type conversion error"),
        ("double(@.model) == 1.0", "type conversion error"),
        ("bool(@.model)", "type conversion error"),
        ("string(b'\\xff' + bytes(@.model)) == ''", "invalid UTF-8"),
        ("int(lists.range(5000).map(x, string(@.index)).join()) == 1", "type conversion error"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
