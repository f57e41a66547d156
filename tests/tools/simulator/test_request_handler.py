from __future__ import annotations

import json
import socket
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import ApiServer
from tests.tools.simulator.conftest import CLAIMS, SLICES, claim_object, slice_object


class Stream:
    """A watch over HTTP, read line by line."""

    def __init__(self, server: ApiServer, path: str) -> None:
        self.response = urllib.request.urlopen(server.url + path, timeout=LONG)

    def next(self) -> tuple[str, Any]:
        line = self.response.readline()
        if not line:
            return "", None
        event = json.loads(line)
        return event["type"], event["object"]

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self.response.close()


def received(connection: socket.socket) -> bytes:
    """Everything that the server sends until it closes the connection."""
    return b"".join(iter(lambda: connection.recv(4096), b""))


def wait_until_no_watch(server: ApiServer) -> None:
    wait(lambda: not server.open_watches)
    assert server.store.watches == ()


class TestWatch:
    def test_events_arrive_as_they_happen(self, server: ApiServer, local: LocalClient) -> None:
        version = local.store.version
        with Stream(server, f"{SLICES}?watch=true&resourceVersion={version}") as stream:
            created = local.create("resourceslices", slice_object("a"))
            assert stream.next() == ("ADDED", created)
            local.patch("resourceslices", {"spec": {"x": 1}}, "a")
            assert stream.next()[1]["spec"]["x"] == 1
            local.delete("resourceslices", "a")
            assert stream.next()[0] == "DELETED"
            assert server.open_watches == 1
        wait_until_no_watch(server)

    def test_one_object_by_its_path(self, server: ApiServer, local: LocalClient) -> None:
        for name in "ab":
            local.create("resourceslices", slice_object(name))
        with Stream(server, f"{SLICES}/b?watch=1") as stream:
            assert stream.next()[1]["metadata"]["name"] == "b"

    def test_a_timeout_ends_it_properly(self, server: ApiServer, local: LocalClient) -> None:
        with Stream(server, f"{SLICES}?watch=true&timeoutSeconds=1") as stream:
            assert stream.next() == ("", None)
        wait_until_no_watch(server)

    def test_a_version_that_is_gone(self, server: ApiServer, local: LocalClient) -> None:
        before = local.store.version
        local.create("resourceslices", slice_object("a"))
        server.store.expire_history()
        with Stream(server, f"{SLICES}?watch=true&resourceVersion={before}") as stream:
            kind, status = stream.next()
            assert (kind, status["kind"], status["code"]) == ("ERROR", "Status", 410)
            assert stream.next() == ("", None)

    def test_bookmarks_come_when_it_is_quiet(self, store: ObjectStore, local: LocalClient) -> None:
        with ApiServer(store, bookmark_seconds=0.1) as server:
            version = local.create("resourceclaims", claim_object())["metadata"]["resourceVersion"]
            with Stream(server, f"{SLICES}?watch=true&allowWatchBookmarks=true&resourceVersion=1") as stream:
                kind, bookmark = stream.next()
            assert (kind, bookmark["kind"], bookmark["metadata"]["resourceVersion"]) == (
                "BOOKMARK",
                "ResourceSlice",
                version,
            )

    def test_initial_events(self, server: ApiServer, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("a"))
        query = "watch=true&sendInitialEvents=true&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan"
        with Stream(server, f"{SLICES}?{query}") as stream:
            assert stream.next()[0] == "ADDED"
            kind, bookmark = stream.next()
        assert (kind, bookmark["metadata"]["annotations"]) == ("BOOKMARK", {"k8s.io/initial-events-end": "true"})

    def test_stopping_ends_it_properly(self, server: ApiServer) -> None:
        with Stream(server, f"{SLICES}?watch=true") as stream, ThreadPoolExecutor(1) as pool:
            stopped = pool.submit(server.stop)
            assert stream.next() == ("", None)
            stopped.result(LONG)

    def test_closing_all_of_them(self, server: ApiServer) -> None:
        with Stream(server, f"{SLICES}?watch=true") as one, Stream(server, f"{CLAIMS}?watch=true") as two:
            assert server.close_watches() == 2
            assert (one.next(), two.next()) == (("", None), ("", None))
        wait_until_no_watch(server)

    def test_resetting_all_of_them(self, server: ApiServer) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"GET {SLICES}?watch=true HTTP/1.1\r\n\r\n".encode())
            assert b"chunked" in connection.recv(4096)
            server.close_watches(reset=True)
            # No last chunk: the stream is cut, not ended.
            assert connection.recv(4096) == b""
        wait_until_no_watch(server)

    def test_many_watches_see_every_event_in_order(self, server: ApiServer, local: LocalClient) -> None:
        streams = [Stream(server, f"{SLICES}?watch=true") for _ in range(10)]
        names = [f"s-{index:03d}" for index in range(50)]
        for name in names:
            local.create("resourceslices", slice_object(name))
        for stream in streams:
            with stream:
                assert [stream.next()[1]["metadata"]["name"] for _ in names] == names


def read_response(stream: Any) -> bytes:
    assert stream.readline().startswith(b"HTTP/1.1 2")
    length = 0
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name == b"Content-Length" else length
    body: bytes = stream.read(length)
    return body


class TestProtocol:
    def test_a_connection_serves_several_requests(self, server: ApiServer) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as stream:
            for _ in range(3):
                connection.sendall(b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n")
                assert read_response(stream) == b"ok"

    def test_a_body_in_chunks_that_the_client_holds_back(self, server: ApiServer, local: LocalClient) -> None:
        body = json.dumps(slice_object("a")).encode()
        head = f"POST {SLICES} HTTP/1.1\r\nTransfer-Encoding: chunked\r\nExpect: 100-continue\r\n\r\n"
        with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as stream:
            connection.sendall(head.encode())
            assert stream.readline() == b"HTTP/1.1 100 Continue\r\n"
            assert stream.readline() == b"\r\n"
            for part in (body[:10], body[10:], b""):
                connection.sendall(f"{len(part):x}\r\n".encode() + part + b"\r\n")
            assert json.loads(read_response(stream))["metadata"]["name"] == "a"
        assert local.get("resourceslices", "a")

    @pytest.mark.parametrize(
        "text",
        [
            b"nonsense\r\n\r\n",
            b"GET / SPDY/3\r\n\r\n",
            b"GET /readyz\r\n\r\n",
            b"GET /readyz HTTP/0.9\r\n\r\n",
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n",
        ],
    )
    def test_what_is_not_http_is_refused_and_ends_the_connection(self, server: ApiServer, text: bytes) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(text)
            assert b"Error code: 4" in received(connection)

    @pytest.mark.parametrize("method", ["HEAD", "OPTIONS"])
    def test_a_method_that_the_api_does_not_have(self, server: ApiServer, method: str) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection, connection.makefile("rb") as stream:
            connection.sendall(f"{method} {SLICES} HTTP/1.1\r\nConnection: close\r\n\r\n".encode())
            assert stream.readline() == b"HTTP/1.1 405 Method Not Allowed\r\n"
            body = stream.read().partition(b"\r\n\r\n")[2]
        # The answer to HEAD has no body.
        assert body == b"" if method == "HEAD" else json.loads(body)["reason"] == "MethodNotAllowed"

    def test_a_connection_that_ends_within_a_request_is_closed(self, server: ApiServer) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(f"POST {SLICES} HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf".encode())
            connection.shutdown(socket.SHUT_WR)
            assert received(connection) == b""
        assert not server.log.records()
