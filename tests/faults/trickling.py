"""An API server that answers with a byte now and then, for ever: no single wait for it is long, and none ends."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from pathlib import Path
from threading import Event
from typing import Any

from dra_sdk.tools.simulator import ClaimRef, EmbeddedCluster
from tests.kube.scripted import Answer, Asked, ScriptedServer, kubeconfig

PAUSE = 0.05  # seconds between two bytes


class Trickling:
    """Stands before the API server of a cluster: trickles for some of its claims, serves the others, and nothing else.

    `asked` are the names of claims that it trickles for, in the order of the requests.
    """

    def __init__(self, cluster: EmbeddedCluster, slow: Collection[ClaimRef], folder: Path) -> None:
        self.asked: list[str] = []
        self.kubeconfig = folder / "trickling.kubeconfig"
        self._cluster, self._slow = cluster, {ref.name for ref in slow}
        self._ended = Event()
        self._server = ScriptedServer(self._answer)
        self.kubeconfig.write_text(kubeconfig(self._server.url))

    def __enter__(self) -> Trickling:
        return self

    def __exit__(self, *_: Any) -> None:
        self._ended.set()
        self._server.__exit__()

    def _answer(self, asked: Asked) -> Answer:
        collection, _, name = asked.path.rpartition("/")
        if not collection.endswith("/resourceclaims"):
            return Answer({"kind": "Status", "code": 503, "reason": "ServiceUnavailable"}, status=503)
        if name not in self._slow:
            return Answer(self._cluster.api.get("resourceclaims", name, "default"))
        self.asked.append(name)
        return Answer(stream=self._bytes())

    def _bytes(self) -> Iterator[bytes]:
        while not self._ended.wait(PAUSE):
            yield b" "
