from __future__ import annotations

import json
import socket
from typing import Any

import pytest

from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import ApiServer
from tests.tools.simulator.conftest import SLICES, Http, closed, slice_object


def read_response(stream: Any) -> bytes:
    assert stream.readline().startswith(b"HTTP/1.1 2")
    length = 0
    while (line := stream.readline()) != b"\r\n":
        name, _, value = line.partition(b":")
        length = int(value) if name == b"Content-Length" else length
    found: bytes = stream.read(length)
    return found


class TestProtocol:
    def test_a_connection_is_used_again_and_again(self, server: ApiServer) -> None:
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
            b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
            b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
            b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
            b"GET / HTTP/1.1\r\n" + b"a: b\r\n" * 300 + b"\r\n",
        ],
    )
    def test_what_is_not_http_ends_the_connection(self, server: ApiServer, text: bytes) -> None:
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            connection.sendall(text)
            assert closed(connection)

    def test_stopping_with_idle_connections_and_starting_again(self, server: ApiServer, http: Http) -> None:
        port = server.port
        with socket.create_connection(("127.0.0.1", port)) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
            connection.recv(1000)
            server.stop()
            assert closed(connection)
        server.stop()
        server.start()
        assert (server.port, http("GET", "/readyz")) == (port, (200, "ok"))

    def test_nobody_else_gets_the_port_of_a_stopped_server(self, store: ObjectStore) -> None:
        with ApiServer(store) as server:
            server.stop()
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind(("127.0.0.1", server.port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(("127.0.0.1", server.port))
            server.start()
            server.stop()
        with socket.socket() as other:
            other.bind(("127.0.0.1", server.port))
