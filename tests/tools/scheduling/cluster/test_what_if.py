from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import (
    DeviceTarget,
    NodeTemplate,
    WhatIfError,
    add_nodes,
    add_taint,
    drain,
    schedule,
    suggest_nodes,
)
from dra_sdk.tools.scheduling.cluster.what_if import free_node_names
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate
from tests.tools.scheduling.cluster.objects import (
    DRIVER,
    claim,
    cluster,
    devices_of,
    gpus,
    node,
    nodes_of,
    obj,
    pod,
    request,
    template,
)


def copied(snapshot, *names, like="node-a"):
    return add_nodes(snapshot, NodeTemplate.of(snapshot, like), names)


def test_a_copied_node_has_labels_and_devices_with_its_own_names():
    original = node("node-a", labels={"zone": "1"}, allocatable={"cpu": "4"}, unschedulable=True)
    original["spec"] |= {"providerID": "x", "taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    snapshot = copied(cluster(original, gpus("node-a", "gpu-0", "gpu-1")), "node-b")
    added = snapshot.nodes_by_name["node-b"]
    assert added["metadata"]["labels"] == {"kubernetes.io/hostname": "node-b", "zone": "1"}
    assert added["spec"] == {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    assert added["status"] == {"allocatable": {"cpu": "4"}}
    _, slice_ = snapshot.slices
    assert slice_["spec"]["nodeName"] == slice_["spec"]["pool"]["name"] == "node-b"
    assert [device["name"] for device in slice_["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    assert validate(slice_) == []


def test_devices_of_the_copy_can_be_allocated():
    snapshot = copied(cluster(node("node-a"), gpus("node-a", "gpu-0"), *map(claim, "abc")), "node-b", "node-c")
    assert devices_of(schedule(snapshot)) == {"a": ["node-a/gpu-0"], "b": ["node-b/gpu-0"], "c": ["node-c/gpu-0"]}


def test_a_copied_pool_gets_a_unique_name():
    snapshot = copied(cluster(node("node-a"), gpus("node-a", "gpu-0", pool="rack")), "node-b")
    assert [raw_slice["spec"]["pool"]["name"] for raw_slice in snapshot.slices] == ["rack", "rack-node-b"]


def test_devices_that_every_node_can_use_are_not_copied():
    shared = gpus("x", "gpu-0", nodeName=None, allNodes=True)
    assert len(copied(cluster(node("node-a"), shared), "node-b").slices) == 1


def test_a_hostname_selector_is_copied_and_a_label_selector_is_not():
    def chosen(key, value):
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        return gpus("x", "gpu-0", pool=key, nodeName=None, nodeSelector={"nodeSelectorTerms": [term]})

    name = "kubernetes.io/hostname"
    snapshot = copied(cluster(node("node-a", labels={"zone": "1"}), chosen(name, "node-a"), chosen("zone", "1")), "b")
    added = snapshot.slices[2:]
    assert len(added) == 1
    (requirement,) = added[0]["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"]
    assert requirement == {"key": name, "operator": "In", "values": ["b"]}


def test_devices_with_their_own_node_are_copied_with_their_counters():
    counters = gpus("x", nodeName=None, pool="p", perDeviceNodeSelection=True, count=2, devices=None)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"slots": {"value": "1"}}}]
    both = gpus("x", "gpu-a", "gpu-b", nodeName=None, pool="p", perDeviceNodeSelection=True, count=2)
    consumed = [{"counterSet": "set", "counters": {"slots": {"value": "1"}}}]
    for device, where in zip(both["spec"]["devices"], ("node-a", "node-b"), strict=True):
        device |= {"nodeName": where, "consumesCounters": consumed}
    snapshot = copied(cluster(node("node-a"), node("node-b"), counters, both), "node-c")
    added = [raw_slice["spec"] for raw_slice in snapshot.slices[2:]]
    assert [spec["pool"]["name"] for spec in added] == ["p-node-c", "p-node-c"]
    assert added[0]["sharedCounters"] == counters["spec"]["sharedCounters"]
    assert [(device["name"], device["nodeName"]) for device in added[1]["devices"]] == [("gpu-a", "node-c")]


def test_only_the_newest_generation_of_a_pool_is_copied():
    old, new = gpus("node-a", "old"), gpus("node-a", "new", generation=2, count=3)
    snapshot = copied(cluster(node("node-a"), old, new), "node-b")
    (added,) = snapshot.slices[2:]
    assert added["spec"]["pool"] == {"name": "node-b", "generation": 2, "resourceSliceCount": 3}


def test_equal_nodes_have_the_same_signature():
    def numbered(name, uuid, memory="80Gi", **labels):
        slice_ = gpus(name, "gpu-0")
        slice_["spec"]["devices"][0]["attributes"][f"{DRIVER}/uuid"] = {"string": uuid}
        slice_["spec"]["devices"][0]["capacity"] = {"memory": {"value": memory}}
        return NodeTemplate.of(cluster(node(name, labels=labels), slice_), name).signature

    assert numbered("a", "1") == numbered("b", "2")
    assert numbered("a", "1") != numbered("b", "2", memory="40Gi")
    assert numbered("a", "1") != numbered("b", "2", zone="x")


def test_unknown_and_duplicate_nodes():
    snapshot = cluster(node("node-a"))
    with pytest.raises(WhatIfError, match="there is no node x; nodes are: node-a"):
        NodeTemplate.of(snapshot, "x")
    with pytest.raises(WhatIfError, match="node node-a already exists"):
        copied(snapshot, "node-a")
    assert free_node_names(copied(snapshot, "node-a-new-1"), "node-a", 2) == ["node-a-new-2", "node-a-new-3"]


def test_devices_of_two_nodes_cannot_be_combined():
    wanted = claim("c", request(expression=f'device.attributes["{DRIVER}"].model == "a100"', count=2))
    snapshot = cluster(node("node-a"), gpus("node-a", "gpu-0"), wanted, obj("DeviceClass", "other", {}))
    assert not schedule(copied(snapshot, "node-b")).complete


TAINT = {"key": "broken", "effect": "NoSchedule"}


def tainted(snapshot):
    return [
        f"{raw_slice['spec']['pool']['name']}/{device['name']}"
        for raw_slice in snapshot.slices
        for device in raw_slice["spec"].get("devices", ())
        if device.get("taints")
    ]


SNAPSHOT = cluster(
    node("node-a"), node("node-b"), gpus("node-a", "gpu-0", "gpu-1"), gpus("node-b", "gpu-0"), gpus("node-b", count=2)
)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (DeviceTarget(DRIVER), ["node-a/gpu-0", "node-a/gpu-1", "node-b/gpu-0"]),
        (DeviceTarget(DRIVER, "node-a"), ["node-a/gpu-0", "node-a/gpu-1"]),
        (DeviceTarget(DRIVER, "node-a", "gpu-1"), ["node-a/gpu-1"]),
        (DeviceTarget(DRIVER, None, "gpu-0"), ["node-a/gpu-0", "node-b/gpu-0"]),
    ],
)
def test_devices_are_tainted(target, expected):
    assert tainted(add_taint(SNAPSHOT, target, TAINT)) == expected
    assert tainted(SNAPSHOT) == []


def test_a_taint_replaces_one_with_the_same_key_and_effect():
    target = DeviceTarget(DRIVER, "node-a", "gpu-0")
    once = add_taint(SNAPSHOT, target, TAINT | {"value": "1"})
    twice = add_taint(once, target, TAINT | {"value": "2"})
    assert twice.slices[0]["spec"]["devices"][0]["taints"] == [TAINT | {"value": "2"}]
    assert len(add_taint(twice, target, TAINT | {"effect": "None"}).slices[0]["spec"]["devices"][0]["taints"]) == 2


def test_a_taint_needs_a_device_and_the_feature():
    with pytest.raises(WhatIfError, match=f"there is no device {DRIVER}/node-c/\\*"):
        add_taint(SNAPSHOT, DeviceTarget(DRIVER, "node-c"), TAINT)
    old = cluster(*SNAPSHOT.slices, profile=ServerProfile.of("1.35"))
    with pytest.raises(WhatIfError, match=r"feature gate DRADeviceTaints is off in Kubernetes 1\.35"):
        add_taint(old, DeviceTarget(DRIVER), TAINT)


def test_a_drained_node_is_cordoned_and_its_pods_are_rescheduled():
    before = schedule(
        cluster(*SNAPSHOT.nodes, *SNAPSHOT.slices[:2], template("one"), pod("p", templates=["one"]), claim("free"))
    )
    assert nodes_of(before) == {"p": "node-a"}
    after = schedule(drain(before.snapshot, "node-a"))
    assert nodes_of(after) == {"p": "node-b"}
    assert devices_of(after)["free"] == []
    assert after.unallocated[0].reason == "0 of 2 nodes: cordoned on 1 node; no devices for claim free on 1 node"


def test_pods_of_daemon_sets_and_static_pods_stay():
    owned = [pod(kind, nodeName="node-a") for kind in ("DaemonSet", "Node", "Job")]
    for owned_pod in owned:
        owned_pod["metadata"]["ownerReferences"] = [{"kind": owned_pod["metadata"]["name"], "name": "x", "uid": "u"}]
    done = pod("done", nodeName="node-a") | {"status": {"phase": "Succeeded"}}
    after = drain(cluster(node("node-a"), *owned, done), "node-a")
    left = [pod["metadata"]["name"] for pod in after.pods if "nodeName" in pod["spec"]]
    assert left == ["DaemonSet", "Node", "done"]


def test_draining_an_unknown_node_is_an_error():
    with pytest.raises(WhatIfError, match="there is no node x; nodes are: node-a, node-b"):
        drain(SNAPSHOT, "x")


def pods(count):
    return [pod(f"p{number}", templates=["one"]) for number in range(count)]


def keys(*names):
    return tuple(("default", name) for name in names)


def test_no_suggestion_if_everything_is_placed():
    assert suggest_nodes(schedule(cluster(node("a"), gpus("a", "gpu-0"), claim("c")))) == []


def test_the_number_of_nodes_that_would_help():
    outcome = schedule(cluster(node("a"), gpus("a", "gpu-0", "gpu-1"), template("one"), *pods(7)))
    (found,) = suggest_nodes(outcome)
    assert (found.like, found.nodes, found.left) == ("a", 3, ())
    assert found.placed == keys("p2", "p3", "p4", "p5", "p6")


def test_one_node_of_each_kind_is_tried_and_the_best_comes_first():
    small = [node(name) for name in ("a", "b")] + [gpus("a", "gpu-0"), gpus("b", "gpu-0")]
    large = [node("c"), gpus("c", "gpu-0", "gpu-1")]
    outcome = schedule(cluster(*small, *large, template("one"), *pods(6)))
    assert [(suggestion.like, suggestion.nodes) for suggestion in suggest_nodes(outcome)] == [("c", 1), ("a", 2)]


def test_a_node_that_helps_only_some():
    big = claim("big", request(count=9))
    outcome = schedule(cluster(node("a"), gpus("a", "gpu-0"), template("one"), *pods(2), big))
    (found,) = suggest_nodes(outcome)
    assert (found.nodes, found.placed, found.left) == (1, keys("p1"), keys("big"))


def test_no_node_that_helps():
    assert suggest_nodes(schedule(cluster(node("a"), gpus("a", "gpu-0"), claim("c", request(count=9))))) == []
    assert suggest_nodes(schedule(cluster(claim("c")))) == []


def test_nodes_can_be_copied_from_another_snapshot():
    healthy = cluster(node("a"), gpus("a", "gpu-0"), claim("c"))
    broken = gpus("a", "gpu-0")
    broken["spec"]["devices"][0]["taints"] = [{"key": "broken", "effect": "NoSchedule"}]
    outcome = schedule(healthy.with_objects([broken]))
    assert suggest_nodes(outcome) == []
    assert [suggestion.like for suggestion in suggest_nodes(outcome, healthy)] == ["a"]
