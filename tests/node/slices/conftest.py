"""A simulated API server with one node, and controllers that talk to it over HTTP."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.transport import ApiTimeouts
from dra_sdk.model.device import Device, ResourcePool
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.node.slices.controller import OnError, SliceController
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator.local import LocalClient
from dra_sdk.tools.simulator.objects import ObjectStore
from dra_sdk.tools.simulator.server import ApiServer

DRIVER, NODE = "gpu.example.com", "node-1"
FAST = Backoff(
    debounce=0.02, retry=0.02, retry_limit=0.1, refused=0.05, refused_limit=0.2, repair=0.02, repair_limit=0.1, calm=5
)


def pool(name: str = NODE, *devices: str, **more: Any) -> ResourcePool:
    return ResourcePool(name, [Device(each) for each in devices or ("gpu-0",)], **more)


@dataclass
class Cluster:
    server: ApiServer
    local: LocalClient
    kubeconfig: Path
    stack: ExitStack
    problems: list[tuple[str, Exception]] = field(default_factory=list)

    def node(self, name: str = NODE) -> str:
        made = self.local.create("nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name}})
        return str(made["metadata"]["uid"])

    def slices(self) -> list[dict[str, Any]]:
        return self.local.list("resourceslices")

    def specs(self) -> list[dict[str, Any]]:
        return [each["spec"] for each in self.slices()]

    def names(self) -> list[str]:
        return sorted(device["name"] for spec in self.specs() for device in spec.get("devices", []))

    def versions(self) -> list[str]:
        return [each["metadata"]["resourceVersion"] for each in self.slices()]

    def delete(self, item: dict[str, Any]) -> None:
        self.local.delete("resourceslices", item["metadata"]["name"])

    def client(self) -> KubeClient:
        made = KubeClient.connect(self.kubeconfig, timeouts=ApiTimeouts(LONG, LONG, 60))
        self.stack.callback(made.close)
        return made

    def controller(self, node: str | None = NODE, *, driver: str = DRIVER, **more: Any) -> SliceController:
        options: dict[str, Any] = {"backoff": FAST, **more}
        connect: Callable[[], KubeClient] = options.pop("connect", self.client)
        on_error: OnError = options.pop("on_error", lambda *each: self.problems.append(each))
        made = SliceController(driver, node, connect, on_error, **options)
        self.stack.callback(made.stop)
        return made

    def running(self, *pools: ResourcePool, **more: Any) -> SliceController:
        """A controller that has published these pools."""
        made = self.controller(**more)
        made.start()
        made.publish(pools)
        wait(lambda: made.synced)
        return made


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    store = ObjectStore()
    with ApiServer(store) as server, ExitStack() as stack:
        made = Cluster(server, LocalClient(store), server.write_kubeconfig(tmp_path / "kubeconfig"), stack)
        made.node()
        yield made


@pytest.fixture
def eventually() -> Callable[[Callable[[], Any]], Any]:
    """Waits until something becomes true."""
    return wait
