"""Plain requests to the cluster's servers: a probe every 100 ms must not start a kubectl each time."""

from __future__ import annotations

import json
import ssl
import time
import urllib.error
import urllib.request
from functools import cached_property
from http import HTTPStatus
from http.client import HTTPException
from typing import TYPE_CHECKING, Any

from .errors import HarnessError
from .patience import PATIENCE

if TYPE_CHECKING:
    from .pki import Authority

_PROBE_TIMEOUT = 5.0
"""Seconds for an answer where none is one, too; an answer that is needed may take `PATIENCE`."""
_PAUSE = 0.1
_TOO_BUSY = (ConnectionResetError, TimeoutError)
"""What a client meets where a server gets no time to speak TLS; where there is none, the connection is refused."""


def fetch(
    url: str, trust: ssl.SSLContext | None = None, timeout: float = _PROBE_TIMEOUT, method: str = "GET"
) -> tuple[int, bytes]:
    """Returns the status and the body of a request for `url`; OSError where there is none.

    A proxy of the environment is not asked. Each connection, and each part of the answer, may take `timeout` seconds.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    request = urllib.request.Request(url, method=method)
    try:
        with urllib.request.build_opener(*handlers).open(request, timeout=timeout) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()
    except urllib.error.URLError as error:
        if isinstance(error.reason, OSError):
            raise error.reason from error
        raise
    except HTTPException as error:
        raise ConnectionResetError(f"{url}: the answer broke off: {error!r}") from error


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
        return self._send("GET", path)

    def delete(self, path: str) -> None:
        """Deletes what is at `path`, an object or those of a collection; nothing there is fine."""
        self._send("DELETE", path)

    def _send(self, method: str, path: str) -> Any:
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                status, body = fetch(self.server + path, self.trust, PATIENCE, method)
                break
            except _TOO_BUSY:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status != HTTPStatus.OK:
            raise HarnessError(f"{method} {path}: {status}: {body[:500].decode(errors='replace')}")
        return json.loads(body)
