"""A scheduler extender: it receives the nodes that fit a pod, and leaves one of them.

The scheduler tells its extenders which nodes passed all filters. That is the only place where it says so, and it lets
a case decide which node is taken. Source: k8s.io/kube-scheduler/extender/v1.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Lock, Thread
from typing import Any, Final

CHOICE: Final = "differential/choice"


class Extender:
    """An HTTP server on the loopback interface, which the scheduler asks."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._fitting: dict[str, list[str]] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        self._server.daemon_threads = True

    @property
    def url(self) -> str:
        """Its URL."""
        return f"http://127.0.0.1:{self._server.server_port}"

    def fitting(self, uid: str) -> list[str]:
        """Returns the nodes that fitted a pod when it was last tried, sorted."""
        with self._lock:
            return self._fitting.get(uid, [])

    def choose(self, pod: dict[str, Any], nodes: list[str]) -> str:
        """Remembers the nodes and returns the one that the pod wants."""
        metadata, nodes = pod["metadata"], sorted(nodes)
        with self._lock:
            self._fitting[metadata["uid"]] = nodes
        return nodes[int(metadata.get("annotations", {}).get(CHOICE, "0")) % len(nodes)]

    @contextmanager
    def running(self) -> Iterator[Extender]:
        """Serves until the block ends."""
        thread = Thread(target=self._server.serve_forever, args=(0.05,), name="extender")
        thread.start()
        try:
            yield self
        finally:
            self._server.shutdown()
            thread.join()
            self._server.server_close()


def _handler(extender: Extender) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps({"nodenames": [extender.choose(asked["Pod"], asked["NodeNames"])]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 (the name in the base class)
            """Logs nothing: there is a request for each pod."""

    return Handler
