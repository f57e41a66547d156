from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import Snapshot
from tests.tools.scheduling.cluster.objects import claim, cluster, gpus, node, pod


def test_objects_are_added_or_replaced_and_the_old_snapshot_stays():
    before = Snapshot().having([claim("a"), claim("b")])
    changed = claim("a") | {"status": {"x": 1}}
    after = before.having([changed, claim("c"), node("n")])
    assert [each["metadata"]["name"] for each in after.claims] == ["a", "b", "c"]
    assert after.claims_by_key["default", "a"] is changed
    assert "status" not in before.claims_by_key["default", "a"]
    assert before.nodes == ()
    assert [each["metadata"]["name"] for each in after.without("ResourceClaim", ("default", "b")).claims] == ["a", "c"]


def test_nodes_are_made_up_for_names_that_slices_devices_and_pods_mention():
    per_device = gpus("x", "d", nodeName=None, perDeviceNodeSelection=True)
    per_device["spec"]["devices"][0]["nodeName"] = "node-c"
    snapshot = cluster(
        node("node-a"), gpus("node-a", "g"), gpus("node-b", "g"), per_device, pod("p", nodeName="node-d")
    )
    found, missing = snapshot.with_nodes_of_slices()
    assert missing == ["node-b", "node-c", "node-d"]
    assert list(found.nodes_by_name) == ["node-a", "node-b", "node-c", "node-d"]
    assert found.nodes_by_name["node-b"]["metadata"]["labels"] == {"kubernetes.io/hostname": "node-b"}
    assert found.with_nodes_of_slices() == (found, [])
