"""Which servers are reached through a proxy. The cases of `no_proxy` are those of golang.org/x/net/http/httpproxy."""

from __future__ import annotations

import pytest

from dra_sdk.errors import SettingsError
from dra_sdk.kube.proxies import environment_proxy, http_proxy

PROXY = "http://proxy:3128"


@pytest.mark.parametrize(
    ("no_proxy", "url"),
    [
        ("*", "https://api.example.com"),
        ("api.example.com", "https://api.example.com"),
        ("example.com", "https://api.example.com"),
        (".example.com", "https://API.example.com"),
        ("api.example.com:6443", "https://api.example.com:6443"),
        ("10.0.0.1", "https://10.0.0.1:443"),
        ("localhost, 10.96.0.0/12", "https://10.96.0.1:443"),
        ("fd00::/8", "https://[fd00::1]:443"),
    ],
)
def test_an_excepted_server_is_reached_directly(no_proxy: str, url: str) -> None:
    assert http_proxy(url, PROXY, no_proxy) is None


@pytest.mark.parametrize("no_proxy", ["", ",", "example.org", "ample.com", "10.0.0.0/8", "api.example.com:443"])
def test_any_other_server_is_reached_through_the_proxy(no_proxy: str) -> None:
    assert http_proxy("https://api.example.com:6443", PROXY, no_proxy) == ("proxy", 3128)


def test_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("https_proxy", "HTTPS_PROXY"):
        monkeypatch.delenv(name, raising=False)
    assert http_proxy("https://api.example.com", "", "") is environment_proxy("https://api.example.com") is None


def test_variables_in_small_letters_count_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.setenv("HTTPS_PROXY", "http://capitals")
    monkeypatch.delenv("https_proxy", raising=False)
    assert environment_proxy("https://api.example.com") == ("capitals", 80)
    monkeypatch.setenv("https_proxy", "http://[fd00::2]:8080")
    assert environment_proxy("https://api.example.com") == ("fd00::2", 8080)


@pytest.mark.parametrize("proxy", ["socks5://proxy:1", "https://proxy", "proxy:3128", "http://", "http://proxy:99999"])
def test_a_proxy_that_is_no_http_url_is_named(proxy: str) -> None:
    with pytest.raises(SettingsError, match=f"proxy '{proxy}' is not an http:// URL"):
        http_proxy("https://api.example.com", proxy, "")
