from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "-7 / 2 == -3 && -7 % 2 == -1 && 7 / -2 == -3 && 7 % -2 == 1",
        "7u / 2u == 3u && 7u % 2u == 1u && 2u * 3u - 1u == 5u",
        "7.0 / 2.0 == 3.5 && 1.0 / 0.0 > 1e300 && -1.0 / 0.0 < -1e300",
        "0.0 / 0.0 != 0.0 / 0.0",
        "'a' + 'b' == 'ab' && b'a' + b'b' == b'ab' && [1] + [2] == [1, 2]",
        "1 < 2u && 2u > 1.5 && 1 <= 1.0",
        "false < true && 'a' < 'b' && b'a' <= b'a'",
        "1 != 2 && [1] != [2] && {'a': 1} != {'a': 2}",
        "dyn(1) == 1.0 && dyn(1) != '1'",
        "size('é') == 1 && b'é'.size() == 2 && [1].size() == 1 && size({}) == 0",
        "-(-9223372036854775807) == 9223372036854775807",
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
        ("9223372036854775807 + 1 == 0", "integer overflow"),
        ("-9223372036854775808 / -1 == 0", "integer overflow"),
        ("-(-9223372036854775808) == 0", "integer overflow"),
        ("0u - 1u == 0u", "unsigned integer overflow"),
        ("1 % 0 == 0", "modulus by zero"),
        ("dyn(1) + dyn('a') == 1", "no such overload"),
        ("dyn(1) < dyn('a')", "no such overload"),
        ("dyn([semver('1.0.0')]).exists(x, x == 1)", "no such overload"),
        ("quantity('1') == quantity('0').add(1)", "no such overload"),
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
