"""Real servers on unix sockets, and channels to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest

from dra_sdk.rpc.server import Method, SocketServer
from dra_sdk.testing.waiting import LONG

Dial = Callable[[Path], grpc.Channel]
Serve = Callable[..., SocketServer]


@pytest.fixture
def dial() -> Iterator[Dial]:
    """Opens channels that end with the test."""
    with ExitStack() as stack:
        yield lambda path: stack.enter_context(grpc.insecure_channel(f"unix:{path}"))


@pytest.fixture
def serve(socket_dir: Path) -> Iterator[Serve]:
    """Starts servers that end with the test."""
    with ExitStack() as stack:

        def start(services: dict[str, dict[str, Method]], name: str = "dra.sock", threads: int = 4) -> SocketServer:
            server = SocketServer("test", socket_dir / name, services, threads)
            server.start()
            stack.callback(server.stop)
            return server

        yield start


def call(channel: grpc.Channel, method: str, request: Any, response: Any, timeout: float = LONG) -> Any:
    """One call of the kubelet: `method` is the full path on the wire."""
    return _stub(channel, method, request, response)(request, timeout=timeout, wait_for_ready=False)


def begin(channel: grpc.Channel, method: str, request: Any, response: Any) -> Any:
    """The same without waiting for the answer, so that the kubelet can give up: the future of it."""
    return _stub(channel, method, request, response).future(request, timeout=LONG)


def _stub(channel: grpc.Channel, method: str, request: Any, response: Any) -> Any:
    return channel.unary_unary(
        method, request_serializer=type(request).SerializeToString, response_deserializer=response.FromString
    )
