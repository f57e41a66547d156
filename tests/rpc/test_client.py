"""Calls of a service on a unix socket, and what their errors say."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from dra_sdk.errors import DraError, RetriableError
from dra_sdk.rpc.client import CallError, SocketClient
from dra_sdk.rpc.client import call as call_socket
from dra_sdk.rpc.server import stream, unary
from dra_sdk.testing.waiting import LONG
from dra_sdk.wire.proto import pluginregistration_v1_pb2 as wire
from tests.rpc.conftest import Serve


def greet(request: wire.InfoRequest, _context: Any) -> wire.PluginInfo:
    return wire.PluginInfo(name="me")


def services(unary_call: Any = greet, streamed: Any = lambda *_: iter(())) -> dict[str, dict[str, Any]]:
    who = unary(unary_call, wire.InfoRequest, wire.PluginInfo)
    return {"Test": {"Who": who, "Watch": stream(streamed, wire.InfoRequest, wire.PluginInfo)}}


def client(path: Path) -> Any:
    return closing(SocketClient(path, "Test", "the daemon"))


def test_a_call_has_the_message_of_the_answer(serve: Serve) -> None:
    with client(serve(services()).path) as daemon:
        assert daemon.call("Who", wire.InfoRequest(), wire.PluginInfo, LONG).name == "me"


def test_a_service_that_is_not_there_is_named_with_the_call(socket_dir: Path) -> None:
    with (
        client(socket_dir / "nobody.sock") as daemon,
        pytest.raises(CallError, match="daemon failed in Who: UNA") as e,
    ):
        daemon.call("Who", wire.InfoRequest(), wire.PluginInfo, LONG)
    assert e.value.code is grpc.StatusCode.UNAVAILABLE
    assert isinstance(e.value, RetriableError)


def test_a_service_that_hangs_is_given_up_in_time(serve: Serve) -> None:
    leave = Event()
    server = serve(services(lambda *_: (leave.wait(LONG), wire.PluginInfo())[1]))
    with client(server.path) as daemon, pytest.raises(CallError, match=r"has not answered Who within 0\.2 s"):
        daemon.call("Who", wire.InfoRequest(), wire.PluginInfo, 0.2)
    leave.set()
    assert server.drain(LONG)


def test_the_reason_of_the_service_is_in_the_error_in_one_line_and_cut(serve: Serve) -> None:
    def refuse(_request: Any, context: grpc.ServicerContext) -> wire.PluginInfo:
        context.abort(grpc.StatusCode.NOT_FOUND, "no card\n3" + "x" * 1000)

    with client(serve(services(refuse)).path) as daemon, pytest.raises(CallError, match="NOT_FOUND: no card 3x") as e:
        daemon.call("Who", wire.InfoRequest(), wire.PluginInfo, LONG)
    assert len(str(e.value)) < 400


def test_an_answer_that_is_no_message_is_an_error(serve: Serve) -> None:
    garbage = grpc.unary_unary_rpc_method_handler(lambda *_: b"\xff\xff")
    server = serve({"Test": {"Who": garbage}})
    with client(server.path) as daemon, pytest.raises(CallError, match="failed in Who: INTERNAL"):
        daemon.call("Who", wire.InfoRequest(), wire.PluginInfo, LONG)


def test_a_method_that_the_service_does_not_know_has_its_code(serve: Serve) -> None:
    with client(serve(services()).path) as daemon, pytest.raises(CallError) as e:
        daemon.call("Nothing", wire.InfoRequest(), wire.PluginInfo, LONG)
    assert e.value.code is grpc.StatusCode.UNIMPLEMENTED


def test_a_stream_ends_with_the_service_and_in_an_error_if_it_breaks(serve: Serve) -> None:
    def two(*_: Any) -> Iterator[wire.PluginInfo]:
        yield wire.PluginInfo(name="a")
        yield wire.PluginInfo(name="b")

    with client(serve(services(streamed=two)).path) as daemon:
        assert [each.name for each in daemon.stream("Watch", wire.InfoRequest(), wire.PluginInfo)] == ["a", "b"]

    def broken(*_: Any) -> Iterator[wire.PluginInfo]:
        yield wire.PluginInfo(name="a")
        raise ValueError("on fire")

    with client(serve(services(streamed=broken), "b.sock").path) as daemon:
        found = daemon.stream("Watch", wire.InfoRequest(), wire.PluginInfo)
        assert next(found).name == "a"
        with pytest.raises(CallError, match=r"failed in Watch: UNKNOWN: .*on fire"):
            next(found)


def test_close_ends_a_stream_of_another_thread(serve: Serve) -> None:
    leave = Event()

    def endless(*_: Any) -> Iterator[wire.PluginInfo]:
        yield wire.PluginInfo()
        leave.wait(LONG)

    daemon = SocketClient(serve(services(streamed=endless)).path, "Test", "the daemon")
    found = daemon.stream("Watch", wire.InfoRequest(), wire.PluginInfo)
    next(found)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(next, found)
        daemon.close()
        with pytest.raises(CallError, match=r"the daemon.*Watch"):
            waiting.result(LONG)
    leave.set()
    with pytest.raises(CallError, match="Who was ended: the connection was closed"):
        daemon.call("Who", wire.InfoRequest(), wire.PluginInfo, LONG)


def test_our_own_sockets_are_asked_as_the_kubelet_asks_them(serve: Serve, socket_dir: Path) -> None:
    server = serve(services())
    assert call_socket(server.path, "/Test/Who", wire.InfoRequest(), wire.PluginInfo, LONG).name == "me"
    missing = socket_dir / "missing.sock"
    with pytest.raises(DraError, match=f"{missing} does not answer /Test/Who: "):
        call_socket(missing, "/Test/Who", wire.InfoRequest(), wire.PluginInfo, LONG)
