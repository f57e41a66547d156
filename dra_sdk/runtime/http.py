"""`/metrics`, `/healthz` and `/readyz` over HTTP, for Prometheus and for the probes of the driver's pod."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread

from dra_sdk.errors import DraError, SettingsError

Page = Callable[[], bytes]
"""Gives a page's body; a DraError becomes 503 with its text."""


class HttpServer:
    """Serves a few pages on `host:port`; port 0 lets the kernel choose, `port` tells which."""

    def __init__(self, address: str, pages: Mapping[str, Page]) -> None:
        host, _, port = address.rpartition(":")
        try:
            self._server = ThreadingHTTPServer((host, int(port)), _handler(pages))
        except (OSError, ValueError, OverflowError) as error:
            raise SettingsError(f"cannot listen on --http-address {address!r}: {error}") from error
        self._server.daemon_threads = True
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
