from __future__ import annotations

from collections.abc import Callable

import pytest


@pytest.mark.parametrize(
    "expression",
    [
        "ip(@.address).family() == 4 && ip('::1').isLoopback() && ip('0.0.0.0').isUnspecified()",
        "ip('10.0.0.1').isGlobalUnicast() && !ip('255.255.255.255').isGlobalUnicast() && !ip('::').isGlobalUnicast()",
        "ip('fe80::1').isLinkLocalUnicast() && !ip('10.0.0.1').isLinkLocalUnicast()",
        "ip('224.0.0.5').isLinkLocalMulticast() && ip('ff02::1').isLinkLocalMulticast()",
        "ip.isCanonical('::1') && !ip.isCanonical('0:0::1') && !isIP('::ffff:1.2.3.4') && !isIP('fe80::1%eth0')",
        "cidr('10.0.0.0/8').containsIP(@.address) && cidr('10.0.0.0/8').containsIP(ip('10.9.9.9'))",
        "cidr('10.0.0.0/8').containsCIDR('10.1.0.0/16') && !cidr('10.0.0.0/8').containsCIDR(cidr('0.0.0.0/0'))",
        "cidr('10.1.2.3/8').masked() == cidr('10.0.0.0/8') && cidr('10.1.2.3/8').ip() == ip('10.1.2.3')",
        "cidr('::/64').prefixLength() == 64 && !isCIDR('10.0.0.0') && !isCIDR('10.0.0.0/33') && !isCIDR('10.0.0.0/08')",
        "!cidr('10.0.0.0/8').containsIP('::1')",
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
        ("ip('x') == ip('::1')", "does not appear to be an IPv4 or IPv6 address"),
        ("cidr('10.0.0.0') == cidr('10.0.0.0/8')", "is no network address"),
        ("url('x') == url('x')", 'URL parse error during conversion from string: parse "x": invalid URI for request'),
        ("url('http://h:' + @.model) == url('/')", 'invalid port ":A100 PCIe" after host'),
        ("url(':' + @.model) == url('/')", "missing protocol scheme"),
    ],
)
def test_errors(failure: Callable[[str], str], expression: str, problem: str):
    assert problem in failure(expression)
