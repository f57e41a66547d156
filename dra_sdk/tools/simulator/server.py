"""The API server's endpoint on loopback: HTTP or HTTPS, one thread per connection, streamed watches.

    with ApiServer(ObjectStore()) as server:
        server.write_kubeconfig(path)

Stopping closes every connection, ends every watch and joins every thread; a stopped server may be started again on the
same port, which nobody else gets meanwhile, with the same objects.
"""

from __future__ import annotations

import socket
import ssl
import struct
import threading
from typing import TYPE_CHECKING

from dra_sdk.tools.simulator import http1, kubeconfig
from dra_sdk.tools.simulator.connection import Connection, ConnectionDroppedError, Service, shut

if TYPE_CHECKING:
    from pathlib import Path
    from types import TracebackType
    from typing import Self

    from dra_sdk.tools.simulator.certificates import TlsFiles
    from dra_sdk.tools.simulator.objects import ObjectStore

GIT_VERSION = "v1.36.3"
BOOKMARK_SECONDS = 60.0
_HANDSHAKE_SECONDS = 5.0
_BACKLOG = 128
_NO_LINGER = struct.pack("ii", 1, 0)


class ApiServer:
    """Serves an `ObjectStore`.

    `port` 0 picks a free one. `token` makes it a required bearer token. `tls` are the files of `certificates.make`;
    without them the endpoint is plain HTTP. `git_version` is what /version claims to be. `bookmark_seconds` is how
    often a quiet watch that asked for bookmarks gets one.
    """

    def __init__(
        self,
        store: ObjectStore,
        *,
        port: int = 0,
        token: str | None = None,
        tls: TlsFiles | None = None,
        git_version: str = GIT_VERSION,
        bookmark_seconds: float = BOOKMARK_SECONDS,
    ) -> None:
        self.store = store
        self.port = port
        self.tls = tls
        self._service = Service(store, token, git_version, bookmark_seconds)
        self.faults = self._service.faults
        self.log = self._service.log
        self._lock = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._listener: socket.socket | None = None
        self._reserved: socket.socket | None = None
        self._accepting: threading.Thread | None = None

    @property
    def url(self) -> str:
        """Where clients connect, such as http://127.0.0.1:36001."""
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Listens. `OSError` where the port is taken."""
        self._service.stopping.clear()
        listener = socket.create_server(("127.0.0.1", self.port), backlog=_BACKLOG)
        self.release()
        self.port = listener.getsockname()[1]
        context = self._tls_context()
        self._listener = listener
        self._accepting = threading.Thread(target=self._accept, args=(listener, context), name=f"apiserver-{self.port}")
        self._accepting.start()
        return self

    def stop(self) -> None:
        """Closes everything and waits for every thread."""
        if self._listener is None or self._accepting is None:
            return
        self._service.stopping.set()
        # close() alone would leave accept() waiting.
        self._listener.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._listener.close()
        self._listener = None
        self._reserved = _reserved(self.port)
        self.close_watches()
        with self._lock:
            connections = dict(self._connections)
        for connection in connections:
            shut(connection, socket.SHUT_RD)
        for thread in connections.values():
            thread.join()

    def release(self) -> None:
        """Gives up the port of a server that is stopped, which is kept for its next start."""
        if self._reserved is not None:
            self._reserved.close()
            self._reserved = None

    def close_watches(self, *, reset: bool = False) -> int:
        """Ends all open watches, properly or (`reset`) by breaking their connections; returns how many there were."""
        return self._service.close_streams(reset=reset)

    @property
    def open_watches(self) -> int:
        """How many watches are open over HTTP."""
        return self._service.open_streams

    def write_kubeconfig(self, path: Path) -> Path:
        """Writes a kubeconfig that leads here and returns its path."""
        return kubeconfig.write(path, self.url, token=self._service.token, ca=self.tls.ca if self.tls else None)

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()
        self.release()

    def _tls_context(self) -> ssl.SSLContext | None:
        if not self.tls:
            return None
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.tls.certificate, self.tls.key)
        return context

    def _accept(self, listener: socket.socket, context: ssl.SSLContext | None) -> None:
        while not self._service.stopping.is_set():
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            thread = threading.Thread(
                target=self._serve, args=(connection, context), name=f"apiserver-{self.port}-connection"
            )
            with self._lock:
                self._connections[connection] = thread
            thread.start()

    def _serve(self, plain: socket.socket, context: ssl.SSLContext | None) -> None:
        connection = plain
        try:
            if context:
                plain.settimeout(_HANDSHAKE_SECONDS)
                connection = context.wrap_socket(plain, server_side=True)
                connection.settimeout(None)
                with self._lock:
                    self._connections[connection] = self._connections.pop(plain)
            with connection.makefile("rb") as stream:
                Connection(self._service, connection, stream).serve()
        except ConnectionDroppedError:
            # Lingering for no time at all makes closing send a reset instead of a proper end.
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        except (OSError, http1.BadRequestError):
            # The client went away or spoke no HTTP: there is nobody to tell.
            shut(connection, socket.SHUT_RDWR)
        finally:
            with self._lock:
                self._connections.pop(connection, None)
            connection.close()


def _reserved(port: int) -> socket.socket:
    """A socket that keeps the kernel from giving the port to another program; who connects is refused."""
    kept = socket.socket()
    kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # so that the next listener may have it
    kept.bind(("127.0.0.1", port))
    return kept
