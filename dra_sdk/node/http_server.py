"""An HTTP server that silent or slow clients do not block: at most so many connections, each in a thread of its own."""

from __future__ import annotations

import socket
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from threading import Condition
from typing import Any


class BoundedHttpServer(ThreadingHTTPServer):
    """Listens on `host:port`; with port 0 the kernel chooses one.

    address: without host it listens on all addresses of the machine. An IPv6 address may stand in brackets. OSError,
        ValueError or OverflowError if it cannot listen there.
    handler: answers the requests of one connection.
    connections: how many there are at a time. One more closes the first of those that have not had an answer, or else
        the one whose last answer is the longest ago, so that silent clients keep nobody out.
    """

    daemon_threads = True

    def __init__(self, address: str, handler: type[BaseHTTPRequestHandler], connections: int) -> None:
        self._changed = Condition()
        self._open: dict[socket.socket, bool] = {}  # whether each has had an answer, in the order of the last one
        self._connections = self.request_queue_size = connections
        host, _, port = address.rpartition(":")
        host = host.removeprefix("[").removesuffix("]")
        host = host or ("::" if socket.has_dualstack_ipv6() else "0.0.0.0")  # noqa: S104 (the cluster calls the pod)
        number = int(port)
        self.address_family = socket.getaddrinfo(host, number, type=socket.SOCK_STREAM)[0][0]
        super().__init__((host, number), handler)

    def server_bind(self) -> None:
        """As in the base class, but without the lookup of our host name, which may take very long."""
        if self.address_family is socket.AF_INET6:
            self.socket.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), int(self.server_address[1])

    def process_request(self, request: Any, client_address: Any) -> None:
        """Serve a connection in its own thread. If there are too many, one is closed before."""
        with self._changed:
            if len(self._open) >= self._connections:
                first = min(self._open, key=self._open.__getitem__)  # of those without an answer, if there are any
                del self._open[first]
                shut(first, socket.SHUT_RDWR)
            self._open[request] = False
        super().process_request(request, client_address)

    def note_answer(self, request: Any) -> None:
        """A connection has had an answer; its handler says so."""
        with self._changed:
            if self._open.pop(request, None) is not None:
                self._open[request] = True

    def shutdown_request(self, request: Any) -> None:
        """A connection has ended."""
        super().shutdown_request(request)
        with self._changed:
            self._open.pop(request, None)
            self._changed.notify_all()

    def close_connections(self, seconds: float) -> None:
        """End all connections: idle ones at once, others when their answer is sent, at most `seconds` later."""
        with self._changed:
            self._shut_all(socket.SHUT_RD)
            self._changed.wait_for(lambda: not self._open, seconds)
            self._shut_all(socket.SHUT_RDWR)

    def _shut_all(self, how: int) -> None:
        for each in self._open:
            shut(each, how)


def shut(connection: socket.socket, how: int) -> None:
    """Shut a connection down; no error if the other side was faster."""
    # Not connection.shutdown(): after that the serving thread would go on without encryption on a TLS socket.
    with suppress(OSError):
        socket.socket.shutdown(connection, how)
