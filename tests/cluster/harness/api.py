"""Plain GET requests to the cluster's servers: a probe every 100 ms must not start a kubectl each time."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from functools import cached_property
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from .errors import HarnessError

if TYPE_CHECKING:
    from .pki import Authority

_TIMEOUT = 5.0


def fetch(url: str, trust: ssl.SSLContext | None = None) -> tuple[int, bytes]:
    """Returns the status and the body of GET `url`; a proxy of the environment is not asked."""
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    try:
        with urllib.request.build_opener(*handlers).open(url, timeout=_TIMEOUT) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def answers(url: str, trust: ssl.SSLContext | None = None) -> bool:
    """Tells whether GET `url` gives 200; a refused or broken connection is a no."""
    try:
        return fetch(url, trust)[0] == HTTPStatus.OK
    except OSError:
        return False


class Api:
    """The API server as the administrator sees it."""

    def __init__(self, authority: Authority, server: str) -> None:
        self.server = server
        self._authority = authority

    @cached_property
    def trust(self) -> ssl.SSLContext:
        """Trusts the cluster's authority alone, and shows the administrator's certificate."""
        context = ssl.create_default_context(cafile=str(self._authority.certificate("ca")))
        context.load_cert_chain(self._authority.certificate("admin"), self._authority.key("admin"))
        return context

    def get(self, path: str) -> Any:
        """Returns the JSON at `path`, for example `/api/v1/nodes`; None where there is no such object."""
        status, body = fetch(self.server + path, self.trust)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise HarnessError(f"GET {path}: {status}: {body[:500].decode(errors='replace')}")
        return json.loads(body)
