"""Copies of collections that follow the API server, with the embedded one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import ApiError
from dra_sdk.kube import paths
from dra_sdk.kube.client import KubeClient
from dra_sdk.kube.collections import Collections
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import EmbeddedCluster
from tests.kube.scripted import Answer, Asked, ScriptedServer

NODES = paths.nodes()


@pytest.fixture
def cluster(socket_dir: Path) -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster("node-a", directory=socket_dir) as found:
        yield found


@pytest.fixture
def followed(cluster: EmbeddedCluster) -> Iterator[Collections]:
    client = KubeClient.connect(cluster.kubeconfig)
    found = Collections(client, [NODES, paths.pods()])
    try:
        found.start()
        yield found
    finally:
        found.close()
        client.close()


def names(collections: Collections) -> list[str]:
    return [each["metadata"]["name"] for each in collections.items(NODES)]


def test_objects_that_come_and_go_are_told(cluster: EmbeddedCluster, followed: Collections) -> None:
    assert names(followed) == ["node-a"]
    cluster.create_node("node-b")
    assert followed.wait(LONG, calm=0.01, at_most=1)
    assert names(followed) == ["node-a", "node-b"]
    cluster.api.delete("nodes", "node-b")
    assert followed.wait(LONG, calm=0.01, at_most=1)
    assert names(followed) == ["node-a"]
    assert not followed.wait(0.05, calm=0.01, at_most=1)


def test_a_heartbeat_is_no_change(cluster: EmbeddedCluster, followed: Collections) -> None:
    node = cluster.api.get("nodes", "node-a")
    condition = {"type": "Ready", "status": "True"}
    for second in ("01", "02"):
        conditions = [condition | {"lastHeartbeatTime": f"2026-01-01T00:00:{second}Z"}]
        node = cluster.api.get("nodes", "node-a")
        node["status"] = {**node.get("status", {}), "conditions": conditions}
        cluster.api.update_status("nodes", node)
        version = cluster.api.get("nodes", "node-a")["metadata"]["resourceVersion"]
        wait(lambda version=version: followed.items(NODES)[0]["metadata"]["resourceVersion"] == version)
        assert followed.wait(0, calm=0.01, at_most=1) is (second == "01")


def test_a_watch_that_ends_is_opened_again(cluster: EmbeddedCluster, followed: Collections) -> None:
    wait(lambda: cluster.server.open_watches == 2)
    cluster.server.close_watches(reset=True)
    cluster.create_node("node-b")
    assert followed.wait(LONG, calm=0.01, at_most=1)
    assert names(followed) == ["node-a", "node-b"]


def answers(refuse: Callable[[Asked], Answer | None]) -> Callable[[Asked], Answer]:
    def answer(asked: Asked) -> Answer:
        listed: dict[str, Any] = {"kind": "NodeList", "metadata": {"resourceVersion": "5"}, "items": []}
        return refuse(asked) or Answer(listed)

    return answer


def refusal(code: int) -> Answer:
    return Answer({"kind": "Status", "code": code, "reason": "x", "message": "no"}, status=code)


def test_a_watch_that_is_forbidden_ends_the_wait(
    serve: Callable[[Callable[[Asked], Answer]], ScriptedServer], connect: Callable[..., KubeClient]
) -> None:
    server = serve(answers(lambda asked: refusal(403) if "watch" in asked.query else None))
    collections = Collections(connect(server.url), [NODES])
    collections.start()
    try:
        with pytest.raises(ApiError, match="watch nodes: the API server answered 403"):
            collections.wait(LONG, calm=0.01, at_most=1)
    finally:
        collections.close()


def test_after_gone_the_collection_is_listed_again(
    serve: Callable[[Callable[[Asked], Answer]], ScriptedServer], connect: Callable[..., KubeClient]
) -> None:
    server = serve(answers(lambda asked: refusal(410) if "watch" in asked.query else None))
    collections = Collections(connect(server.url), [NODES])
    collections.start()
    try:
        wait(lambda: len([each for each in server.asked if "watch" not in each.query]) >= 2)
        assert not collections.wait(0, calm=0.01, at_most=1), "the list is the same"
    finally:
        collections.close()
    assert not any("watch" in each.query for each in server.asked[:1])
