"""An HTTP server on loopback whose every answer is written by the test."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit


@dataclass
class Asked:
    method: str
    target: str
    headers: dict[str, str]
    body: Any
    peer: int

    @property
    def path(self) -> str:
        return urlsplit(self.target).path

    @property
    def query(self) -> dict[str, str]:
        return {key: values[0] for key, values in parse_qs(urlsplit(self.target).query).items()}


@dataclass
class Answer:
    """`stream` is sent in chunks as it is produced; an exception in it breaks the connection off."""

    body: Any = None
    status: int = 200
    headers: dict[str, str] = field(default_factory=dict)
    stream: Iterable[bytes] | None = None
    hang_up: bool = False


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    owner: ScriptedServer

    def serve(self) -> None:
        length = int(self.headers.get("Content-Length") or 0)
        content = self.rfile.read(length)
        body = json.loads(content) if content else None
        asked = Asked(self.command, self.path, dict(self.headers), body, self.client_address[1])
        self.owner.asked.append(asked)
        self.reply(self.owner.answer(asked))

    def reply(self, answer: Answer) -> None:
        if answer.hang_up:
            self.close_connection = True
            return
        content = answer.body if isinstance(answer.body, bytes) else json.dumps(answer.body or {}).encode()
        self.send_response(answer.status)
        for key, value in answer.headers.items():
            self.send_header(key, value)
        if answer.stream is None:
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)
            return
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            for chunk in answer.stream:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(chunk), chunk))
            self.wfile.write(b"0\r\n\r\n")
        except ConnectionError:
            self.close_connection = True

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = serve  # noqa: N815 (names the base class looks for)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Keep the test output quiet."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A client that hangs up is part of the tests; anything else must be seen."""
        if not isinstance(sys.exception(), ConnectionError):
            super().handle_error(request, client_address)  # type: ignore[arg-type]


class ScriptedServer:
    def __init__(self, answer: Callable[[Asked], Answer]) -> None:
        self.answer = answer
        self.asked: list[Asked] = []
        self._server = _Server(("127.0.0.1", 0), type("Handler", (_Handler,), {"owner": self}))
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), name="scripted-server")
        self._thread.start()

    def __enter__(self) -> ScriptedServer:
        return self

    def __exit__(self, *exc: object) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


def kubeconfig(
    server: str, user: dict[str, Any] | None = None, *, ca: Path | None = None, proxy: str | None = None
) -> str:
    """A kubeconfig in JSON, which is YAML."""
    cluster = {"server": server, "certificate-authority": ca and str(ca), "proxy-url": proxy}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "contexts": [{"name": "here", "context": {"cluster": "here", "user": "me"}}],
            "clusters": [{"name": "here", "cluster": {key: value for key, value in cluster.items() if value}}],
            "users": [{"name": "me", "user": user or {}}],
        }
    )
