"""Requests to the servers of a cluster, without a kubectl for each: the harness asks every 100 ms."""

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
from .waiting import TIMEOUT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .pki import Authority

_PROBE_TIMEOUT = 5.0
"""Seconds for the answer to a probe, for which silence is an answer too. A request may take `TIMEOUT`."""
_PAUSE = 0.1
_TOO_BUSY = (ConnectionResetError, TimeoutError)
"""What a client sees of a server that is too busy to speak TLS. A server that is down refuses the connection."""


def fetch(
    url: str,
    trust: ssl.SSLContext | None = None,
    timeout: float = _PROBE_TIMEOUT,
    method: str = "GET",
    content: Mapping[str, Any] | None = None,
) -> tuple[int, bytes]:
    """Returns the status and the body of the answer to a request; OSError if there is no whole answer.

    `content` is sent as JSON. The proxies of the environment are ignored. The connection, and each part of the answer,
    may take `timeout` seconds.
    """
    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler({})]
    if trust is not None:
        handlers.append(urllib.request.HTTPSHandler(context=trust))
    data = None if content is None else json.dumps(content, separators=(",", ":")).encode()  # as Go writes JSON
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"} if data else {}, method=method)
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
        raise ConnectionResetError(f"{url}: the answer is incomplete: {error!r}") from error


def answers(url: str, trust: ssl.SSLContext | None = None) -> bool:
    """Tells whether the answer to GET `url` is 200; False if the connection is refused or breaks."""
    try:
        return fetch(url, trust)[0] == HTTPStatus.OK
    except OSError:
        return False


class Api:
    """The API server, for the administrator.

    server: its address, `https://<address>:<port>`.
    """

    def __init__(self, authority: Authority, server: str) -> None:
        self.server = server
        self._authority = authority

    @cached_property
    def trust(self) -> ssl.SSLContext:
        """TLS that trusts only the cluster's authority, and presents the administrator's certificate."""
        context = ssl.create_default_context(cafile=str(self._authority.certificate("ca")))
        context.load_cert_chain(self._authority.certificate("admin"), self._authority.key("admin"))
        return context

    def get(self, path: str) -> Any:
        """Returns the JSON at `path`, for example `/api/v1/nodes`; None if there is no such object."""
        return self._send("GET", path)

    def create(self, path: str, content: Mapping[str, Any]) -> Any:
        """Creates an object in the collection at `path`; returns it as the server keeps it."""
        return self._send("POST", path, content)

    def delete(self, path: str) -> None:
        """Deletes the object, or all objects of the collection, at `path`; does nothing if there are none."""
        self._send("DELETE", path)

    def _send(self, method: str, path: str, content: Mapping[str, Any] | None = None) -> Any:
        deadline = time.monotonic() + TIMEOUT
        while True:
            try:
                status, body = fetch(self.server + path, self.trust, TIMEOUT, method, content)
                break
            except _TOO_BUSY:
                if time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
        if status == HTTPStatus.NOT_FOUND:
            return None
        if status not in {HTTPStatus.OK, HTTPStatus.CREATED}:
            raise HarnessError(f"{method} {path}: {status}: {body[:500].decode(errors='replace')}")
        return json.loads(body)
