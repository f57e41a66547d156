"""A server on a unix socket: whose socket it is, who may use it, and how it ends."""

from __future__ import annotations

import os
import socket
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import grpc
import pytest

from dra_sdk.errors import HardwareError, SettingsError
from dra_sdk.rpc.server import Method, SocketServer, listen, stream, unary
from dra_sdk.rpc.sockets import hidden
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.wire.proto import pluginregistration_v1_pb2 as wire
from tests.rpc.conftest import Dial, Serve, begin, call


def named(name: str) -> dict[str, dict[str, Method]]:
    who = unary(lambda _request, _context: wire.PluginInfo(name=name), wire.InfoRequest, wire.PluginInfo)
    return {"Test": {"Who": who}}


def who(channel: grpc.Channel) -> str:
    return str(call(channel, "/Test/Who", wire.InfoRequest(), wire.PluginInfo).name)


def test_a_call_is_answered(serve: Serve, dial: Dial) -> None:
    server = serve(named("me"))
    assert who(dial(server.path)) == "me"


def test_only_the_owner_may_use_the_socket(serve: Serve) -> None:
    mode = serve(named("me")).path.stat().st_mode
    assert stat.S_ISSOCK(mode)
    assert stat.S_IMODE(mode) == 0o600


def test_the_socket_is_alone_in_its_directory_and_gone_at_the_end(serve: Serve) -> None:
    server = serve(named("me"))
    assert os.listdir(server.path.parent) == ["dra.sock"]
    server.stop()
    assert os.listdir(server.path.parent) == []
    server.stop()


def test_after_the_end_nobody_is_served_not_even_those_it_knew(serve: Serve, dial: Dial) -> None:
    server = serve(named("me"))
    channel = dial(server.path)
    assert who(channel) == "me"
    server.stop()
    with pytest.raises(grpc.RpcError) as caught:
        who(channel)
    assert caught.value.code() is grpc.StatusCode.UNAVAILABLE


def test_a_server_knows_whether_its_socket_is_still_in_its_place(serve: Serve) -> None:
    old = serve(named("old"))
    assert old.is_intact()
    new = serve(named("new"))
    assert not old.is_intact()
    assert new.is_intact()
    new.path.unlink()
    assert not new.is_intact()


def test_a_stale_socket_is_replaced(serve: Serve, dial: Dial, socket_dir: Path) -> None:
    for name in ("dra.sock", ".stale"):
        with socket.socket(socket.AF_UNIX) as dead:
            dead.bind(str(socket_dir / name))
    server = serve(named("me"))
    assert who(dial(server.path)) == "me"


def test_a_socket_that_a_killed_start_left_half_made_is_replaced(serve: Serve, dial: Dial, socket_dir: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(hidden(socket_dir / "dra.sock")))
    server = serve(named("me"))
    assert who(dial(server.path)) == "me"
    assert os.listdir(socket_dir) == ["dra.sock"]


def test_a_foreign_file_in_the_way_is_an_error_and_stays(serve: Serve, socket_dir: Path) -> None:
    (socket_dir / "dra.sock").write_text("precious")
    with pytest.raises(SettingsError, match=r"dra\.sock exists and is not a socket"):
        serve(named("me"))
    assert (socket_dir / "dra.sock").read_text() == "precious"
    assert os.listdir(socket_dir) == ["dra.sock"]


def test_a_directory_that_is_missing_is_an_error_with_the_path(socket_dir: Path) -> None:
    path = socket_dir / "missing/dra.sock"
    with pytest.raises(SettingsError, match=f"cannot listen on {path}"):
        SocketServer("test", path, named("me"), 1).start()


def test_where_there_can_be_no_socket_nothing_is_made_that_stays(
    socket_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver tries it every five seconds for as long as its socket is in the way of something."""
    monkeypatch.setattr(grpc, "server", lambda *_args, **_options: pytest.fail("made a server, which leaves memory"))
    (socket_dir / "file").touch()
    for path in (socket_dir / "file", socket_dir / "missing/dra.sock"):
        with pytest.raises(SettingsError, match=str(path)):
            SocketServer("test", path, named("me"), 1)


def test_the_socket_of_a_successor_survives_our_end(serve: Serve, dial: Dial) -> None:
    old = serve(named("old"))
    new = serve(named("new"))
    channel = dial(new.path)
    assert who(channel) == "new"
    old.stop()
    assert new.path.is_socket()
    assert who(dial(new.path)) == "new"


def test_a_predecessor_serves_those_it_knows_until_it_ends(serve: Serve, dial: Dial) -> None:
    old = serve(named("old"))
    channel = dial(old.path)
    assert who(channel) == "old"
    serve(named("new"))
    assert who(channel) == "old"


def test_two_servers_live_side_by_side(serve: Serve, dial: Dial) -> None:
    first, second = serve(named("a"), "a.sock"), serve(named("b"), "b.sock")
    assert (who(dial(first.path)), who(dial(second.path))) == ("a", "b")


def test_an_unknown_method_or_service_is_unimplemented(serve: Serve, dial: Dial) -> None:
    channel = dial(serve(named("me")).path)
    for method in ("/Test/Nothing", "/Nobody/Who"):
        with pytest.raises(grpc.RpcError) as caught:
            call(channel, method, wire.InfoRequest(), wire.PluginInfo)
        assert caught.value.code() is grpc.StatusCode.UNIMPLEMENTED


def test_calls_run_in_threads_of_their_own(serve: Serve, dial: Dial) -> None:
    both = Event()
    entered: list[int] = []

    def meet(_request: Any, _context: Any) -> wire.PluginInfo:
        entered.append(1)
        if len(entered) == 2:
            both.set()
        assert both.wait(LONG)
        return wire.PluginInfo()

    server = serve({"Test": {"Who": unary(meet, wire.InfoRequest, wire.PluginInfo)}})
    channel = dial(server.path)
    with ThreadPoolExecutor(2) as pool:
        for done in [pool.submit(who, channel) for _ in range(2)]:
            done.result(LONG)


def test_a_call_under_way_may_end_within_the_grace(serve: Serve, dial: Dial) -> None:
    entered, leave = Event(), Event()

    def wait(_request: Any, _context: Any) -> wire.PluginInfo:
        entered.set()
        leave.wait(LONG)
        return wire.PluginInfo(name="late")

    server = serve({"Test": {"Who": unary(wait, wire.InfoRequest, wire.PluginInfo)}})
    channel = dial(server.path)
    with ThreadPoolExecutor(2) as pool:
        answer = pool.submit(who, channel)
        assert entered.wait(LONG)
        stopped = pool.submit(server.stop, LONG)
        leave.set()
        assert answer.result(LONG) == "late"
        stopped.result(LONG)


def test_a_stream_is_delivered_in_order(serve: Serve, dial: Dial) -> None:
    def count(_request: Any, _context: Any) -> Any:
        for index in range(5):
            yield wire.PluginInfo(name=str(index))

    server = serve({"Test": {"Count": stream(count, wire.InfoRequest, wire.PluginInfo)}})
    stub = dial(server.path).unary_stream(
        "/Test/Count",
        request_serializer=wire.InfoRequest.SerializeToString,
        response_deserializer=wire.PluginInfo.FromString,
    )
    assert [each.name for each in stub(wire.InfoRequest(), timeout=LONG)] == ["0", "1", "2", "3", "4"]


Behaviour = Callable[[Any, Any], Any]


def who_am_i(_request: Any, _context: Any) -> wire.PluginInfo:
    return wire.PluginInfo(name="me")


def method(behaviour: Behaviour = who_am_i) -> Any:
    return unary(behaviour, wire.InfoRequest, wire.PluginInfo)


def test_a_call_counts_until_it_is_answered(serve: Serve, dial: Dial) -> None:
    entered, leave = Event(), Event()

    def behaviour(request: Any, context: Any) -> wire.PluginInfo:
        entered.set()
        assert leave.wait(LONG)
        return who_am_i(request, context)

    server = serve({"Test": {"Who": method(behaviour)}})
    assert server.drain(0.0)
    call_of_it = begin(dial(server.path), "/Test/Who", wire.InfoRequest(), wire.PluginInfo)
    assert entered.wait(LONG)
    assert not server.drain(0.01)
    with ThreadPoolExecutor(1) as pool:
        drained = pool.submit(server.drain, LONG)
        leave.set()
        assert drained.result(LONG), "as soon as it is answered, not when the time is over"
    server.stop()  # at once: it takes no answer away
    assert call_of_it.result(LONG).name == "me"


def test_one_whose_client_has_left_counts_while_it_is_at_work(serve: Serve, dial: Dial) -> None:
    entered, leave, noticed = Event(), Event(), Event()

    def behaviour(request: Any, context: Any) -> wire.PluginInfo:
        context.add_callback(noticed.set)
        entered.set()
        assert leave.wait(LONG)
        return who_am_i(request, context)

    server = serve({"Test": {"Who": method(behaviour)}})
    given_up = begin(dial(server.path), "/Test/Who", wire.InfoRequest(), wire.PluginInfo)
    assert entered.wait(LONG)
    given_up.cancel()
    assert noticed.wait(LONG)
    assert not server.drain(0.0)
    leave.set()
    assert server.drain(LONG)


def test_calls_that_fail_are_over_and_the_next_is_answered(serve: Serve, dial: Dial) -> None:
    fails = [True] * 3

    def behaviour(request: Any, context: Any) -> wire.PluginInfo:
        if fails:
            fails.pop()
            raise ValueError("no")
        return who_am_i(request, context)

    server = serve({"Test": {"Who": method(behaviour)}})
    channel = dial(server.path)
    for _ in range(3):
        with pytest.raises(grpc.RpcError):
            who(channel)
    assert server.drain(LONG)
    assert who(channel) == "me"


def test_a_request_that_is_no_message_is_an_error_and_the_next_is_answered(serve: Serve, dial: Dial) -> None:
    server = serve(named("me"))
    channel = dial(server.path)
    garbage = channel.unary_unary("/Test/Who", request_serializer=bytes, response_deserializer=bytes)
    with pytest.raises(grpc.RpcError):
        garbage(b"\xff\xff\xff", timeout=LONG)
    assert who(channel) == "me"
    assert server.drain(LONG)


def test_calls_beyond_the_threads_wait_for_their_turn(serve: Serve, dial: Dial) -> None:
    leave = Event()

    def behaviour(request: Any, context: Any) -> wire.PluginInfo:
        assert leave.wait(LONG)
        return who_am_i(request, context)

    server = serve({"Test": {"Who": method(behaviour)}}, threads=2)
    channel = dial(server.path)
    calls = [begin(channel, "/Test/Who", wire.InfoRequest(), wire.PluginInfo) for _ in range(20)]
    leave.set()
    assert [each.result(LONG).name for each in calls] == ["me"] * 20


def test_a_call_that_hangs_does_not_hold_up_the_end(serve: Serve, dial: Dial) -> None:
    entered, leave = Event(), Event()

    def behaviour(request: Any, context: Any) -> wire.PluginInfo:
        entered.set()
        assert leave.wait(LONG)
        return who_am_i(request, context)

    server = serve({"Test": {"Who": method(behaviour)}})
    hanging = begin(dial(server.path), "/Test/Who", wire.InfoRequest(), wire.PluginInfo)
    assert entered.wait(LONG)
    server.stop(0.0)
    with pytest.raises(grpc.RpcError):
        hanging.result(LONG)
    assert not server.drain(0.0), "its handler is still at work"
    leave.set()
    assert server.drain(LONG)


def test_a_stream_is_not_counted(serve: Serve, dial: Dial) -> None:
    leave = Event()

    def endless(_request: Any, _context: Any) -> Iterator[wire.PluginInfo]:
        yield wire.PluginInfo(name="first")
        leave.wait(LONG)

    server = serve({"Test": {"Watch": stream(endless, wire.InfoRequest, wire.PluginInfo)}})
    watch = dial(server.path).unary_stream(
        "/Test/Watch",
        request_serializer=wire.InfoRequest.SerializeToString,
        response_deserializer=wire.PluginInfo.FromString,
    )
    reports = watch(wire.InfoRequest(), timeout=LONG)
    assert next(reports).name == "first"
    assert server.drain(0.0)
    leave.set()
    assert list(reports) == []


def test_a_socket_that_somebody_removes_is_made_again_until_the_end(dial: Dial, socket_dir: Path) -> None:
    path, stop, looks = socket_dir / "dra.sock", Event(), []

    def each() -> None:
        looks.append(1)
        if len(looks) == 1:
            path.unlink()

    with ThreadPoolExecutor(1) as pool:
        listening = pool.submit(listen, lambda: SocketServer("test", path, named("me"), 1), stop, 0.01, each)
        wait(lambda: len(looks) > 1)
        assert who(dial(path)) == "me"
        stop.set()
        listening.result(LONG)
    assert os.listdir(socket_dir) == []


def test_an_error_of_a_look_closes_the_socket(socket_dir: Path) -> None:
    path = socket_dir / "dra.sock"

    def each() -> None:
        assert path.is_socket()
        raise HardwareError("the disk is full")

    with pytest.raises(HardwareError, match="the disk is full"):
        listen(lambda: SocketServer("test", path, named("me"), 1), Event(), 0.01, each)
    assert os.listdir(socket_dir) == []
