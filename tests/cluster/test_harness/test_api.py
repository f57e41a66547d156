"""Requests to a server: one that answers, one that is too busy, and one that is down."""

from __future__ import annotations

import socket
import ssl
import struct
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cluster.harness import pki
from tests.cluster.harness.api import Api
from tests.cluster.harness.waiting import TIMEOUT

ANSWER = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"kind": "Pod"}'
RESET_AT_CLOSE = struct.pack("ii", 1, 0)


@pytest.fixture
def authority(tmp_path) -> pki.Authority:
    made = pki.Authority(tmp_path / "pki")
    made.create()
    made.issue("server", "server", hosts=["127.0.0.1"])
    made.issue("admin", "admin")
    return made


def serve(listener: socket.socket, authority: pki.Authority) -> None:
    """Drops the first connection before TLS, breaks off the second one within the answer, and answers the third."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.certificate("server"), authority.key("server"))
    listener.settimeout(TIMEOUT)
    first, _ = listener.accept()
    first.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET_AT_CLOSE)
    first.close()
    for answer in (ANSWER[:-5], ANSWER):
        accepted, _ = listener.accept()
        with context.wrap_socket(accepted, server_side=True) as connection:
            connection.recv(10000)
            connection.sendall(answer)


def test_a_server_that_is_too_busy_is_asked_again(authority):
    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve, listener, authority)
        api = Api(authority, f"https://127.0.0.1:{listener.getsockname()[1]}")
        assert api.get("/api/v1/namespaces/default/pods/lit") == {"kind": "Pod"}
        done.result()


def test_an_object_is_sent_as_json(authority):
    received = []

    def serve_once(listener: socket.socket) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(authority.certificate("server"), authority.key("server"))
        listener.settimeout(TIMEOUT)
        accepted, _ = listener.accept()
        with context.wrap_socket(accepted, server_side=True) as connection, connection.makefile("rb") as file:
            head = b"".join(iter(file.readline, b"\r\n")).decode()
            received.extend([head, file.read(len(b'{"kind":"Pod"}'))])
            connection.sendall(ANSWER.replace(b"200 OK", b"201 Created"))

    with socket.create_server(("127.0.0.1", 0)) as listener, ThreadPoolExecutor(1) as pool:
        done = pool.submit(serve_once, listener)
        api = Api(authority, f"https://127.0.0.1:{listener.getsockname()[1]}")
        assert api.create("/api/v1/namespaces/default/pods", {"kind": "Pod"}) == {"kind": "Pod"}
        done.result()
    head, body = received
    assert head.startswith("POST /api/v1/namespaces/default/pods ")
    assert "Content-Type: application/json" in head
    assert body == b'{"kind":"Pod"}'


def test_a_server_that_is_down_is_an_error_at_once(authority):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with pytest.raises(ConnectionRefusedError):
        Api(authority, f"https://127.0.0.1:{port}").get("/api/v1/nodes")
