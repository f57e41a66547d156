"""Fixtures of the API client's tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.transport import ApiTimeouts
from dra_sdk.testing.waiting import LONG
from tests.kube.scripted import Answer, Asked, ScriptedServer, kubeconfig


@pytest.fixture
def serve() -> Iterator[Callable[[Callable[[Asked], Answer]], ScriptedServer]]:
    with ExitStack() as stack:
        yield lambda answer: stack.enter_context(ScriptedServer(answer))


@pytest.fixture
def connect(tmp_path: Path) -> Iterator[Callable[..., KubeClient]]:
    with ExitStack() as stack:

        def make(
            server: str, user: dict[str, Any] | None = None, timeouts: ApiTimeouts | None = None, **cluster: Any
        ) -> KubeClient:
            path = tmp_path / "kubeconfig"
            path.write_text(kubeconfig(server, user, **cluster))
            client = KubeClient.connect(path, timeouts=timeouts or ApiTimeouts(LONG, LONG, 60))
            stack.callback(client.close)
            return client

        yield make
