"""Requests to the API server: credentials, deadlines, a new login after a 401, errors that name the object."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final, NamedTuple
from urllib.parse import urlencode

from dra_sdk.errors import SettingsError, UnreachableError
from dra_sdk.kube.api import Params
from dra_sdk.kube.http import ConnectionPool, HttpError, HttpRequest, HttpResponse
from dra_sdk.kube.login import Session
from dra_sdk.kube.paths import describe
from dra_sdk.kube.status import error_of
from dra_sdk.model import JSON

_RELOGIN_PAUSE: Final = 10.0  # seconds
_UNAUTHORIZED: Final = 401
_SUCCESS: Final = range(200, 300)
_OBJECT: Final = 8 << 20  # bytes; etcd takes 1.5 MiB
_LIST: Final = 256 << 20  # bytes of one page

Observe = Callable[[str, int], None]
"""Called for every request with its method, and the status of the answer or 0 if there was none."""


@dataclass(frozen=True, slots=True)
class ApiTimeouts:
    """How long to wait, in seconds.

    connect: for a connection, with TLS.
    answer: for a whole answer, from the moment the request is sent.
    watch: how long the server is asked to keep one watch open.
    """

    connect: float = 5.0
    answer: float = 20.0
    watch: float = 300.0


class ApiRequest(NamedTuple):
    """What to send.

    verb: the API's verb, such as `list`, as errors name it.
    method: the HTTP method.
    path: the URL path, quoted.
    params: query parameters.
    body: the object to send.
    content_type: the media type of the body.
    subject: the object as errors name it; by default that of `path`.
    accept: the media type of the answer.
    timeout: seconds for the whole answer, if less than `ApiTimeouts.answer`.
    """

    verb: str
    method: str
    path: str
    params: Params | None = None
    body: JSON | None = None
    content_type: str = "application/json"
    subject: str = ""
    accept: str = "application/json"
    timeout: float = float("inf")

    @property
    def action(self) -> str:
        """Verb and object as errors name them."""
        return f"{self.verb} {self.subject or describe(self.path)}"


class _Connected(NamedTuple):
    """Credentials, and the connections that are made with them."""

    session: Session
    pool: ConnectionPool


class Transport:
    """Sends requests with the credentials that `log_in` reads. Safe for threads.

    `log_in` is called again, at most every ten seconds, when the server no longer accepts the credentials: token files
    and client certificates are replaced on disk while a driver runs.
    """

    def __init__(
        self,
        log_in: Callable[[], Session],
        source: str,
        agent: str,
        timeouts: ApiTimeouts,
        observe: Observe = lambda _method, _status: None,
    ) -> None:
        self._observe = observe
        self._log_in = log_in
        self._source = source
        self._headers = {"User-Agent": agent}
        self._timeouts = timeouts
        self._lock = Lock()
        self._logged_in_at = float("-inf")
        self._connected = self._connect()

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._connected.session.url

    def close(self) -> None:
        """Close idle connections and the login; requests in progress end by themselves."""
        self._connected.session.close()
        self._connected.pool.close()

    def json(self, request: ApiRequest) -> JSON:
        """Send, and read the answer as one JSON object. ApiError names the object and the problem."""
        limit = _LIST if request.verb == "list" else _OBJECT

        def exchange(connected: _Connected, deadline: float) -> tuple[HttpResponse, bytes]:
            return connected.pool.request(self._encoded(connected.session, request), deadline, limit)

        _, body = self._send(request, exchange)
        return self._decoded(request, body)

    def stream(self, request: ApiRequest) -> HttpResponse:
        """Send, and return a successful answer with its body unread; ApiError otherwise."""

        def exchange(connected: _Connected, deadline: float) -> tuple[HttpResponse, bytes]:
            response = connected.pool.stream(self._encoded(connected.session, request), deadline, _OBJECT)
            if response.status in _SUCCESS:
                return response, b""
            try:
                return response, response.read(deadline)
            finally:
                response.close()

        response, _ = self._send(request, exchange)
        return response

    def _send(
        self, request: ApiRequest, exchange: Callable[[_Connected, float], tuple[HttpResponse, bytes]]
    ) -> tuple[HttpResponse, bytes]:
        """Send once, and after a 401 once more with new credentials. ApiError unless that succeeds."""
        deadline = time.monotonic() + min(self._timeouts.answer, request.timeout)
        connected = self._connected
        response, body = self._observed(request, exchange, connected, deadline)
        if response.status == _UNAUTHORIZED and self._log_in_again(connected):
            response, body = self._observed(request, exchange, self._connected, deadline)
        if response.status not in _SUCCESS:
            hint = f"logged in with {self._source}"
            raise error_of(request.action, response.status, body, response.headers, hint)
        return response, body

    def _observed(
        self,
        request: ApiRequest,
        exchange: Callable[[_Connected, float], tuple[HttpResponse, bytes]],
        connected: _Connected,
        deadline: float,
    ) -> tuple[HttpResponse, bytes]:
        try:
            response, body = exchange(connected, deadline)
        except (SettingsError, HttpError) as error:
            self._observe(request.method, 0)
            where = "" if isinstance(error, SettingsError) else f"no answer from {connected.session.url}: "
            raise UnreachableError(f"{request.action}: {where}{error}") from error
        self._observe(request.method, response.status)
        return response, body

    def _encoded(self, session: Session, request: ApiRequest) -> HttpRequest:
        headers, content = {**self._headers, "Accept": request.accept}, None
        if request.body is not None:
            content = json.dumps(request.body, separators=(",", ":"), allow_nan=False).encode()
            headers["Content-Type"] = request.content_type
        if authorization := session.authorization():
            headers["Authorization"] = authorization
        query = f"?{urlencode(request.params)}" if request.params else ""
        return HttpRequest(request.method, f"{session.base_path}{request.path}{query}", headers, content)

    def _decoded(self, request: ApiRequest, body: bytes) -> JSON:
        try:
            answer: Any = json.loads(body.decode())  # with bytes, it would try UTF-16 first
        except RecursionError as error:
            raise UnreachableError(f"{request.action}: the answer of {self.server} is nested too deeply") from error
        except ValueError as error:
            raise UnreachableError(f"{request.action}: the answer of {self.server} is not JSON: {error}") from error
        if not isinstance(answer, dict):
            raise UnreachableError(f"{request.action}: the answer of {self.server} is not a JSON object")
        return answer

    def _connect(self) -> _Connected:
        session = self._log_in()
        return _Connected(session, ConnectionPool(session.server, self._timeouts.connect))

    def _log_in_again(self, refused: _Connected) -> bool:
        """Read the credentials again; False if that was done just before, or if they cannot be read."""
        with self._lock:
            if self._connected is not refused:
                return True  # another request has done it
            if time.monotonic() - self._logged_in_at < _RELOGIN_PAUSE:
                return False
            self._logged_in_at = time.monotonic()
            try:
                self._connected = self._connect()
            except SettingsError:
                return False  # the caller raises the server's 401, which says more
            refused.pool.close()
            return True
