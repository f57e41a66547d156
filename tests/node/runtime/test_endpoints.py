"""The pages of a process: who may ask for them, and what comes of a page that fails."""

from __future__ import annotations

import http.client
import logging
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.node.runtime.endpoints import CONNECTIONS, HttpServer, Page
from dra_sdk.testing.waiting import LONG, wait

Serve = Callable[..., HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as stack:

        def start(address: str, page: Page = lambda: b"ok\n") -> HttpServer:
            server = HttpServer(address, {"/page": page})
            server.start()
            stack.callback(server.stop)
            return server

        yield start


def ask(host: str, port: int, path: str = "/page") -> tuple[int, bytes]:
    connection = http.client.HTTPConnection(host, port, timeout=20)
    try:
        connection.request("GET", path)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def test_a_page_and_what_it_raises(serve: Serve) -> None:
    def fail() -> bytes:
        raise DraError("not yet")

    assert ask("127.0.0.1", serve("127.0.0.1:0").port, "/page?verbose") == (200, b"ok\n")
    port = serve("127.0.0.1:0", fail).port
    assert ask("127.0.0.1", port) == (503, b"not yet\n")
    assert ask("127.0.0.1", port, "/other") == (404, b"not found\n")


@pytest.mark.parametrize(
    ("address", "hosts"),
    [
        (":0", ["127.0.0.1", "::1"]),
        ("0", ["127.0.0.1", "::1"]),
        ("[::]:0", ["127.0.0.1", "::1"]),
        ("[::1]:0", ["::1"]),
        ("localhost:0", ["localhost"]),
    ],
)
def test_nodes_have_addresses_of_either_kind(serve: Serve, address: str, hosts: list[str]) -> None:
    port = serve(address).port
    assert [ask(host, port)[0] for host in hosts] == [200] * len(hosts)


def test_the_name_service_is_not_asked(serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """It may not answer while the node starts: the driver would wait, and its slices with it."""
    monkeypatch.setattr(socket, "getfqdn", lambda *_: pytest.fail("asked who we are"))
    assert ask("127.0.0.1", serve(":0").port)[0] == 200


@pytest.mark.parametrize("address", ["x", "host:", ":http", ":70000", "192.0.2.1:80", "[::1"])
def test_an_address_that_is_none(address: str) -> None:
    with pytest.raises(SettingsError, match="cannot listen on --http-address"):
        HttpServer(address, {})


def test_a_page_with_a_bug_is_logged(serve: Serve, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> bytes:
        raise KeyError("bug")

    with pytest.raises(http.client.RemoteDisconnected):
        ask("127.0.0.1", serve("127.0.0.1:0", fail).port)
    (record,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert record.exc_info
    assert "bug" in str(record.exc_info[1])


def test_slow_clients_do_not_keep_a_probe_from_its_answer(serve: Serve) -> None:
    """More of them than there may be connections, none of which ever ends its request."""
    server = serve("127.0.0.1:0")
    with ExitStack() as stack:
        slow = []
        for _ in range(2 * CONNECTIONS):
            client = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=LONG))
            client.sendall(b"GET /page HT")
            slow.append(client)
        assert ask("127.0.0.1", server.port) == (200, b"ok\n")
        assert slow[0].recv(1) == b"", "the oldest was closed"
        wait(lambda: handlers() <= CONNECTIONS + 1)  # those of closed connections need a moment to end
    wait(lambda: handlers() == 0)


def handlers() -> int:
    """How many threads serve a connection."""
    return sum("process_request" in thread.name for thread in threading.enumerate())
