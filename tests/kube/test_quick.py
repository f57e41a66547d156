"""Plain answers are read at once; everything else ends in the library's ordinary way, or in its ordinary errors."""

from __future__ import annotations

import errno
import gzip
import socket
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier, Event

import pytest

from dra_sdk.errors import NotFoundError, UnreachableError
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.transport import Timeouts
from tests.kube.scripted import Answer, Asked, ScriptedServer

Serve = Callable[[Callable[[Asked], Answer]], ScriptedServer]
Connect = Callable[..., KubeClient]


def test_one_connection_serves_many_gets(serve: Serve, connect: Connect) -> None:
    server = serve(lambda asked: Answer({"path": asked.path}))
    client = connect(server.url)
    assert [client.get(f"/{number}")["path"] for number in range(5)] == [f"/{number}" for number in range(5)]
    assert len({asked.peer for asked in server.asked}) == 1
    assert server.asked[0].headers["User-Agent"]


def test_a_large_answer_arrives_whole(serve: Serve, connect: Connect) -> None:
    text = "x" * 1_000_000
    server = serve(lambda asked: Answer({"text": text}))
    assert connect(server.url).get("/big")["text"] == text


def test_answers_in_chunks_keep_the_connection(serve: Serve, connect: Connect) -> None:
    """A Go server sends whatever is longer than 2 KiB so: most claims that are allocated."""
    text = "x" * 1_000_000
    server = serve(lambda asked: Answer(stream=[b'{"text":"', text.encode(), b'"}']))
    client = connect(server.url)
    assert [client.get("/chunked"), client.get("/chunked")] == [{"text": text}] * 2
    assert len(server.asked) == 2
    assert len({asked.peer for asked in server.asked}) == 1


def test_encodings_are_left_to_the_library(serve: Serve, connect: Connect) -> None:
    packed = gzip.compress(b'{"a":1}')
    server = serve(lambda asked: Answer(stream=[packed], headers={"Content-Encoding": "gzip"}))
    assert connect(server.url).get("/packed") == {"a": 1}
    assert len(server.asked) == 2


def test_after_a_silence_no_kept_connection_is_trusted(serve: Serve, connect: Connect) -> None:
    """When an address moves to another machine without a word, all connections are dead, and none says so."""
    both, silent, release = Barrier(2), set[int](), Event()

    def answer(asked: Asked) -> Answer:
        if asked.path == "/both":
            both.wait(20)
        if asked.peer in silent:
            release.wait(20)
        return Answer({"peer": asked.peer})

    client = connect(serve(answer).url, timeouts=Timeouts(20, 1, 60))
    with ThreadPoolExecutor(2) as pool:
        silent.update(each.result()["peer"] for each in [pool.submit(client.get, "/both") for _ in range(2)])
    with pytest.raises(UnreachableError, match="timed out"):
        client.get("/")
    assert client.get("/")["peer"] not in silent
    release.set()


def test_a_connection_that_the_kernel_found_dead_is_replaced(serve: Serve, connect: Connect) -> None:
    server = serve(lambda asked: Answer({"peer": asked.peer}))
    client = connect(server.url)
    first = client.get("/")
    gets = client._transport._gets
    assert gets is not None
    (kept,) = gets._idle
    kept.sock = DeadSocket(kept.sock)
    assert client.get("/")["peer"] != first["peer"]


class DeadSocket:
    """What its keepalive probes found."""

    def __init__(self, real: socket.socket) -> None:
        self.close = real.close

    def sendall(self, _content: bytes) -> None:
        raise TimeoutError(errno.ETIMEDOUT, "Connection timed out")


def test_an_error_is_not_asked_for_twice(serve: Serve, connect: Connect) -> None:
    server = serve(lambda asked: Answer({"message": "no such thing"}, status=404))
    with pytest.raises(NotFoundError, match="no such thing"):
        connect(server.url).get("/missing")
    assert len(server.asked) == 1


def test_a_dead_connection_is_replaced_once(serve: Serve, connect: Connect) -> None:
    answers = iter(
        [Answer({"n": 1}), Answer(hang_up=True), Answer({"n": 2}), Answer(hang_up=True), Answer(hang_up=True)]
    )
    client = connect(serve(lambda asked: next(answers)).url)
    assert [client.get("/")["n"], client.get("/")["n"]] == [1, 2]
    with pytest.raises(UnreachableError, match="no answer"):
        client.get("/")


def test_what_a_server_says_to_an_idle_connection_is_no_answer(serve: Serve, connect: Connect) -> None:
    answers = iter([Answer({"n": 1}), Answer({}, status=408), Answer({"n": 2})])
    client = connect(serve(lambda asked: next(answers)).url)
    assert [client.get("/")["n"], client.get("/")["n"]] == [1, 2]


def test_a_new_login_brings_new_connections_and_ends_the_old_ones(
    serve: Serve, connect: Connect, tmp_path: Path
) -> None:
    token = tmp_path / "token"
    token.write_text("old")
    accepted = ["old"]

    def answer(asked: Asked) -> Answer:
        good = asked.headers["Authorization"] == f"Bearer {accepted[0]}"
        return Answer({}, status=200 if good else 401)

    server = serve(answer)
    client = connect(server.url, {"tokenFile": str(token)})
    client.get("/")
    token.write_text("new")
    accepted[0] = "new"
    client.get("/")
    client.get("/")
    peers = [asked.peer for asked in server.asked]
    assert peers[0] == peers[1] != peers[2] == peers[3]


def test_a_server_that_closes_after_each_answer(serve: Serve, connect: Connect) -> None:
    server = serve(lambda asked: Answer({"a": 1}, headers={"Connection": "close"}))
    client = connect(server.url)
    assert [client.get("/"), client.get("/")] == [{"a": 1}] * 2
    assert len({asked.peer for asked in server.asked}) == 2
