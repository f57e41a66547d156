from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "url('https://a.example.com:80/b%20c?k=v&k=w').getHost() == 'a.example.com:80'",
        "url('https://a.example.com:80/b%20c').getHostname() == 'a.example.com'",
        "url('https://a:80').getPort() == '80'",
        "url('HTTPS://A').getScheme() == 'https' && url('/x').getScheme() == '' && url('mailto:a').getHost() == ''",
        "url('https://h/a b').getEscapedPath() == '/a%20b' && url('https://h/a%2Fb').getEscapedPath() == '/a%2Fb'",
        "url('https://h/?k=v&k=w&e=%41+b').getQuery() == {'k': ['v', 'w'], 'e': ['A b']}",
        "url('/x?a;b').getQuery() == {}",
        "url('https://u:p\\x40[::1]:80/x').getHostname() == '::1'",
        "url('https://[fe80::1%25eth0]').getHost() == '[fe80::1%eth0]'",
        "isURL('http://h') && isURL('/x') && !isURL('x') && !isURL('') && !isURL('http://h:x') && !isURL('http://a b')",
        "!isURL('http://[::1') && !isURL('http://[1.2.3.4]') && !isURL('http://h/%zz') && !isURL('http://h\\\\x7f')",
        "url('https://h/a') == url('https://h/a') && url('https://h/a') != url('https://h/b')",
    ],
)
def test_true(holds: Callable[[str], bool], expression: str):
    assert holds(expression)


@pytest.mark.parametrize(
    ("expression", "problem"),
    [
        ("url('x') == url('x')", 'URL parse error during conversion from string: parse "x": invalid URI for request'),
        ("url('http://h:' + @.model) == url('/')", 'invalid port ":A100 PCIe" after host'),
        ("url(':' + @.model) == url('/')", "missing protocol scheme"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
