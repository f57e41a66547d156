"""Calls under way are waited for until their answers are sent, whichever way they take through gRPC."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import grpc
import pytest

from dra_sdk.node.kubelet.calls import OpenCalls, counted
from dra_sdk.node.kubelet.lanes import SERVICES
from dra_sdk.node.kubelet.server import stream, unary
from dra_sdk.wire.proto import pluginregistration_v1_pb2 as wire
from tests.node.kubelet.conftest import Dial, Serve, begin, call
from tests.waiting import LONG, wait

Behaviour = Callable[[Any, Any], Any]


def named(_request: Any, _context: Any) -> wire.PluginInfo:
    return wire.PluginInfo(name="me")


def method(behaviour: Behaviour = named) -> Any:
    return unary(behaviour, wire.InfoRequest, wire.PluginInfo)


def test_it_waits_until_all_have_ended_and_no_longer_than_it_may() -> None:
    calls = OpenCalls()
    assert calls.wait(0.0)
    calls.begin()
    with calls:
        assert not calls.wait(0.01)
    assert not calls.wait(0.0)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(calls.wait, LONG)
        calls.end()
        assert waiting.result(LONG)


def test_one_that_raises_has_ended() -> None:
    calls = OpenCalls()
    with pytest.raises(RuntimeError), calls:
        raise RuntimeError
    assert calls.wait(0.0)


@pytest.mark.parametrize("service", ["Test", *SERVICES])
class TestServer:
    """An ordinary service, and the one that has lanes."""

    def test_a_call_counts_until_it_is_answered(self, service: str, serve: Serve, dial: Dial) -> None:
        entered, leave = Event(), Event()

        def behaviour(request: Any, context: Any) -> wire.PluginInfo:
            entered.set()
            assert leave.wait(LONG)
            return named(request, context)

        server = serve({service: {"Who": method(behaviour)}})
        call_of_it = begin(dial(server.path), f"/{service}/Who", wire.InfoRequest(), wire.PluginInfo)
        assert entered.wait(LONG)
        assert not server.drain(0.0)
        leave.set()
        assert server.drain(LONG)
        server.stop()  # at once: it takes no answer away
        assert call_of_it.result(LONG).name == "me"

    def test_one_whose_client_has_left_counts_while_it_is_at_work(self, service: str, serve: Serve, dial: Dial) -> None:
        entered, leave, told = Event(), Event(), Event()

        def behaviour(request: Any, context: Any) -> wire.PluginInfo:
            if context is not None:  # a lane has none
                context.add_callback(told.set)
            entered.set()
            assert leave.wait(LONG)
            return named(request, context)

        server = serve({service: {"Who": method(behaviour)}})
        given_up = begin(dial(server.path), f"/{service}/Who", wire.InfoRequest(), wire.PluginInfo)
        assert entered.wait(LONG)
        given_up.cancel()
        assert service in SERVICES or told.wait(LONG)
        assert not server.drain(0.0)
        leave.set()
        assert server.drain(LONG)

    def test_calls_that_fail_are_over(self, service: str, serve: Serve, dial: Dial) -> None:
        def behaviour(_request: Any, _context: Any) -> wire.PluginInfo:
            raise ValueError("no")

        server = serve({service: {"Who": method(behaviour)}})
        channel = dial(server.path)
        for _ in range(3):
            with pytest.raises(grpc.RpcError):
                call(channel, f"/{service}/Who", wire.InfoRequest(), wire.PluginInfo)
        assert server.drain(LONG)


def test_a_stream_is_not_counted(serve: Serve, dial: Dial) -> None:
    leave = Event()

    def endless(_request: Any, _context: Any) -> Iterator[wire.PluginInfo]:
        yield wire.PluginInfo(name="first")
        leave.wait(LONG)

    methods = {"Watch": stream(endless, wire.InfoRequest, wire.PluginInfo)}
    assert counted(methods, OpenCalls()) == methods
    server = serve({"Test": methods})
    watch = dial(server.path).unary_stream(
        "/Test/Watch",
        request_serializer=wire.InfoRequest.SerializeToString,
        response_deserializer=wire.PluginInfo.FromString,
    )
    reports = watch(wire.InfoRequest(), timeout=LONG)
    assert next(reports).name == "first"
    assert server.drain(0.0)
    leave.set()
    wait(lambda: not list(reports))
