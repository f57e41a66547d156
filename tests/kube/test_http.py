"""Connections are kept and replaced, answers have a deadline and a limit, failures are told in words."""

from __future__ import annotations

import socket
import ssl
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from threading import Barrier, Event

import pytest
import trustme

from dra_sdk.errors import NotFoundError, SettingsError, UnreachableError
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.http import HttpError, HttpRequest
from dra_sdk.kube.transport import ApiTimeouts
from dra_sdk.testing.waiting import LONG
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


def test_after_a_silence_no_kept_connection_is_trusted(serve: Serve, connect: Connect) -> None:
    """When an address moves to another machine without a word, all connections are dead, and none says so."""
    both, silent, release = Barrier(2), set[int](), Event()

    def answer(asked: Asked) -> Answer:
        if asked.path == "/both":
            both.wait(20)
        if asked.peer in silent:
            release.wait(20)
        return Answer({"peer": asked.peer})

    client = connect(serve(answer).url, timeouts=ApiTimeouts(20, 1, 60))
    with ThreadPoolExecutor(2) as pool:
        silent.update(each.result()["peer"] for each in [pool.submit(client.get, "/both") for _ in range(2)])
    with pytest.raises(UnreachableError, match="was not complete in time"):
        client.get("/")
    assert client.get("/")["peer"] not in silent
    release.set()


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


def trickle(pieces: Iterator[bytes], stop: Event) -> Iterator[bytes]:
    """Pieces with a pause between them, until `stop`."""
    for piece in pieces:
        yield piece
        if stop.wait(0.05):
            return


def test_a_deadline_bounds_the_whole_answer_however_often_a_byte_comes(serve: Serve, connect: Connect) -> None:
    stop = Event()
    server = serve(lambda _: Answer(stream=trickle((b" " for _ in range(100_000)), stop)))
    client = connect(server.url, timeouts=ApiTimeouts(LONG, 0.5, 60))
    with pytest.raises(UnreachableError, match=r"get /version: .* the answer was not complete in time"):
        client.get("/version")
    assert len(server.asked) == 1
    stop.set()


def test_patience_is_a_deadline_for_the_whole_call(serve: Serve, connect: Connect) -> None:
    stop = Event()
    server = serve(lambda _: Answer(stream=trickle((b" " for _ in range(100_000)), stop)))
    with pytest.raises(UnreachableError, match="was not complete in time"):
        connect(server.url, timeouts=ApiTimeouts(LONG, LONG, 60)).get("/version", patience=0.5)
    stop.set()


def test_an_object_that_is_too_large_is_not_read_to_its_end(serve: Serve, connect: Connect) -> None:
    sent = []

    def body() -> Iterator[bytes]:
        for _ in range(64):
            sent.append(1 << 20)
            yield b" " * (1 << 20)

    with pytest.raises(UnreachableError, match=r"get /version: .* the answer is longer than 8388608 bytes"):
        connect(serve(lambda _: Answer(stream=body())).url).get("/version")
    assert len(sent) < 64


def test_bytes_that_are_not_http(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        call = pool.submit(connect(f"http://127.0.0.1:{listener.getsockname()[1]}").get, "/version")
        with listener.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            with pytest.raises(UnreachableError, match="the answer is not HTTP"):
                call.result(LONG)


def test_a_body_that_ends_with_its_connection(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        call = pool.submit(connect(f"http://127.0.0.1:{listener.getsockname()[1]}").get, "/version")
        with listener.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\nHTTP/1.1 200 OK\r\n\r\n")
            peer.sendall(b'{"a": 1}')
        assert call.result(LONG) == {"a": 1}


def test_a_body_that_breaks_off(connect: Connect) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        call = pool.submit(connect(f"http://127.0.0.1:{listener.getsockname()[1]}").get, "/version")
        with listener.accept()[0] as peer:
            peer.recv(65536)
            peer.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{")
        with pytest.raises(UnreachableError, match="the server closed the connection"):
            call.result(LONG)


def test_a_line_break_starts_no_header_field_of_its_own() -> None:
    request = HttpRequest("GET", "/x", {"Authorization": "Bearer a\r\nX-Evil: 1"})
    with pytest.raises(HttpError, match="holds a line break"):
        request.encode("host:1")


@pytest.mark.parametrize(
    ("names", "ca", "reason"),
    [
        (["127.0.0.1"], None, "self-signed|unable to get local issuer"),
        (["other.example.com"], "same", "IP address mismatch"),
        (["127.0.0.1"], "same", None),
    ],
)
def test_tls_failures_are_told_in_words(
    connect: Connect, tmp_path: Path, names: list[str], ca: str | None, reason: str | None
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")

    def answer(listener: socket.socket) -> None:
        peer = listener.accept()[0]
        with suppress(OSError), context.wrap_socket(peer, server_side=True) as secure:
            secure.recv(65536)
            secure.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        server = pool.submit(answer, listener)
        url = f"https://127.0.0.1:{listener.getsockname()[1]}"
        client = connect(url, ca=tmp_path / "ca.pem" if ca else None)
        if reason:
            with pytest.raises(UnreachableError, match=f"the server's certificate is not accepted: .*({reason})"):
                client.get("/version")
        else:
            assert client.get("/version") == {}
        server.result(LONG)


def test_a_proxy_is_asked_to_connect(serve: Serve, connect: Connect) -> None:
    server = serve(lambda _: Answer({"a": 1}))
    asked: list[bytes] = []

    def proxy(listener: socket.socket) -> None:
        with listener.accept()[0] as peer, socket.create_connection(("127.0.0.1", port)) as onward:
            asked.append(peer.recv(65536))
            peer.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            onward.sendall(peer.recv(65536))
            relayed = b""
            while b"}" not in relayed:
                relayed = onward.recv(65536)
                peer.sendall(relayed)

    port = int(server.url.rpartition(":")[2])
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        done = pool.submit(proxy, listener)
        client = connect(server.url, proxy=f"http://127.0.0.1:{listener.getsockname()[1]}")
        assert client.get("/version") == {"a": 1}
        client.close()
        done.result(LONG)
    assert asked[0].startswith(f"CONNECT 127.0.0.1:{port} HTTP/1.".encode())


def test_a_proxy_of_another_kind_is_refused(connect: Connect) -> None:
    with pytest.raises(SettingsError, match=r"proxy 'socks5://127.0.0.1:1' is not an http:// URL"):
        connect("http://127.0.0.1:1", proxy="socks5://127.0.0.1:1")
