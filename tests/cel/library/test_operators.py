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
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
