"""Slices of other nodes in the pools of this one: found by the driver, reported once, left as they are."""

from __future__ import annotations

import pytest

from dra_sdk import Device, ResourcePool
from dra_sdk.model import JSON
from dra_sdk.model.device import NodeSelection
from dra_sdk.node.slices import foreign
from dra_sdk.node.slices.foreign import ForeignSlice, ForeignSlices, node_pools
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import statuses
from dra_sdk.tools.simulator.faults import FaultRule, Reject
from tests.node.slices.conftest import DRIVER, NODE, Cluster, pool

ELSEWHERE = NodeSelection(all_nodes=True)


def forged(name: str, node: str | None, of_pool: str, driver: str = DRIVER) -> JSON:
    """A slice in a pool, as whoever has taken over the driver of another node writes it."""
    reach: JSON = {"nodeName": node} if node else {"allNodes": True}
    identity = {"name": of_pool, "generation": 999, "resourceSliceCount": 1}
    spec = {"driver": driver, "pool": identity, "devices": [{"name": "forged"}], **reach}
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


@pytest.fixture
def reported() -> list[ForeignSlice]:
    return []


def looking(cluster: Cluster, reported: list[ForeignSlice], *pools: str) -> ForeignSlices:
    client = cluster.client()
    return ForeignSlices(DRIVER, NODE, lambda: client, lambda: pools or {NODE}, reported.append)


def test_a_slice_in_the_pool_of_this_node_is_reported_once(
    cluster: Cluster, reported: list[ForeignSlice], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.running(pool())
    for item in (
        forged("forged", "node-2", NODE),
        forged("of-all", None, NODE),
        forged("honest", "node-2", "node-2"),
        forged("of-another-driver", "node-2", NODE, "other.example.com"),
    ):
        cluster.local.create("resourceslices", item)
    found = looking(cluster, reported)
    assert [found.look(), found.look()] == [3, 3]
    assert reported == [ForeignSlice("forged", "node-2", NODE), ForeignSlice("of-all", "", NODE)]
    assert caplog.messages == [str(item) for item in reported]
    assert str(reported[0]) == (
        "ResourceSlice forged of node node-2 is in pool node-1 of this node and hides devices of it: "
        "delete it, and find out who wrote it"
    )
    assert "of several nodes is in pool" in str(reported[1])

    cluster.local.delete("resourceslices", "forged")
    found.look()
    cluster.local.create("resourceslices", forged("forged", "node-2", NODE))
    found.look()
    assert [item.name for item in reported] == ["forged", "of-all", "forged"]  # it has come back


def test_many_slices_are_read_page_by_page(cluster: Cluster, reported: list[ForeignSlice]) -> None:
    for number in range(501):
        cluster.local.create("resourceslices", forged(f"honest-{number:03}", "node-2", "node-2"))
    cluster.local.create("resourceslices", forged("last", "node-3", f"{NODE}/cards"))
    assert looking(cluster, reported, f"{NODE}/cards").look() == 502
    assert [item.name for item in reported] == ["last"]


def test_pools_that_several_nodes_reach_are_not_looked_for() -> None:
    pools = [
        pool("a"),
        ResourcePool("b", [Device("x")], node=ELSEWHERE),
        ResourcePool("c", [Device("x", node=ELSEWHERE)]),
        ResourcePool("d", None),  # type: ignore[arg-type]
        ResourcePool("e"),
    ]
    assert node_pools(pools) == {"a", "d", "e"}


def test_it_looks_by_itself_and_survives_a_server_that_is_away(
    cluster: Cluster, reported: list[ForeignSlice], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(foreign, "FIRST_SECONDS", 0.01)
    monkeypatch.setattr(foreign, "SECONDS", 0.01)
    busy = FaultRule(Reject(statuses.too_many_requests(1)), verb="list", resource="resourceslices", times=2)
    cluster.server.faults.add(busy)
    cluster.local.create("resourceslices", forged("forged", "node-2", NODE))
    found = looking(cluster, reported)
    found.start()
    wait(lambda: reported)
    found.stop(LONG)
    assert (busy.hits, [item.name for item in reported]) == (2, ["forged"])
