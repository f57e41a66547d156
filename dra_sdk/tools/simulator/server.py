"""The API server on loopback: HTTP or HTTPS, one thread per connection, streamed watches.

    with ApiServer(ObjectStore()) as server:
        server.write_kubeconfig(path)

Stopping closes every connection, ends every watch and joins every thread. A stopped server keeps its port and its
objects and may be started again.
"""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from socketserver import ThreadingTCPServer
from ssl import PROTOCOL_TLS_SERVER, SSLContext
from sys import exception
from typing import Any, Self

import yaml

from dra_sdk.errors import DraError
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.request_handler import RequestHandler, Service, shut

HOST = "127.0.0.1"
GIT_VERSION = "v1.36.3"
BOOKMARK_SECONDS = 60.0
STOP_SECONDS = 5.0
"""How long a stopping server waits for clients to take the answers that are on their way."""
_POLL_SECONDS = 60.0  # `_Listener.stop_accepting` does not wait for it


class CertificateError(DraError):
    """There can be no certificates; the message says what is missing."""


@dataclass(frozen=True)
class TlsFiles:
    """The PEM files of an HTTPS server.

    ca: the certificate authority that clients trust.
    certificate: the server's certificate.
    key: the server's private key.
    """

    ca: Path
    certificate: Path
    key: Path


def make_certificates(directory: Path) -> TlsFiles:
    """Make a CA and with it a certificate for 127.0.0.1 and localhost; `CertificateError` if trustme is missing."""
    try:
        import trustme  # noqa: PLC0415 (only HTTPS needs it)
    except ImportError:
        raise CertificateError("HTTPS needs the package trustme, which is not installed: pip install trustme") from None
    authority = trustme.CA()
    issued = authority.issue_cert(HOST, "localhost")
    files = TlsFiles(directory / "ca.crt", directory / "server.crt", directory / "server.key")
    authority.cert_pem.write_to_path(files.ca)
    files.certificate.write_bytes(b"".join(blob.bytes() for blob in issued.cert_chain_pems))
    files.key.touch(mode=0o600)
    issued.private_key_pem.write_to_path(files.key)
    return files


class ApiServer(Service):
    """Serves an `ObjectStore`.

    `port` is one that was free at the first start. `token` makes it a required bearer token. `tls` are files as
    `make_certificates` gives them; without them the server speaks plain HTTP. `git_version` is the version in /version.
    `bookmark_seconds` is the time between bookmarks of a quiet watch that asked for them.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        token: str | None = None,
        tls: TlsFiles | None = None,
        git_version: str = GIT_VERSION,
        bookmark_seconds: float = BOOKMARK_SECONDS,
    ) -> None:
        super().__init__(store, token, git_version, bookmark_seconds)
        self.port = 0
        self.tls = tls
        self._listener: _Listener | None = None
        self._accepting: threading.Thread | None = None
        self._reserved: socket.socket | None = None

    @property
    def url(self) -> str:
        """Where clients connect, such as http://127.0.0.1:36001."""
        return f"{'https' if self.tls else 'http'}://{HOST}:{self.port}"

    def start(self) -> Self:
        """Listen; `OSError` if the port is taken."""
        self.stopping.clear()
        self._listener = _Listener(self.port, self, self._tls_context())
        self.release()
        self.port = self._listener.server_address[1]
        self._accepting = threading.Thread(
            target=self._listener.serve_forever, args=(_POLL_SECONDS,), name=f"apiserver-{self.port}"
        )
        self._accepting.start()
        return self

    def stop(self) -> None:
        """Close everything and wait for every thread. The port stays reserved for the next start."""
        listener, self._listener = self._listener, None
        if listener is None or self._accepting is None:
            return
        self.stopping.set()
        listener.stop_accepting()
        self._accepting.join()
        self._reserved = _reserve(self.port)
        self.close_watches()
        listener.close_connections(STOP_SECONDS)
        listener.server_close()

    def release(self) -> None:
        """Give up the port of a stopped server."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def write_kubeconfig(self, path: Path) -> Path:
        """Write a kubeconfig for this server, which only its owner can read, and return `path`."""
        name = "simulator"
        cluster = {"server": self.url} | ({"certificate-authority": str(self.tls.ca)} if self.tls else {})
        user = {"token": self.token} if self.token else {}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": cluster}],
            "users": [{"name": name, "user": user}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
        path.touch(mode=0o600)
        path.write_text(yaml.safe_dump(config, sort_keys=False))
        return path

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()
        self.release()

    def _tls_context(self) -> SSLContext | None:
        if not self.tls:
            return None
        context = SSLContext(PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.tls.certificate, self.tls.key)
        return context


class _Listener(ThreadingTCPServer):
    """The listening socket and its connections, each with a thread of its own that `server_close` joins."""

    # Not http.server's HTTPServer, which looks its own name up in the DNS.
    allow_reuse_address = True
    request_queue_size = 128

    def __init__(self, port: int, service: Service, context: SSLContext | None) -> None:
        self._context = context
        self._changed = threading.Condition()
        self._connections: set[socket.socket] = set()
        super().__init__((HOST, port), partial(RequestHandler, service))

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self._context:
            # The handshake waits for the client, so it is done in the connection's thread.
            connection = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def process_request(self, request: Any, client_address: Any) -> None:
        with self._changed:
            self._connections.add(request)
        super().process_request(request, client_address)

    def close_request(self, request: Any) -> None:
        super().close_request(request)
        with self._changed:
            self._connections.discard(request)
            self._changed.notify_all()

    def handle_error(self, *_: Any) -> None:
        """Ignore that a client went away; any other error is a defect of this program and ends the thread."""
        error = exception()
        if error is not None and not isinstance(error, OSError):
            raise error

    def stop_accepting(self) -> None:
        """Accept no more connections; return when `serve_forever` has ended."""
        # This wakes serve_forever, which then finds that it is to end.
        self.socket.shutdown(socket.SHUT_RDWR)
        self.shutdown()
        self.socket.close()

    def close_connections(self, seconds: float) -> None:
        """End all connections: idle ones at once, others when their answer is sent, at most `seconds` later."""
        self._shut_all(socket.SHUT_RD)
        with self._changed:
            self._changed.wait_for(lambda: not self._connections, seconds)
        self._shut_all(socket.SHUT_RDWR)

    def _shut_all(self, how: int) -> None:
        with self._changed:
            connections = list(self._connections)
        for connection in connections:
            shut(connection, how)


def _reserve(port: int) -> socket.socket:
    """Keep the kernel from giving the port to another program; connections to it are refused."""
    reserved = socket.socket()
    reserved.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that the next listener gets it
    reserved.bind((HOST, port))
    return reserved
