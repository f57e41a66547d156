"""A gRPC server on one unix socket that only root may use."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Condition, Event
from typing import Any, Final, TypeAlias

import grpc

from dra_sdk.errors import SettingsError
from dra_sdk.rpc.sockets import hidden, refuse_foreign, remove_own

Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # generic in the stubs only
Services: TypeAlias = Mapping[str, Mapping[str, Method]]
"""Wire name of a service → its methods by name."""

log = logging.getLogger(__name__)
_WAITING: Final = 10_000  # calls that wait for a thread; more are refused
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.server.max_pending_requests", _WAITING),
    ("grpc.server.max_pending_requests_hard_limit", _WAITING),
    ("grpc.server_max_unrequested_time_in_server", 60),  # seconds; the kubelet gives up after 45
)


def unary(behaviour: Callable[[Any, grpc.ServicerContext], Any], request: Any, response: Any) -> Method:
    """Return a handler for a call with one request and one response, given their message classes."""
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def stream(behaviour: Callable[[Any, grpc.ServicerContext], Any], request: Any, response: Any) -> Method:
    """Return a handler for a call that is answered by a stream."""
    return grpc.unary_stream_rpc_method_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


class SocketServer:
    """Serves `services` on the unix socket `path`, with at most `threads` calls at a time.

    The socket is bound under another name and renamed when it answers and has its permissions. So no client connects
    too early, the socket of an earlier process is replaced in one step, and gRPC, which removes the path that it bound
    without a check of its owner, removes nothing. SettingsError if the socket cannot be made.
    """

    def __init__(self, name: str, path: Path, services: Services, threads: int) -> None:
        refuse_foreign(path)  # before gRPC makes anything, because it does not remove all of it
        self.path = path
        self._inode = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._server = grpc.server(self._pool, options=_OPTIONS)
        self._in_flight = InFlight()
        for service, methods in services.items():
            handlers = {method: self._in_flight.counted(handler) for method, handler in methods.items()}
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def start(self) -> None:
        """Listen; SettingsError if the socket cannot be made."""
        bound = hidden(self.path)
        try:
            self._server.add_insecure_port(f"unix:{bound}")
            bound.chmod(0o600)
            self._inode = bound.stat().st_ino
            self._server.start()
            bound.rename(self.path)
        except (OSError, RuntimeError) as error:
            self.stop()
            raise SettingsError(f"cannot listen on {self.path}: {error}") from error

    def is_intact(self) -> bool:
        """Whether the socket file still exists and is ours."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def drain(self, seconds: float) -> bool:
        """Wait until no unary call is in flight (see InFlight). False on timeout."""
        return self._in_flight.wait(seconds)

    def stop(self, grace: float = 0.0) -> None:
        """Remove the socket and refuse new calls; calls in flight have `grace` seconds to end."""
        remove_own(self.path, self._inode)
        self._server.stop(grace).wait()
        self._pool.shutdown(wait=False)


def listen(make: Callable[[], SocketServer], stop: Event, seconds: float, tick: Callable[[], object]) -> None:
    """Listen until `stop` is set, with another server of `make` whenever the socket's file was removed.

    `tick` is called every `seconds`. SettingsError if the socket cannot be made.
    """
    server = make()
    try:
        server.start()
        while not stop.wait(seconds):
            tick()
            if not server.is_intact():
                log.warning("%s was removed or replaced; it is made again", server.path)
                server.stop()
                server = make()
                server.start()
    finally:
        server.stop()


class InFlight:
    """Counts the unary calls that are not answered yet, so that shutdown can wait for them.

    A call is in flight until its answer is sent, which is later than the return of its handler, and until its handler
    returns, which is later than the end of the call if the client has gone.
    """

    def __init__(self) -> None:
        self._changed = Condition()
        self._count = 0

    def counted(self, method: Method) -> Method:
        """Return the handler with its calls counted, but not those of streams, which last as long as their client."""
        answer = method.unary_unary
        if answer is None:
            return method

        def behaviour(request: Any, context: grpc.ServicerContext) -> Any:
            self._begin()  # until the answer is sent or the client has gone
            if not context.add_callback(self._end):
                self._end()
            self._begin()  # until the handler returns
            try:
                return answer(request, context)
            finally:
                self._end()

        return grpc.unary_unary_rpc_method_handler(behaviour, method.request_deserializer, method.response_serializer)

    def wait(self, seconds: float) -> bool:
        """Wait up to `seconds` until there are none; False on timeout."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._count, seconds)

    def _begin(self) -> None:
        with self._changed:
            self._count += 1

    def _end(self) -> None:
        with self._changed:
            self._count -= 1
            if not self._count:
                self._changed.notify_all()
