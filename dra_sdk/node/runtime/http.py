"""`/metrics`, `/healthz` and `/readyz` over HTTP, for Prometheus and for the probes of the driver's pod."""

from __future__ import annotations

import logging
import socket
import sys
from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Thread
from typing import Any

from dra_sdk.errors import DraError, SettingsError

log = logging.getLogger(__name__)
Page = Callable[[], bytes]
"""Gives a page's body; a DraError becomes 503 with its text."""


class HttpServer:
    """Serves a few pages on `host:port`; port 0 lets the kernel choose, `port` tells which.

    Without host it listens on all addresses of the machine. One of IPv6 may stand in brackets.
    """

    def __init__(self, address: str, pages: Mapping[str, Page]) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._server = _Server(host.removeprefix("[").removesuffix("]"), int(port), _handler(pages))
        except (OSError, ValueError, OverflowError) as error:
            raise SettingsError(f"cannot listen on --http-address {address!r}: {error}") from error
        self._thread = Thread(target=self._server.serve_forever, name="http")

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return self._server.server_port

    def start(self) -> None:
        """Begin to serve."""
        self._thread.start()

    def stop(self) -> None:
        """End serving and close the port."""
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, host: str, port: int, handler: type[BaseHTTPRequestHandler]) -> None:
        host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 (the kubelet calls the pod)
        self.address_family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, port), handler)

    def server_bind(self) -> None:
        """Without the library's question to the name service who we are, which takes as long as that is down."""
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]

    def handle_error(self, request: Any, client_address: Any) -> None:  # noqa: ARG002 (of the library)
        """Into the log, as everything else; a probe that did not wait for its answer is nothing."""
        level = logging.DEBUG if isinstance(sys.exception(), OSError) else logging.ERROR
        log.log(level, "a page failed", exc_info=True)


def _handler(pages: Mapping[str, Page]) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        timeout = 10

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
            """Probes come every few seconds; nobody wants to read of them."""

    return Handler
