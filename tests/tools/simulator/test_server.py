from __future__ import annotations

import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import HOST, ApiServer, CertificateError, make_certificates
from dra_sdk.tools.simulator.watch_cache import encode
from tests.tools.simulator.conftest import SLICES, Http, claim_object, closed, slice_object

MERGE, APPLY = "application/merge-patch+json", "application/apply-patch+yaml"


class TestAccess:
    def test_a_request_without_the_token_is_refused(self, store: ObjectStore) -> None:
        with ApiServer(store, token="secret") as server:
            http = Http(server)
            code, status = http("GET", SLICES)
            assert (code, status["reason"]) == (401, "Unauthorized")
            assert http("GET", SLICES, Authorization="Bearer wrong")[0] == 401
            assert http("GET", SLICES, Authorization="Bearer secret")[0] == 200

    def test_https(self, store: ObjectStore, local: LocalClient, tmp_path: Path) -> None:
        files = make_certificates(tmp_path)
        context = ssl.create_default_context(cafile=files.ca)
        with ApiServer(store, tls=files) as server:
            with urllib.request.urlopen(f"{server.url}/api/v1/namespaces/default", context=context) as response:
                assert json.load(response)["metadata"]["name"] == "default"
            watch = urllib.request.urlopen(f"{server.url}{SLICES}?watch=true", context=context, timeout=LONG)
            created = local.create("resourceslices", slice_object("a"))
            assert json.loads(watch.readline())["object"] == created
            server.stop()
            assert watch.readline() == b""
            watch.close()

    def test_a_client_that_does_not_trust_it_does_no_harm(self, store: ObjectStore, tmp_path: Path) -> None:
        files = make_certificates(tmp_path)
        with ApiServer(store, tls=files) as server, pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(server.url, timeout=LONG)

    def test_without_trustme_the_error_names_it(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setitem(sys.modules, "trustme", None)
        with pytest.raises(CertificateError, match="pip install trustme"):
            make_certificates(tmp_path)


class TestStop:
    def test_idle_connections_are_closed_and_it_can_start_again(self, server: ApiServer, http: Http) -> None:
        port = server.port
        with socket.create_connection((HOST, port)) as connection:
            connection.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
            connection.recv(1000)
            server.stop()
            assert closed(connection)
        server.stop()
        server.start()
        assert (server.port, http("GET", "/readyz")) == (port, (200, "ok"))

    def test_the_port_stays_reserved(self, store: ObjectStore) -> None:
        with ApiServer(store) as server:
            server.stop()
            with socket.socket() as other, pytest.raises(OSError, match="in use"):
                other.bind((HOST, server.port))
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((HOST, server.port))
            server.start()
            server.stop()
        with socket.socket() as other:
            other.bind((HOST, server.port))

    @pytest.mark.parametrize(
        "sent", [b"", b"GET /rea", b"GET / HTTP/1.1\r\nHost:", b"POST / HTTP/1.1\r\nContent-Length: 10\r\n\r\nhalf"]
    )
    def test_a_client_that_sends_half_a_request_is_not_waited_for(
        self, server: ApiServer, patient: None, sent: bytes
    ) -> None:
        with connected(server) as connection:
            connection.sendall(sent)
            server.stop()
            assert closed(connection)

    def test_a_client_that_begins_no_handshake_is_not_waited_for(
        self, store: ObjectStore, tmp_path: Path, patient: None
    ) -> None:
        with (
            ApiServer(store, tls=make_certificates(tmp_path)) as server,
            socket.create_connection((HOST, server.port)) as connection,
        ):
            # The next connection is accepted after this one.
            with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
                urllib.request.urlopen(server.url, timeout=LONG)
            server.stop()
            assert closed(connection)

    @pytest.mark.parametrize("query", ["", "?watch=true"])
    def test_a_client_that_does_not_read_is_cut_off_after_a_while(
        self, server: ApiServer, local: LocalClient, monkeypatch: pytest.MonkeyPatch, query: str
    ) -> None:
        monkeypatch.setattr("dra_sdk.tools.simulator.server.STOP_SECONDS", 0.1)
        for number in range(8):  # more than the buffers between server and client hold
            metadata = {"name": f"s-{number}", "annotations": {"large": "x" * 1024 * 1024}}
            local.create("resourceslices", {**slice_object(), "metadata": metadata})
        with connected(server) as connection:
            connection.sendall(f"GET {SLICES}{query} HTTP/1.1\r\n\r\n".encode())
            wait(server.log.records)
            server.stop()
            assert closed(connection)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """A server that waits for its clients longer than the test may take."""
    monkeypatch.setattr("dra_sdk.tools.simulator.server.STOP_SECONDS", 10 * LONG)


@contextmanager
def connected(server: ApiServer) -> Iterator[socket.socket]:
    """A connection that the server has accepted, of a client that receives little at a time."""
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect((HOST, server.port))
        connection.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert connection.recv(1000).endswith(b"ok")
        server.log.clear()
        yield connection


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not on PATH")
class TestKubectl:
    @pytest.fixture
    def kubectl(self, store: ObjectStore, local: LocalClient, tmp_path: Path) -> Iterator[Any]:
        with ApiServer(store, tls=make_certificates(tmp_path), token="secret") as server:
            config = server.write_kubeconfig(tmp_path / "kubeconfig")

            def run(*arguments: str, stdin: str = "") -> str:
                cache = ("--cache-dir", str(tmp_path / "cache"))
                done = subprocess.run(
                    ["kubectl", "--kubeconfig", str(config), *cache, *arguments],
                    input=stdin,
                    capture_output=True,
                    text=True,
                    timeout=60,
                    check=False,
                    env={**os.environ, "HOME": str(tmp_path)},
                )
                assert done.returncode == 0, done.stderr
                return done.stdout

            assert config.stat().st_mode & 0o777 == 0o600
            yield run

    def test_objects(self, kubectl: Any, local: LocalClient) -> None:
        local.create("resourceslices", slice_object("slice-a"))
        assert "slice-a" in kubectl("get", "resourceslices")
        manifest = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", **claim_object()}
        created = kubectl("create", "--validate=false", "-f", "-", stdin=encode(manifest).decode())
        assert "claim-1 created" in created
        kubectl("label", "resourceclaims", "claim-1", "a=b")
        assert json.loads(kubectl("get", "resourceclaims", "claim-1", "-o", "json"))["metadata"]["labels"] == {"a": "b"}
        assert "claim-1" in kubectl("delete", "resourceclaims", "claim-1")
        assert not local.list("resourceclaims")
