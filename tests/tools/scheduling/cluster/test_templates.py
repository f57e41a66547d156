from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import Template, WhatIfError, add_nodes, schedule
from dra_sdk.tools.scheduling.cluster.templates import free_names
from dra_sdk.wire.validation import validate
from tests.tools.scheduling.cluster.objects import DRIVER, claim, cluster, devices_of, gpus, node, obj, request


def copied(snapshot, *names, like="node-a"):
    return add_nodes(snapshot, Template.of(snapshot, like), names)


def test_a_copy_has_the_nodes_labels_and_devices_under_its_own_names():
    original = node("node-a", labels={"zone": "1"}, allocatable={"cpu": "4"}, unschedulable=True)
    original["spec"] |= {"providerID": "x", "taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    snapshot = copied(cluster(original, gpus("node-a", "gpu-0", "gpu-1")), "node-b")
    added = snapshot.nodes_by_name["node-b"]
    assert added["metadata"]["labels"] == {"kubernetes.io/hostname": "node-b", "zone": "1"}
    assert added["spec"] == {"taints": [{"key": "gpu", "effect": "NoSchedule"}]}
    assert added["status"] == {"allocatable": {"cpu": "4"}}
    _, slice_ = snapshot.slices
    assert slice_["spec"]["nodeName"] == slice_["spec"]["pool"]["name"] == "node-b"
    assert [each["name"] for each in slice_["spec"]["devices"]] == ["gpu-0", "gpu-1"]
    assert validate(slice_) == []


def test_devices_of_the_copy_can_be_allocated():
    snapshot = copied(cluster(node("node-a"), gpus("node-a", "gpu-0"), *map(claim, "abc")), "node-b", "node-c")
    assert devices_of(schedule(snapshot)) == {"a": ["node-a/gpu-0"], "b": ["node-b/gpu-0"], "c": ["node-c/gpu-0"]}


def test_a_pool_that_is_not_named_after_its_node_gets_a_name_of_its_own():
    snapshot = copied(cluster(node("node-a"), gpus("node-a", "gpu-0", pool="rack")), "node-b")
    assert [each["spec"]["pool"]["name"] for each in snapshot.slices] == ["rack", "rack-node-b"]


def test_devices_that_every_node_can_use_are_not_copied():
    shared = gpus("x", "gpu-0", nodeName=None, allNodes=True)
    assert len(copied(cluster(node("node-a"), shared), "node-b").slices) == 1


def test_a_selector_of_the_node_alone_is_renamed_one_of_its_labels_stays():
    def chosen(key, value):
        term = {"matchExpressions": [{"key": key, "operator": "In", "values": [value]}]}
        return gpus("x", "gpu-0", pool=key, nodeName=None, nodeSelector={"nodeSelectorTerms": [term]})

    name = "kubernetes.io/hostname"
    snapshot = copied(cluster(node("node-a", labels={"zone": "1"}), chosen(name, "node-a"), chosen("zone", "1")), "b")
    added = snapshot.slices[2:]
    assert len(added) == 1
    (requirement,) = added[0]["spec"]["nodeSelector"]["nodeSelectorTerms"][0]["matchExpressions"]
    assert requirement == {"key": name, "operator": "In", "values": ["b"]}


def test_devices_with_a_node_of_their_own_come_along_with_their_counters():
    counters = gpus("x", nodeName=None, pool="p", perDeviceNodeSelection=True, count=2, devices=None)
    counters["spec"]["sharedCounters"] = [{"name": "set", "counters": {"slots": {"value": "1"}}}]
    both = gpus("x", "gpu-a", "gpu-b", nodeName=None, pool="p", perDeviceNodeSelection=True, count=2)
    consumed = [{"counterSet": "set", "counters": {"slots": {"value": "1"}}}]
    for device, where in zip(both["spec"]["devices"], ("node-a", "node-b"), strict=True):
        device |= {"nodeName": where, "consumesCounters": consumed}
    snapshot = copied(cluster(node("node-a"), node("node-b"), counters, both), "node-c")
    added = [each["spec"] for each in snapshot.slices[2:]]
    assert [each["pool"]["name"] for each in added] == ["p-node-c", "p-node-c"]
    assert added[0]["sharedCounters"] == counters["spec"]["sharedCounters"]
    assert [(each["name"], each["nodeName"]) for each in added[1]["devices"]] == [("gpu-a", "node-c")]


def test_only_the_newest_generation_is_copied_and_an_incomplete_pool_stays_incomplete():
    old, new = gpus("node-a", "old"), gpus("node-a", "new", generation=2, count=3)
    snapshot = copied(cluster(node("node-a"), old, new), "node-b")
    (added,) = snapshot.slices[2:]
    assert added["spec"]["pool"] == {"name": "node-b", "generation": 2, "resourceSliceCount": 3}


def test_a_node_of_which_only_the_slices_are_known():
    found = Template.of_slices("node-a", [gpus("node-a", "gpu-0"), gpus("node-b", "gpu-0")])
    kinds = [each["kind"] for each in found.copies("node-c")]
    assert kinds == ["Node", "ResourceSlice"]


def test_nodes_of_the_same_make_have_the_same_signature():
    def numbered(name, uuid, memory="80Gi", **labels):
        slice_ = gpus(name, "gpu-0")
        slice_["spec"]["devices"][0]["attributes"][f"{DRIVER}/uuid"] = {"string": uuid}
        slice_["spec"]["devices"][0]["capacity"] = {"memory": {"value": memory}}
        return Template.of(cluster(node(name, labels=labels), slice_), name).signature

    assert numbered("a", "1") == numbered("b", "2")
    assert numbered("a", "1") != numbered("b", "2", memory="40Gi")
    assert numbered("a", "1") != numbered("b", "2", zone="x")


def test_what_is_not_there_and_what_is_there_already():
    snapshot = cluster(node("node-a"))
    with pytest.raises(WhatIfError, match="there is no node x; nodes are: node-a"):
        Template.of(snapshot, "x")
    with pytest.raises(WhatIfError, match="there is a node node-a already"):
        copied(snapshot, "node-a")
    assert free_names(copied(snapshot, "node-a-new-1"), "node-a", 2) == ["node-a-new-2", "node-a-new-3"]


def test_a_claim_by_attribute_of_the_copied_devices():
    wanted = claim("c", request(expression=f'device.attributes["{DRIVER}"].model == "a100"', count=2))
    snapshot = cluster(node("node-a"), gpus("node-a", "gpu-0"), wanted, obj("DeviceClass", "other", {}))
    assert not schedule(copied(snapshot, "node-b")).complete
