"""Calls in lanes: answered as by grpcio's own server, each in a thread of its own, and nothing left at the end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import grpc
import pytest
from grpc._cython import cygrpc

from dra_sdk.node.kubelet.calls import OpenCalls
from dra_sdk.node.kubelet.lanes import SERVICES, SPARE, Lane
from dra_sdk.node.kubelet.server import Method, unary
from dra_sdk.wire.proto import pluginregistration_v1_pb2 as wire
from tests.node.kubelet.conftest import Dial, Serve, begin, call
from tests.waiting import LONG, wait

(SERVICE,) = SERVICES
WHO = f"/{SERVICE}/Who"
LANE = "test-Who"


def serving(answer: Callable[[], str]) -> dict[str, dict[str, Method]]:
    who = unary(lambda _request, _context: wire.PluginInfo(name=answer()), wire.InfoRequest, wire.PluginInfo)
    return {SERVICE: {"Who": who}}


def my_thread() -> str:
    return threading.current_thread().name


def who(channel: grpc.Channel) -> str:
    return str(call(channel, WHO, wire.InfoRequest(), wire.PluginInfo).name)


def lanes() -> int:
    """How many threads are in lanes; those of earlier tests end with their servers."""
    return sum(each.name == LANE for each in threading.enumerate())


class Gate:
    """Calls that wait inside until they may go on."""

    def __init__(self) -> None:
        self.inside = 0
        self.most = 0
        self.open = Event()
        self._lock = threading.Lock()

    def __call__(self) -> str:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)
        assert self.open.wait(LONG)
        with self._lock:
            self.inside -= 1
        return "late"


def test_a_call_is_answered_by_a_thread_of_the_lane(serve: Serve, dial: Dial) -> None:
    channel = dial(serve(serving(my_thread)).path)
    assert [who(channel) for _ in range(50)] == [LANE] * 50


def test_without_the_inner_parts_calls_go_the_ordinary_way(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(cygrpc, "ReceiveMessageOperation")
    server = serve(serving(my_thread))
    monkeypatch.undo()
    assert who(dial(server.path)) == "test_0"


def test_other_methods_are_served_beside(serve: Serve, dial: Dial) -> None:
    server = serve({**serving(my_thread), "Test": serving(my_thread)[SERVICE]})
    channel = dial(server.path)
    assert call(channel, "/Test/Who", wire.InfoRequest(), wire.PluginInfo).name == "test_0"
    with pytest.raises(grpc.RpcError) as caught:
        call(channel, f"/{SERVICE}/Nothing", wire.InfoRequest(), wire.PluginInfo)
    assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED
    assert who(channel) == LANE


def test_calls_at_once_run_in_threads_of_their_own_and_few_of_them_stay(serve: Serve, dial: Dial) -> None:
    gate = Gate()
    channel = dial(serve(serving(gate), threads=8).path)
    with ThreadPoolExecutor(8) as pool:
        answers = [pool.submit(who, channel) for _ in range(8)]
        wait(lambda: gate.inside == 8)
        gate.open.set()
        assert [each.result(LONG) for each in answers] == ["late"] * 8
    wait(lambda: lanes() <= SPARE)
    assert who(channel) == "late"


def test_calls_beyond_the_threads_wait_for_their_turn(serve: Serve, dial: Dial) -> None:
    gate = Gate()
    channel = dial(serve(serving(gate), threads=3).path)
    with ThreadPoolExecutor(20) as pool:
        answers = [pool.submit(who, channel) for _ in range(20)]
        wait(lambda: gate.inside == 3)
        gate.open.set()
        assert [each.result(LONG) for each in answers] == ["late"] * 20
    assert gate.most == 3


def test_without_another_thread_calls_are_answered_one_by_one(
    serve: Serve, dial: Dial, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a pod whose limit of processes is reached."""
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        if thread.name == LANE:
            raise RuntimeError("can't start new thread")
        start(thread)

    channel = dial(serve(serving(my_thread)).path)
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        with ThreadPoolExecutor(3) as pool:
            assert [each.result(LONG) for each in [pool.submit(who, channel) for _ in range(9)]] == [LANE] * 9
    assert who(channel) == LANE
    wait(lambda: lanes() >= 1)


def test_a_call_that_fails_is_an_error_and_the_next_is_answered(serve: Serve, dial: Dial) -> None:
    answers = iter(["first", "third"])

    def answer() -> str:
        if name := next(answers, None):
            return name
        raise ValueError("no more")

    channel = dial(serve(serving(answer)).path)
    assert [who(channel), who(channel)] == ["first", "third"]
    for _ in range(3):
        with pytest.raises(grpc.RpcError, match="Exception calling application: no more") as caught:
            who(channel)
        assert caught.value.code() is grpc.StatusCode.UNKNOWN


def test_a_request_that_is_none_is_an_error_and_the_next_is_answered(serve: Serve, dial: Dial) -> None:
    channel = dial(serve(serving(my_thread)).path)
    for _ in range(3):
        with pytest.raises(grpc.RpcError, match="Exception deserializing request") as caught:
            channel.unary_unary(WHO)(b"\xff" * 100, timeout=LONG)
        assert caught.value.code() is grpc.StatusCode.INTERNAL
    assert who(channel) == LANE


def test_a_call_without_a_request_is_ended_and_the_next_is_answered(serve: Serve, dial: Dial) -> None:
    channel = dial(serve(serving(my_thread)).path)
    with pytest.raises(grpc.RpcError):
        channel.stream_unary(WHO)(iter([]), timeout=LONG)
    assert who(channel) == LANE


def test_a_client_that_gives_up_does_not_stop_what_was_begun(serve: Serve, dial: Dial) -> None:
    gate = Gate()
    channel = dial(serve(serving(gate)).path)
    given_up = begin(channel, WHO, wire.InfoRequest(), wire.PluginInfo)
    wait(lambda: gate.inside == 1)
    given_up.cancel()
    gate.open.set()
    wait(lambda: gate.inside == 0)
    assert who(channel) == "late"


def test_at_the_end_no_thread_is_left(serve: Serve, dial: Dial) -> None:
    wait(lambda: lanes() == 0)
    server = serve(serving(my_thread))
    assert who(dial(server.path)) == LANE
    server.stop()
    wait(lambda: lanes() == 0)


def test_a_call_under_way_may_end_within_the_grace(serve: Serve, dial: Dial) -> None:
    gate = Gate()
    server = serve(serving(gate))
    channel = dial(server.path)
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(who, channel)
        wait(lambda: gate.inside == 1)
        stopped = pool.submit(server.stop, LONG)
        gate.open.set()
        assert answer.result(LONG) == "late"
        stopped.result(LONG)


def test_a_call_that_hangs_does_not_hold_up_the_end(serve: Serve, dial: Dial) -> None:
    gate = Gate()
    server = serve(serving(gate))
    channel = dial(server.path)
    with ThreadPoolExecutor(1) as pool:
        answer = pool.submit(who, channel)
        wait(lambda: gate.inside == 1)
        server.stop()
        with pytest.raises(grpc.RpcError):
            answer.result(LONG)
    gate.open.set()
    wait(lambda: lanes() == 0)


class Calls:
    """Stands in for gRPC: a call that ends only when it is told to, and a count of what was asked for."""

    path = "/Test/Who"

    def __init__(self) -> None:
        self.asked = 0
        self.answering, self.finish = Event(), Event()

    def queue(self) -> object:
        return object()

    def register(self) -> None:
        """Nothing to do."""

    def request(self, _queue: object) -> None:
        self.asked += 1

    def next(self, _queue: object) -> object:
        return object() if self.asked == 1 else None

    def answer(self, _call: object, _queue: object) -> None:
        self.answering.set()
        assert self.finish.wait(LONG)


def test_after_the_stop_nothing_is_asked_of_a_server_that_may_be_gone() -> None:
    calls = Calls()
    lane = Lane(calls, "stopped", 1, OpenCalls())  # type: ignore[arg-type]
    lane.start()
    assert calls.answering.wait(LONG)
    lane.stop()
    calls.finish.set()
    wait(lambda: not any(each.name == "stopped-Who" for each in threading.enumerate()))
    assert calls.asked == 1
