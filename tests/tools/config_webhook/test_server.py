"""The HTTPS server of the webhook: limits, certificates that change, clients that misbehave."""

from __future__ import annotations

import http.client
import json
import logging
import socket
import ssl
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Self

import pytest
import trustme

from dra_sdk.errors import SettingsError
from dra_sdk.tools.config_webhook import Certificate, ConfigReviewer, WebhookServer
from dra_sdk.tools.config_webhook.server import CONNECTIONS, LARGE, MAX_BODY
from tests.tools.config_policies import WRONG, ShapeDriver, entry
from tests.tools.config_webhook.test_review import request

SECONDS = 50.0


class Files:
    """A certificate on disk, of an authority that a client trusts."""

    def __init__(self, folder: Path) -> None:
        self.certificate, self.key = folder / "tls.crt", folder / "tls.key"
        self.renew()

    def renew(self) -> None:
        """Replaces both files by those of another authority."""
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        for path, content in ((self.key, issued.private_key_pem), (self.certificate, issued.cert_chain_pems[0])):
            new = path.with_suffix(".new")
            new.write_bytes(content.bytes())
            new.rename(path)
        self.trust = ssl.create_default_context(cadata=authority.cert_pem.bytes().decode())


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


class WaitingReviewer(ConfigReviewer):
    """Each review waits until `over` is set, at the latest when this is left.

    begun: whether a review has begun.
    calls: how many have begun.
    """

    def __init__(self) -> None:
        super().__init__([ShapeDriver().dra_driver_info()])
        self.begun, self.over = threading.Event(), threading.Event()
        self.calls = 0

    def review(self, document: object) -> dict[str, object]:
        self.calls += 1
        self.begun.set()
        assert self.over.wait(SECONDS)
        return super().review(document)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.over.set()


def serving(files: Files, reviewer: ConfigReviewer) -> WebhookServer:
    return WebhookServer("127.0.0.1:0", Certificate(files.certificate, files.key), reviewer)


@pytest.fixture
def server(files: Files) -> Iterator[WebhookServer]:
    with serving(files, ConfigReviewer([ShapeDriver().dra_driver_info()])) as running:
        yield running


def connection(server: WebhookServer, files: Files) -> closing[http.client.HTTPSConnection]:
    return closing(http.client.HTTPSConnection("127.0.0.1", server.port, context=files.trust, timeout=SECONDS))


def ask(server: WebhookServer, files: Files, method: str, path: str, body: bytes | None = None) -> tuple[int, bytes]:
    with connection(server, files) as client:
        client.request(method, path, body)
        answer = client.getresponse()
        return answer.status, answer.read()


def has_ended(client: socket.socket) -> bool:
    """Waits until the server closes the connection."""
    try:
        return client.recv(1) == b""
    except ssl.SSLError:  # OpenSSL tells the client that it found the end of the connection
        return True


def review(configs: list[object]) -> bytes:
    asked = request("ResourceClaim", configs)
    return json.dumps({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}).encode()


def test_reviews_are_answered_on_one_connection(server: WebhookServer, files: Files) -> None:
    with connection(server, files) as client:
        for configs, allowed in (([], True), ([entry(WRONG[4][1])], False), ([], True)):
            client.request("POST", "/validate?timeout=5s", review(configs))
            assert json.loads(client.getresponse().read())["response"]["allowed"] is allowed


def test_probes_and_unknown_paths(server: WebhookServer, files: Files) -> None:
    assert ask(server, files, "GET", "/healthz") == ask(server, files, "GET", "/readyz?verbose") == (200, b"ok\n")
    assert ask(server, files, "GET", "/validate")[0] == 404
    assert ask(server, files, "POST", "/other", b"{}")[0] == 404


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"[]", b"[" * 100_000, b'{"kind": "Pod"}'])
def test_what_is_no_review_is_a_bad_request(server: WebhookServer, files: Files, body: bytes) -> None:
    assert ask(server, files, "POST", "/validate", body)[0] == 400
    assert ask(server, files, "GET", "/healthz")[0] == 200


def test_a_body_has_a_length_and_a_limit(server: WebhookServer, files: Files) -> None:
    for length, status in ((str(MAX_BODY + 1), 413), ("9" * 5000, 411), ("-1", 411), ("", 411)):
        with connection(server, files) as client:
            client.putrequest("POST", "/validate")
            client.putheader("Content-Length", length)
            client.endheaders()
            answer = client.getresponse()
            assert (answer.status, answer.getheader("Connection")) == (status, "close")


def test_a_body_that_does_not_come_is_given_up(
    server: WebhookServer, files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("dra_sdk.tools.config_webhook.server.SECONDS", 0.2)
    with connection(server, files) as client:
        client.putrequest("POST", "/validate")
        client.putheader("Content-Length", "10")
        client.endheaders()
        with pytest.raises((OSError, http.client.HTTPException)):  # closed without an answer
            client.getresponse()
    assert ask(server, files, "GET", "/healthz")[0] == 200


def test_silent_clients_keep_nobody_out(server: WebhookServer, files: Files) -> None:
    with connection(server, files) as client:
        client.request("GET", "/healthz")
        assert client.getresponse().read() == b"ok\n"
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(CONNECTIONS + 5)]
        assert ask(server, files, "GET", "/healthz")[0] == 200
        silent[0].settimeout(SECONDS)
        assert silent[0].recv(1) == b""  # the oldest was closed
        client.request("GET", "/healthz")  # a connection that has had an answer stays
        assert client.getresponse().read() == b"ok\n"
        for each in silent:
            each.close()


def test_large_requests_are_read_and_documents_are_reviewed_one_by_one(files: Files) -> None:
    reviewer, sent = WaitingReviewer(), threading.Event()
    with serving(files, reviewer) as server, ThreadPoolExecutor() as pool, reviewer:

        def ask_much() -> int:
            with connection(server, files) as client:
                client.connect()
                client.sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)  # the kernel does not take it all
                client.request("POST", "/validate", review([]).rjust(MAX_BODY))
                sent.set()
                return client.getresponse().status

        large = pool.submit(ask, server, files, "POST", "/validate", review([]).rjust(LARGE + 1))
        assert reviewer.begun.wait(SECONDS)
        small = pool.submit(ask, server, files, "POST", "/validate", review([]))
        much = pool.submit(ask_much)
        for _ in range(20):
            assert ask(server, files, "GET", "/healthz")[0] == 200
        assert (reviewer.calls, sent.is_set()) == (1, False)
        reviewer.over.set()
        assert (large.result(SECONDS)[0], small.result(SECONDS)[0], much.result(SECONDS)) == (200, 200, 200)


def test_a_client_that_speaks_no_tls_is_left(server: WebhookServer, files: Files) -> None:
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.settimeout(SECONDS)
        client.sendall(b"GET /healthz HTTP/1.1\r\n\r\n")
        while client.recv(100):
            pass
    assert ask(server, files, "GET", "/healthz")[0] == 200


def test_a_new_certificate_is_used_at_once(server: WebhookServer, files: Files) -> None:
    with connection(server, files) as client:
        client.request("GET", "/healthz")
        assert client.getresponse().read() == b"ok\n"
        files.renew()
        client.request("GET", "/healthz")  # on the connection with the old certificate, which is closed after it
        answer = client.getresponse()
        assert (answer.status, answer.getheader("Connection")) == (200, "close")
    assert ask(server, files, "GET", "/healthz")[0] == 200


def test_a_certificate_that_cannot_be_read_leaves_the_one_before(
    server: WebhookServer, files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        files.certificate.write_text("half a file")
        assert ask(server, files, "GET", "/healthz")[0] == 200
        assert ask(server, files, "GET", "/healthz")[0] == 200
        assert len([each for each in caplog.messages if "cannot be read again" in each]) == 1
        files.certificate.unlink()
        assert ask(server, files, "GET", "/healthz")[0] == 200
    files.renew()
    assert ask(server, files, "GET", "/healthz")[0] == 200


def test_while_it_drains_each_answer_closes_its_connection(server: WebhookServer, files: Files) -> None:
    with connection(server, files) as client:
        client.request("POST", "/validate", review([]))
        answer = client.getresponse()
        assert (answer.status, answer.getheader("Connection"), bool(answer.read())) == (200, None, True)
        server.drain(0.0)
        client.request("POST", "/validate", review([]))
        answer = client.getresponse()
        assert (answer.status, answer.getheader("Connection"), bool(answer.read())) == (200, "close", True)
    assert ask(server, files, "POST", "/validate", review([]))[0] == 200  # pods may still be sent new connections


def test_a_request_under_way_is_answered_before_it_stops(files: Files) -> None:
    reviewer = WaitingReviewer()
    with ExitStack() as running, ThreadPoolExecutor() as pool, reviewer:
        server = running.enter_context(serving(files, reviewer))
        with connection(server, files) as idle:
            idle.request("GET", "/healthz")
            assert idle.getresponse().read() == b"ok\n"
            under_way = pool.submit(ask, server, files, "POST", "/validate", review([]))
            assert reviewer.begun.wait(SECONDS)
            stopped = pool.submit(running.close)
            assert has_ended(idle.sock)  # idle connections end at once
        assert not stopped.done()
        reviewer.over.set()
        status, body = under_way.result(SECONDS)
        assert (status, json.loads(body)["response"]["allowed"]) == (200, True)
        stopped.result(SECONDS)


def test_old_versions_of_tls_are_refused(files: Files) -> None:
    assert Certificate(files.certificate, files.key).context().minimum_version == ssl.TLSVersion.TLSv1_2


def test_unusable_files_and_addresses_are_named(files: Files, tmp_path: Path) -> None:
    reviewer = ConfigReviewer([])
    with pytest.raises(SettingsError, match=r"absent and key .* cannot be used"):
        Certificate(tmp_path / "absent", files.key)
    with pytest.raises(SettingsError, match=r"cannot be used"):
        Certificate(files.key, files.certificate)
    certificate = Certificate(files.certificate, files.key)
    for address in ("127.0.0.1:x", "127.0.0.1:99999", "x"):
        with pytest.raises(SettingsError, match="cannot listen on --address"):
            WebhookServer(address, certificate, reviewer)
