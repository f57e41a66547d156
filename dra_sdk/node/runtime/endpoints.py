"""`/metrics`, `/healthz` and `/readyz` over HTTP, for Prometheus and for the probes of the driver's pod.

Healthy: our sockets answer as they would answer the kubelet. Ready: registered, all slices
published, discovery works, and no state file that keeps claims from getting devices.
"""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Lock, Thread
from typing import Any, Final

from dra_sdk.errors import DraError, SettingsError
from dra_sdk.node.kubelet.draplugin import probe
from dra_sdk.node.kubelet.registration import Registration, get_info
from dra_sdk.node.kubelet.sockets import SocketPaths
from dra_sdk.node.runtime.metrics import Metrics
from dra_sdk.node.runtime.settings import Serve
from dra_sdk.node.slices.controller import SliceController

log = logging.getLogger(__name__)
CONNECTIONS: Final = 32  # at a time; one more closes the oldest
SILENCE: Final = 10.0  # seconds that a client may be silent
Page = Callable[[], bytes]
"""Returns a page's body; a DraError becomes 503 with its text."""


def pages(
    metrics: Metrics,
    paths: SocketPaths,
    serve: Serve,
    registration: Registration,
    slices: SliceController,
    *,
    checks: Sequence[Callable[[], None]] = (),
) -> dict[str, Page]:
    """Return the pages by path. If two processes share the services (`serve`), each answers for its own part.

    `checks` raise a DraError while the driver is not ready for another reason.
    """

    def healthy() -> bytes:
        if serve != "service":
            get_info(paths.registration)
        if serve != "registration":
            probe(paths.service)
        return b"ok\n"

    def ready() -> bytes:
        if serve != "service" and not registration.registered.is_set():
            raise DraError(f"not registered with the kubelet: {registration.error or 'it has not called yet'}")
        for check in checks:  # they say more than that there are no slices
            check()
        if serve != "registration" and not slices.synced:
            raise DraError("the ResourceSlices are not published yet: " + "; ".join(map(str, slices.errors.values())))
        return b"ok\n"

    return {"/metrics": metrics.text, "/healthz": healthy, "/readyz": ready}


class HttpServer:
    """Serves a few pages on `host:port`. With port 0 the kernel chooses; `port` has the number.

    Without host it listens on all addresses of the machine. An IPv6 address may stand in brackets.
    """

    def __init__(self, address: str, pages: Mapping[str, Page]) -> None:
        try:
            self._server = _Server(address, _handler(pages))
        except (OSError, ValueError, OverflowError) as error:
            raise SettingsError(f"cannot listen on --http-address {address!r}: {error}") from error
        self._thread = Thread(target=self._server.serve_forever, name="http")

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._server.server_port

    def start(self) -> None:
        """Start to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End serving and close the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    """A thread for each connection, at most CONNECTIONS, so that slow clients never block the kubelet's probes."""

    request_queue_size = CONNECTIONS

    def __init__(self, address: str, handler: type[BaseHTTPRequestHandler]) -> None:
        self._lock = Lock()
        self._open: dict[socket.socket, None] = {}  # in the order of their arrival
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 (the kubelet calls the pod)
        number = int(port)
        self.address_family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, number), handler)

    def server_bind(self) -> None:
        """Bind as the base class, but without the lookup of our host name, which may take very long."""
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread. If there are too many, the oldest one is closed before."""
        with self._lock:
            if len(self._open) >= CONNECTIONS:
                oldest = next(iter(self._open))
                del self._open[oldest]
                with suppress(OSError):  # the other side was faster
                    oldest.shutdown(socket.SHUT_RDWR)
            self._open[request] = None
        super().process_request(request, client_address)

    def shutdown_request(self, request: Any) -> None:
        """Note that a connection has ended."""
        super().shutdown_request(request)
        with self._lock:
            self._open.pop(request, None)

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (of the library)
        """Log the error; it is none if the client closed the connection early."""
        level = logging.DEBUG if isinstance(sys.exception(), OSError) else logging.ERROR
        log.log(level, "a page failed", exc_info=True)


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class PageHandler(BaseHTTPRequestHandler):
        timeout = SILENCE

        def do_GET(self) -> None:
            page = pages.get(self.path.partition("?")[0])
            try:
                status, body = (200, page()) if page else (404, b"not found\n")
            except DraError as error:
                status, body = 503, f"{error}\n".encode()
            self.send_response(status)
            self.send_header("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Log nothing: probes come every few seconds."""

    return PageHandler
