from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "@.model.startsWith('A100') && @.model.endsWith('PCIe') && @.model.contains('00 P')",
        "@.model.matches('^A1') && @.model.matches('[0-9]+') && !@.model.matches('^a')",
        "matches(@.model, '(?i)^a1')",
        "'é'.matches('^.$') && !'٣'.matches('\\\\d')",
        "'a1b2'.find('[0-9]') == '1' && 'ab'.find('[0-9]') == ''",
        "'a1b2'.findAll('[0-9]') == ['1', '2'] && 'a1b2'.findAll('[0-9]', 1) == ['1']",
        "'a1'.findAll('[0-9]', 0) == []",
        "'baac'.findAll('a*') == ['', 'aa', '']",
        "'abc'.charAt(1) == 'b' && 'abc'.charAt(3) == ''",
        "'abcabc'.indexOf('c') == 2 && 'abcabc'.indexOf('c', 3) == 5 && 'abc'.indexOf('x') == -1",
        "'abc'.indexOf('') == 0 && 'abc'.indexOf('', 2) == 2 && 'abc'.indexOf('c', 7) == -1",
        "'abcabc'.lastIndexOf('c') == 5 && 'abcabc'.lastIndexOf('c', 4) == 2 && 'abc'.lastIndexOf('') == 3",
        "'abc'.lastIndexOf('c', 7) == -1 && 'abc'.lastIndexOf('', 1) == 1",
        "'aÉ'.upperAscii() == 'AÉ' && 'AÉ'.lowerAscii() == 'aÉ'",
        "'\\t a\\u00a0'.trim() == 'a' && 'a\\x1f'.trim() == 'a\\x1f'",
        "'abc'.substring(1) == 'bc' && 'abc'.substring(1, 2) == 'b' && 'abc'.substring(3) == ''",
        "'abab'.replace('a', 'x') == 'xbxb' && 'abab'.replace('a', 'x', 1) == 'xbab'",
        "'ab'.replace('a', 'x', 0) == 'ab'",
        "'ab'.replace('', '-') == '-a-b-' && 'ab'.replace('a', 'x', -1) == 'xb'",
        "'a,b,c'.split(',') == ['a', 'b', 'c'] && 'a,b,c'.split(',', 2) == ['a', 'b,c'] && 'a,b'.split(',', 0) == []",
        "'abc'.split('') == ['a', 'b', 'c'] && 'abc'.split('', 2) == ['a', 'bc'] && 'a,b'.split(',', -1) == ['a', 'b']",
        "@.links.join(',') == 'nv0,nv1' && ['a', 'b'].join() == 'ab'",
    ],
)
def test_true(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("'abc'.charAt(4) == ''", "index out of range: 4"),
        ("'abc'.substring(4) == ''", "index out of range: 4"),
        ("'abc'.substring(2, 1) == ''", "invalid substring range"),
        ("'abc'.substring(-1) == ''", "index out of range: -1"),
        ("'abc'.indexOf('a', -1) == 0", "index out of range: -1"),
        ("'abc'.lastIndexOf('a', -1) == 0", "index out of range: -1"),
        ("@.ports.join(',') == ''", "no such overload"),
        ("(@.links + @.ports).join() == ''", "join: invalid input"),
        ("@.model.matches(@.model + '(')", "error parsing regexp"),
        ("@.index.startsWith('a')", "no such overload"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
