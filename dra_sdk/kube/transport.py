"""One HTTP exchange with the API server: credentials, timeouts, a new login after a 401, errors that name the object.

Connections are kept and reused by the urllib3 pool of the `kubernetes` client.
"""

from __future__ import annotations

import json
import re
import socket
import time
from collections.abc import Callable
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import urlencode, urlsplit

from dra_sdk.errors import SettingsError, UnreachableError
from dra_sdk.kube.api import Params
from dra_sdk.kube.login import Session
from dra_sdk.kube.paths import describe
from dra_sdk.kube.quick import BrokenOffError, QuickAnswer, QuickGets
from dra_sdk.kube.status import error_of
from dra_sdk.model import JSON

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

    Answer = QuickAnswer | BaseHTTPResponse

_RELOGIN_PAUSE: Final = 10.0
_UNAUTHORIZED: Final = 401
_SUCCESS: Final = range(200, 300)
_WRAPPER: Final = re.compile(r"^(<[^>]*>|HTTPS?Connection(Pool)?\([^)]*\)): ")


Observe = Callable[[str, int], None]
"""Hears of every request: its method, and the status of the answer or 0 for none."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds to wait for a connection, for an answer, and how long the server shall keep one watch open."""

    connect: float = 5.0
    read: float = 20.0
    watch: float = 300.0


class Request(NamedTuple):
    """What to send. `action` is verb and object as errors name them, made of `verb` and `path` where it is empty.

    With `stream_timeout` the answer's body is left unread, and each read of it may take so many seconds.
    """

    verb: str
    method: str
    path: str
    params: Params | None = None
    body: JSON | None = None
    content_type: str = "application/json"
    stream_timeout: float | None = None
    subject: str = ""

    @property
    def action(self) -> str:
        """Verb and object as errors name them."""
        return f"{self.verb} {self.subject or describe(self.path)}"


class Transport:
    """Sends requests with the credentials that `log_in` reads; thread-safe.

    `log_in` is called again, at most every ten seconds, when the server no longer accepts what it read: token files
    and client certificates are replaced on disk while a driver runs.
    """

    def __init__(
        self,
        log_in: Callable[[], Session],
        source: str,
        agent: str,
        timeouts: Timeouts,
        observe: Observe = lambda _method, _status: None,
    ) -> None:
        self._observe = observe
        self._log_in = log_in
        self._source = source
        self._headers = {"User-Agent": agent, "Accept": "application/json"}
        self._timeouts = timeouts
        self._session, self._gets = self._enter()
        self._lock = Lock()
        self._logged_in = float("-inf")

    @property
    def server(self) -> str:
        """The URL of the API server."""
        return self._session.host

    def close(self) -> None:
        """Close idle connections; running requests end by themselves."""
        self._session.close()
        if self._gets is not None:
            self._gets.close()

    def json(self, request: Request) -> JSON:
        """Send and read the answer as one JSON object; ApiError names what went wrong with what."""
        body = self._checked(request, self._send(request)).data
        try:
            said: Any = json.loads(body.decode())  # bytes it would look at for UTF-16 first
        except (ValueError, RecursionError) as error:
            raise UnreachableError(f"{request.action}: the answer of {self.server} is no JSON: {error}") from error
        if not isinstance(said, dict):
            raise UnreachableError(f"{request.action}: the answer of {self.server} is no JSON object")
        return said

    def stream(self, request: Request) -> BaseHTTPResponse:
        """Send and return the answer, its body unread, if it is a success; ApiError otherwise."""
        response = self._checked(request, self._send(request))
        assert not isinstance(response, QuickAnswer)
        return response

    def _send(self, request: Request) -> Answer:
        session = self._session
        response = self._observed(request)
        if response.status == _UNAUTHORIZED and self._log_in_again(session):
            response.close()
            response = self._observed(request)
        return response

    def _observed(self, request: Request) -> Answer:
        try:
            response = self._exchange(request)
        except UnreachableError:
            self._observe(request.method, 0)
            raise
        self._observe(request.method, response.status)
        return response

    def _checked(self, request: Request, response: Answer) -> Answer:
        if response.status in _SUCCESS:
            return response
        hint = f"logged in with {self._source}"
        error = error_of(request.action, response.status, response.data, response.headers, hint)
        response.release_conn()
        raise error

    def _enter(self) -> tuple[Session, QuickGets | None]:
        """Log in; without the second where the server is behind a proxy."""
        session, waits = self._log_in(), self._timeouts
        target = session.target()
        if target is None:
            return session, None
        return session, QuickGets(target, target_path(session.host), self._headers, waits.connect, waits.read)

    def _exchange(self, request: Request) -> Answer:
        session, gets = self._session, self._gets
        try:
            token = session.authorization()
            answer = None
            if gets is not None and request.method == "GET" and request.stream_timeout is None:
                answer = gets.get(_resource(request), token)
            return answer or self._ordinarily(session, request, token)
        except SettingsError as error:
            raise UnreachableError(f"{request.action}: {error}") from error
        except _no_answer() as error:
            raise self._unreachable(request, error) from error

    def _ordinarily(self, session: Session, request: Request, token: str | None) -> BaseHTTPResponse:
        """One request by the library; a read is sent once more where a kept connection turns out to be dead."""
        from urllib3.exceptions import ProtocolError  # noqa: PLC0415 (loaded with the client)

        try:
            return self._once(session, request, token)
        except ProtocolError:
            if request.method != "GET":
                raise
        return self._once(session, request, token)

    def _once(self, session: Session, request: Request, token: str | None) -> BaseHTTPResponse:
        from urllib3 import Timeout  # noqa: PLC0415 (loaded with the client)

        headers, content = dict(self._headers), None
        if request.body is not None:
            content = json.dumps(request.body, separators=(",", ":"), allow_nan=False).encode()
            headers["Content-Type"] = request.content_type
        if token:
            headers["Authorization"] = token
        response = _pool_request(
            session,
            request.method,
            _resource(request),
            body=content,
            headers=headers,
            timeout=Timeout(connect=self._timeouts.connect, read=self._timeouts.read),
            retries=False,
            redirect=False,
            preload_content=request.stream_timeout is None,
        )
        if request.stream_timeout is not None:
            _wait_longer(response, request.stream_timeout)
        return response

    def _unreachable(self, request: Request, error: Exception) -> UnreachableError:
        return UnreachableError(f"{request.action}: no answer from {self.server}: {plain(error)}")

    def _log_in_again(self, refused: Session) -> bool:
        """Read the credentials anew; False where the last time was just now, or they cannot be read."""
        with self._lock:
            if self._session is not refused:
                return True  # another request was quicker
            if time.monotonic() - self._logged_in < _RELOGIN_PAUSE:
                return False
            self._logged_in = time.monotonic()
            old = self._gets
            try:
                self._session, self._gets = self._enter()
            except SettingsError:
                return False  # the server's 401 is the better message: it names the same credentials
            if old is not None:
                old.close()
            return True


def _no_answer() -> tuple[type[Exception], ...]:
    """What stands for a server that gives no whole answer; a function, because the library is loaded late."""
    from urllib3.exceptions import HTTPError  # noqa: PLC0415 (loaded with the client)

    return HTTPError, OSError, BrokenOffError


def _resource(request: Request) -> str:
    return request.path + (f"?{urlencode(request.params)}" if request.params else "")


def _pool_request(session: Session, method: str, path: str, **options: Any) -> BaseHTTPResponse:
    """Send through the server's own pool where there is one: on every prepare's way, this saves a tenth of a GET."""
    target = session.target()
    if target is None:
        return session.pool.request(method, session.host + path, **options)
    return target.urlopen(method, target_path(session.host) + path, **options)


def target_path(host: str) -> str:
    """The path under which a server's API begins, for servers behind a prefix such as `/k8s/clusters/c-1`."""
    return urlsplit(host).path


def _wait_longer(response: BaseHTTPResponse, seconds: float) -> None:
    """The headers came in time; from now on silence is normal."""
    sock = getattr(response.connection, "sock", None)
    if isinstance(sock, socket.socket):
        sock.settimeout(seconds)


def plain(error: Exception) -> str:
    """The cause without the transport's wrappers and object addresses: `Connection refused`."""
    first, *others = error.args or (error,)
    text = _WRAPPER.sub("", str(first))
    if others and isinstance(others[-1], Exception) and type(others[-1]).__name__ not in text:
        text = f"{text.rstrip('.')}: {others[-1]}"
    return text
