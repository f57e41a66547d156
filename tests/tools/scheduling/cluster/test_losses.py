from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import DeviceTarget, WhatIfError, schedule
from dra_sdk.tools.scheduling.cluster.losses import lose_hardware, lose_node
from dra_sdk.tools.scheduling.cluster.what_if import replaced
from tests.tools.scheduling.cluster.objects import DRIVER, claim, cluster, gpus, node, nodes_of, obj, pod, template

COUNTERS = [{"name": "gpu-0", "counters": {"memory": {"value": "4"}}}]


def part(name, counters="", bus=""):
    raw_device = {"name": name, "attributes": {"model": {"string": "a100"}}}
    if counters:
        raw_device["consumesCounters"] = [{"counterSet": counters, "counters": {"memory": {"value": "2"}}}]
    if bus:
        raw_device["attributes"]["resource.kubernetes.io/pciBusID"] = {"string": bus}
    return raw_device


def device_names(snapshot):
    return [device["name"] for raw_slice in snapshot.slices for device in raw_slice["spec"].get("devices") or ()]


def test_a_lost_node_loses_its_devices_and_the_pods_that_belong_to_it():
    two = (node("a"), node("b"), gpus("a", "gpu-0"), gpus("b", "gpu-0"), template("one"))
    outcome = schedule(cluster(*two, pod("p", templates=["one"]), pod("q", templates=["one"]), claim("c")))
    assert nodes_of(outcome) == {"p": "a", "q": "b"}
    daemon = pod("d", nodeName="a")
    daemon["metadata"]["ownerReferences"] = [{"kind": "DaemonSet", "name": "d", "controller": True}]
    after = schedule(lose_node(outcome.snapshot.with_objects([daemon]), "a"))
    assert nodes_of(after) == {"p": None, "q": "b"}
    assert list(after.snapshot.nodes_by_name) == ["b"]
    with pytest.raises(WhatIfError, match="there is no node x; nodes are: a, b"):
        lose_node(outcome.snapshot, "x")


def test_broken_hardware_is_lost_with_its_partitions():
    devices = [part("gpu-0", "gpu-0"), part("half-0", "gpu-0"), part("gpu-1", bus="0000:01:00.0")]
    devices += [part("vfio-1", bus="0000:01:00.0"), part("gpu-2", "gpu-2", "0000:02:00.0")]
    snapshot = cluster(node("a"), gpus("a", devices=devices), gpus("b", "gpu-0"))
    assert device_names(lose_hardware(snapshot, DeviceTarget(DRIVER, "a", "half-0"))) == [
        "gpu-1",
        "vfio-1",
        "gpu-2",
        "gpu-0",
    ]
    assert device_names(lose_hardware(snapshot, DeviceTarget(DRIVER, "a", "gpu-1"))) == [
        "gpu-0",
        "half-0",
        "gpu-2",
        "gpu-0",
    ]
    assert device_names(lose_hardware(snapshot, DeviceTarget(DRIVER))) == []
    with pytest.raises(WhatIfError, match=f"there is no device {DRIVER}/a/gpu-9"):
        lose_hardware(snapshot, DeviceTarget(DRIVER, "a", "gpu-9"))


def test_pods_and_claims_with_broken_hardware_start_again():
    objects = (node("a"), gpus("a", "gpu-0", "gpu-1", "gpu-2"), claim("c"), claim("unused"))
    outcome = schedule(cluster(*objects, pod("p", claims=["c"]), pod("q")))
    changed = lose_hardware(outcome.snapshot, DeviceTarget(DRIVER, "a", "gpu-0"))
    assert "nodeName" not in changed.pods_by_key["default", "p"]["spec"]
    assert changed.pods_by_key["default", "q"]["spec"]["nodeName"] == "a"
    after = schedule(changed)
    assert after.complete
    assert "gpu-0" not in {result["device"] for claim in after.claims for result in claim.results}


def test_objects_replace_those_of_their_name():
    outcome = schedule(cluster(node("a"), gpus("a", "gpu-0"), claim("c"), pod("p", claims=["c"])))
    without = gpus("a", "gpu-0") | {"spec": gpus("a", "gpu-0")["spec"] | {"devices": []}}
    after = replaced(outcome.snapshot, cluster(without, pod("p", claims=["c", "d"]), obj("Node", "b", {})))
    assert device_names(after) == []
    assert list(after.nodes_by_name) == ["a", "b"]
    assert nodes_of(schedule(after)) == {"p": None}
