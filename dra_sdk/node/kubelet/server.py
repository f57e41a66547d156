"""A gRPC server on one unix socket that only root may use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, TypeAlias

import grpc

from dra_sdk.errors import SettingsError
from dra_sdk.node.kubelet.calls import OpenCalls, counted
from dra_sdk.node.kubelet.lanes import open_lanes
from dra_sdk.node.kubelet.sockets import hidden, refuse_foreign, remove_own

Method: TypeAlias = "grpc.RpcMethodHandler[Any, Any]"  # generic in the stubs only


def unary(behaviour: Callable[[Any, grpc.ServicerContext], Any], request: Any, response: Any) -> Method:
    """A handler for a call with one request and one response, given their message classes."""
    return grpc.unary_unary_rpc_method_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def stream(behaviour: Callable[[Any, grpc.ServicerContext], Any], request: Any, response: Any) -> Method:
    """A handler for a call that is answered by a stream."""
    return grpc.unary_stream_rpc_method_handler(
        behaviour, request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


_WAITING: Final = 10_000  # calls that wait for a thread; more are refused
_OPTIONS: Final = (
    ("grpc.so_reuseport", 0),
    ("grpc.server.max_pending_requests", _WAITING),
    ("grpc.server.max_pending_requests_hard_limit", _WAITING),
    ("grpc.server_max_unrequested_time_in_server", 60),  # seconds; the kubelet gives up after 45
)


class SocketServer:
    """Serves `services` (wire name → methods by name) on the unix socket `path`.

    The socket is bound under another name and renamed once it answers and has its permissions. So nobody meets it half
    made, one that an earlier process left is replaced in one step, and gRPC, which at the end removes what it bound
    without asking whose it is by then, finds nothing. SettingsError where there can be no socket.
    """

    def __init__(self, name: str, path: Path, services: Mapping[str, Mapping[str, Method]], threads: int) -> None:
        refuse_foreign(path)  # before anything of gRPC is made, for not all of it goes away again
        self.path = path
        self._inode = 0
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._server = grpc.server(self._pool, options=_OPTIONS)
        self._calls = OpenCalls()
        self._lanes = open_lanes(self._server, services, name, threads, self._calls)
        for service, methods in services.items():
            handlers = counted(methods, self._calls)
            self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))

    def start(self) -> None:
        """Listen; SettingsError if the socket cannot be made."""
        bound = hidden(self.path)
        try:
            self._server.add_insecure_port(f"unix:{bound}")
            bound.chmod(0o600)
            self._inode = bound.stat().st_ino
            self._server.start()
            for lane in self._lanes:
                lane.start()
            bound.rename(self.path)
        except (OSError, RuntimeError) as error:
            self.stop()
            raise SettingsError(f"cannot listen on {self.path}: {error}") from error

    def intact(self) -> bool:
        """Whether our socket still lies where clients look for it."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def drain(self, seconds: float) -> bool:
        """Wait up to so many seconds until every call but streams is answered; whether that came true."""
        return self._calls.wait(seconds)

    def stop(self, grace: float = 0.0) -> None:
        """Remove the socket, refuse new calls, give calls under way `grace` seconds."""
        remove_own(self.path, self._inode)
        for lane in self._lanes:
            lane.stop()
        self._server.stop(grace).wait()
        self._pool.shutdown(wait=False)
