"""Which HTTP proxy leads to a server: `HTTPS_PROXY` or a kubeconfig's `proxy-url`, unless `NO_PROXY` has the server."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Final
from urllib.parse import urlsplit

from dra_sdk.errors import SettingsError

PORTS: Final = {"http": 80, "https": 443}


def environment_proxy(url: str) -> tuple[str, int] | None:
    """Return `http_proxy` by the variables `https_proxy` and `no_proxy`, or those in capitals if these are not set."""
    given = [os.environ.get(name) or os.environ.get(name.upper(), "") for name in ("https_proxy", "no_proxy")]
    return http_proxy(url, *given)


def http_proxy(url: str, proxy: str, no_proxy: str) -> tuple[str, int] | None:
    """Return host and port of the proxy for the server with this URL; None for a direct connection.

    `no_proxy` has names, which stand for all below them too, addresses, networks and `*`, separated by commas. Raises
    SettingsError for a proxy that is no http:// URL. Source: golang.org/x/net/http/httpproxy, which kubectl uses.
    """
    server, rules = urlsplit(url.lower()), no_proxy.lower().split(",")
    if not proxy or any(_has(rule.strip(), server.hostname or "", server.netloc) for rule in rules):
        return None
    place = host_and_port(proxy, ("http",))
    if place is None:
        raise SettingsError(f"proxy {without_user(proxy)!r} is not an http:// URL")
    return place


def without_user(url: str) -> str:
    """Return a URL without user and password, which no error, log line or event may show; also of one that is wrong."""
    return re.sub(r"^([^/?#]*//)?[^/?#]*@", r"\1", url)


def host_and_port(url: str, schemes: Sequence[str] = tuple(PORTS)) -> tuple[str, int] | None:
    """Return host and port of a URL with one of these schemes; None for other texts."""
    try:
        parts = urlsplit(url)
        port = parts.port or PORTS.get(parts.scheme)
    except ValueError:  # such as a port above 65535
        return None
    return (parts.hostname, port) if parts.hostname and port and parts.scheme in schemes else None


def _has(rule: str, host: str, with_port: str) -> bool:
    from ipaddress import ip_address, ip_network  # noqa: PLC0415 (hardly a server has a proxy)

    with suppress(ValueError):
        if ip_address(host) in ip_network(rule, strict=False):
            return True
    name = rule.lstrip(".")
    return rule == "*" or any(place == name or place.endswith(f".{name}") for place in (host, with_port))
