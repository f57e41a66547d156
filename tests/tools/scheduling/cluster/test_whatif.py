from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import Target, WhatIfError, add_taint, drain, schedule
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import (
    DRIVER,
    claim,
    cluster,
    devices_of,
    gpus,
    node,
    nodes_of,
    pod,
    template,
)

TAINT = {"key": "broken", "effect": "NoSchedule"}


def tainted(snapshot):
    return [
        f"{each['spec']['pool']['name']}/{device['name']}"
        for each in snapshot.slices
        for device in each["spec"].get("devices", ())
        if device.get("taints")
    ]


SNAPSHOT = cluster(
    node("node-a"), node("node-b"), gpus("node-a", "gpu-0", "gpu-1"), gpus("node-b", "gpu-0"), gpus("node-b", count=2)
)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (Target(DRIVER), ["node-a/gpu-0", "node-a/gpu-1", "node-b/gpu-0"]),
        (Target(DRIVER, "node-a"), ["node-a/gpu-0", "node-a/gpu-1"]),
        (Target(DRIVER, "node-a", "gpu-1"), ["node-a/gpu-1"]),
        (Target(DRIVER, None, "gpu-0"), ["node-a/gpu-0", "node-b/gpu-0"]),
    ],
)
def test_devices_are_tainted(target, expected):
    assert tainted(add_taint(SNAPSHOT, target, TAINT)) == expected
    assert tainted(SNAPSHOT) == []


def test_a_taint_takes_the_place_of_one_with_its_key_and_effect():
    target = Target(DRIVER, "node-a", "gpu-0")
    once = add_taint(SNAPSHOT, target, TAINT | {"value": "1"})
    twice = add_taint(once, target, TAINT | {"value": "2"})
    assert twice.slices[0]["spec"]["devices"][0]["taints"] == [TAINT | {"value": "2"}]
    assert len(add_taint(twice, target, TAINT | {"effect": "None"}).slices[0]["spec"]["devices"][0]["taints"]) == 2


def test_a_taint_needs_a_device_and_a_cluster_that_looks_at_it():
    with pytest.raises(WhatIfError, match=f"there is no device {DRIVER}/node-c/\\*"):
        add_taint(SNAPSHOT, Target(DRIVER, "node-c"), TAINT)
    old = cluster(*SNAPSHOT.slices, profile=ServerProfile.of("1.35"))
    with pytest.raises(WhatIfError, match=r"feature gate DRADeviceTaints is off in Kubernetes 1\.35"):
        add_taint(old, Target(DRIVER), TAINT)


def test_a_drained_node_is_cordoned_and_its_pods_look_for_another():
    before = schedule(
        cluster(*SNAPSHOT.nodes, *SNAPSHOT.slices[:2], template("one"), pod("p", templates=["one"]), claim("free"))
    )
    assert nodes_of(before) == {"p": "node-a"}
    after = schedule(drain(before.snapshot, "node-a"))
    assert nodes_of(after) == {"p": "node-b"}
    assert devices_of(after)["free"] == []
    assert after.unallocated[0].reason == "0 of 2 nodes: cordoned (1); no devices for claim free (1)"


def test_pods_of_daemon_sets_and_static_pods_stay():
    owned = [pod(kind, nodeName="node-a") for kind in ("DaemonSet", "Node", "Job")]
    for each in owned:
        each["metadata"]["ownerReferences"] = [{"kind": each["metadata"]["name"], "name": "x", "uid": "u"}]
    done = pod("done", nodeName="node-a") | {"status": {"phase": "Succeeded"}}
    after = drain(cluster(node("node-a"), *owned, done), "node-a")
    left = [each["metadata"]["name"] for each in after.pods if "nodeName" in each["spec"]]
    assert left == ["DaemonSet", "Node", "done"]


def test_only_a_node_that_is_there_can_be_drained():
    with pytest.raises(WhatIfError, match="there is no node x; nodes are: node-a, node-b"):
        drain(SNAPSHOT, "x")
