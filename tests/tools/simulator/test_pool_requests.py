"""ResourcePoolStatusRequests on the embedded cluster: who serves them, what is refused, and when they are answered."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from dra_sdk.model import JSON
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.pool_requests import FIRST_DELAY, REQUESTS, RETRIES
from dra_sdk.tools.simulator.statuses import StatusError
from tests.wire.validation.objects import device, resource_slice

GATE = {"DRAResourcePoolStatus": True}
DRIVER = "gpu.example.com"


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(version="1.37", feature_gates=GATE) as running:
        yield running


def ask(cluster: EmbeddedCluster, name: str = "ask", **spec: Any) -> JSON:
    return cluster.api.create(REQUESTS, {"metadata": {"name": name}, "spec": {"driver": DRIVER, **spec}})


def publish(cluster: EmbeddedCluster, name: str = "slice", **spec: Any) -> None:
    made = resource_slice(device("a"), device("b"), **spec)
    cluster.api.create("resourceslices", {"metadata": {"name": name}, "spec": made["spec"]})


def answered(cluster: EmbeddedCluster, name: str = "ask") -> bool:
    return "status" in cluster.api.get(REQUESTS, name)


def test_a_request_is_answered_once(cluster: EmbeddedCluster) -> None:
    publish(cluster)
    assert "status" not in ask(cluster)
    wait(lambda: answered(cluster))
    first = cluster.api.get(REQUESTS, "ask")
    assert (first["spec"]["limit"], first["status"]["pools"][0]["availableDevices"]) == (100, 2)
    publish(cluster, "another", pool={"name": "node-b", "generation": 1, "resourceSliceCount": 1})
    ask(cluster, "later")
    wait(lambda: answered(cluster, "later"))
    assert cluster.api.get(REQUESTS, "ask") == first
    assert cluster.api.get(REQUESTS, "later")["status"]["poolCount"] == 2


def test_a_request_about_a_pool_that_is_not_complete_waits_and_is_then_forgotten(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert FIRST_DELAY * 2**RETRIES < 1, "the controller gives up soon"
    publish(cluster, pool={"name": "node-a", "generation": 1, "resourceSliceCount": 2})
    ask(cluster)
    ask(cluster, "other", poolName="nowhere")  # answered after the first was given up
    wait(lambda: answered(cluster, "other"))
    assert not answered(cluster)
    publish(cluster, "second", pool={"name": "node-a", "generation": 1, "resourceSliceCount": 2})
    ask(cluster, "again")
    wait(lambda: answered(cluster, "again"))
    assert not answered(cluster), "only a change of the request makes the controller look again"
    cluster.api.patch(REQUESTS, {"metadata": {"labels": {"look": "again"}}}, "ask")
    wait(lambda: answered(cluster))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"driver": ""}, "spec.driver: must be set"),
        ({"poolName": ""}, "spec.poolName: must be set"),
        ({"limit": 0}, "spec.limit: must be 1 to 1000, is 0"),
        ({"limit": 1001}, "spec.limit: must be 1 to 1000, is 1001"),
    ],
)
def test_requests_that_the_server_refuses(cluster: EmbeddedCluster, spec: JSON, message: str) -> None:
    with pytest.raises(StatusError, match=message):
        ask(cluster, **spec)


def test_neither_the_question_nor_the_answer_changes(cluster: EmbeddedCluster) -> None:
    publish(cluster)
    stored = ask(cluster)
    with pytest.raises(StatusError, match="spec: "):
        cluster.api.update(REQUESTS, {**stored, "metadata": {"name": "ask"}, "spec": {"driver": "other.example.com"}})
    wait(lambda: answered(cluster))
    with pytest.raises(StatusError, match="status: "):
        cluster.api.patch(REQUESTS, {"status": {"poolCount": 7}}, "ask", subresource="status")


def test_the_attribute_of_partitions_needs_its_gate(cluster: EmbeddedCluster) -> None:
    assert (
        "defaultPartitionTypeAttribute" not in ask(cluster, defaultPartitionTypeAttribute=f"{DRIVER}/profile")["spec"]
    )


@pytest.mark.parametrize(("version", "gates"), [("1.35", GATE), ("1.37", {})])
def test_servers_that_have_no_such_requests(version: str, gates: dict[str, bool]) -> None:
    with EmbeddedCluster(version=version, feature_gates=gates) as running:
        assert REQUESTS not in {resource.plural for resource in running.store.catalog}
