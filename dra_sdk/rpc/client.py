"""Calls of one gRPC service on a unix socket, with errors that name the service, the call and the time.

daemon = SocketClient(Path("/run/cards/daemon.sock"), "cards.v1.Daemon", "card daemon")
answer = daemon.call("Reset", pb.ResetRequest(card=3), pb.ResetResponse, seconds=10)
daemon.close()
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final, Protocol, Self, TypeVar

import grpc

from dra_sdk.errors import DraError, RetriableError

_DETAILS: Final = 300  # characters of the other side's own error
_OPTIONS: Final = (
    ("grpc.default_authority", "localhost"),  # the path of a socket is none that every server accepts
    ("grpc.use_local_subchannel_pool", 1),  # a service that has restarted is not waited for
    ("grpc.initial_reconnect_backoff_ms", 200),
)


class Message(Protocol):
    """A generated class of messages."""

    @classmethod
    def FromString(cls, content: bytes) -> Self: ...  # noqa: D102, N802 (names of protobuf)
    def SerializeToString(self) -> bytes: ...  # noqa: D102, N802


M = TypeVar("M", bound=Message)


class CallError(RetriableError):
    """A service has not answered, or has answered what it must not.

    code: the status of the call; None if the connection was closed on this side.
    """

    def __init__(self, message: str, code: grpc.StatusCode | None = None) -> None:
        super().__init__(message)
        self.code = code


class SocketClient:
    """The calls of `service` on the unix socket `path`. It connects with the first of them. Safe for threads.

    peer: who answers, for the errors, such as `card daemon`.
    """

    def __init__(self, path: Path, service: str, peer: str) -> None:
        self._service, self.peer = service, peer
        self._channel = grpc.insecure_channel(f"unix:{path}", options=_OPTIONS)

    def call(self, method: str, request: Message, response: type[M], seconds: float) -> M:
        """Return the answer to a call. CallError if it is late (`seconds`), an error or no such message."""
        stub = self._stub(self._channel.unary_unary, method, request, response)
        try:
            answer: M = stub(request, timeout=seconds)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel was closed
            raise self._error(method, error, seconds) from error
        return answer

    def stream(self, method: str, request: Message, response: type[M]) -> Iterator[M]:
        """Yield the messages of a stream, until the service ends it. CallError if it ends in another way."""
        stub = self._stub(self._channel.unary_stream, method, request, response)
        try:
            yield from stub(request)
        except (grpc.RpcError, ValueError) as error:
            raise self._error(method, error) from error

    def close(self) -> None:
        """End all calls and streams."""
        self._channel.close()

    def _stub(self, of_kind: Callable[..., Any], method: str, request: Message, response: type[Message]) -> Any:
        serialize, deserialize = type(request).SerializeToString, response.FromString
        name = f"/{self._service}/{method}"
        return of_kind(name, request_serializer=serialize, response_deserializer=deserialize)

    def _error(self, method: str, error: Exception, seconds: float | None = None) -> CallError:
        if not isinstance(error, grpc.Call):
            return CallError(f"{self.peer}: {method} was ended: the connection was closed")
        code = error.code()
        if code is grpc.StatusCode.DEADLINE_EXCEEDED and seconds is not None:
            return CallError(f"{self.peer} has not answered {method} within {seconds:.3g} s", code)
        details = " ".join((error.details() or "no reason given").split())[:_DETAILS]
        return CallError(f"{self.peer} failed in {method}: {code.name}: {details}", code)


def call(socket: Path, method: str, request: Any, response: Any, timeout: float) -> Any:
    """Call one of our own sockets as the kubelet does, so that "healthy" means "the kubelet would get an answer".

    `method` is its full name on the wire, `response` the message class. DraError names the socket that does not answer
    within `timeout` seconds.
    """
    service, _, name = method.removeprefix("/").partition("/")
    with closing(SocketClient(socket, service, str(socket))) as client:
        try:
            return client.call(name, request, response, timeout)
        except CallError as error:
            raise DraError(f"{socket} does not answer {method}: {error}") from error
