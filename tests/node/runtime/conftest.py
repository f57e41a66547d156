"""The HTTP servers of driver processes, on ports that the kernel chooses: others run tests on this machine too."""

from __future__ import annotations

import urllib.request
from typing import Any
from urllib.error import HTTPError

import pytest

from dra_sdk.node.kubelet import draplugin, registration
from dra_sdk.node.runtime import process
from dra_sdk.node.runtime.endpoints import HttpServer
from dra_sdk.testing.waiting import LONG

ANY_PORT = "127.0.0.1:0"


class Web:
    """Reads pages of the processes that a test started with ANY_PORT, counted from 0."""

    def __init__(self) -> None:
        self.servers: list[HttpServer] = []

    def make(self, *arguments: Any) -> HttpServer:
        """A server as a process makes it."""
        self.servers.append(HttpServer(*arguments))
        return self.servers[-1]

    def read(self, path: str, number: int = 0) -> tuple[int, str]:
        """Status and body of a page."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.servers[number].port}{path}") as answer:
                return answer.status, answer.read().decode()
        except HTTPError as error:
            with error:
                return error.code, error.read().decode()


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Web:
    """For probes that are as patient as the tests are; a kubelet's are not."""
    made = Web()
    monkeypatch.setattr(process, "HttpServer", made.make)
    for module in (draplugin, registration):
        monkeypatch.setattr(module, "PROBE_SECONDS", LONG)
    return made
