from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.claim_controller import FINALIZER
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import (
    DRIVER,
    allocated,
    claim,
    cluster,
    device_class,
    devices_of,
    gpus,
    node,
    nodes_of,
    pod,
    pod_requesting,
    request,
    template,
)

TWO_NODES = (node("node-a"), node("node-b"), gpus("node-a", "gpu-0"), gpus("node-b", "gpu-0"))


def placed(*objects, **more):
    return schedule(cluster(*objects, **more))


def reason(outcome, name="p"):
    return outcome.pods_by_key["default", name].reason


def test_pods_fill_the_nodes_in_order():
    outcome = placed(*TWO_NODES, template("one"), *(pod(name, templates=["one"]) for name in "pqr"))
    assert nodes_of(outcome) == {"p": "node-a", "q": "node-b", "r": None}
    assert reason(outcome, "r") == "0 of 2 nodes: no devices for claim one on 2 nodes"
    assert not outcome.complete
    assert [placement.pod[1] for placement in outcome.unplaced] == ["r"]


def test_the_snapshot_after_scheduling():
    outcome = placed(*TWO_NODES, claim("c"), pod("p", claims=["c"]))
    (held,) = outcome.snapshot.claims
    assert held["metadata"]["finalizers"] == [FINALIZER]
    assert held["status"]["reservedFor"] == [{"resource": "pods", "name": "p", "uid": "p-uid"}]
    (result,) = held["status"]["allocation"]["devices"]["results"]
    assert (result["request"], result["pool"], result["device"]) == ("gpu", "node-a", "gpu-0")
    assert outcome.snapshot.pods[0]["spec"]["nodeName"] == "node-a"
    assert outcome.complete


def test_scheduling_again_changes_nothing():
    first = placed(*TWO_NODES, template("one"), claim("free"), pod("p", templates=["one"]))
    second = schedule(first.snapshot)
    assert second.snapshot == first.snapshot
    assert nodes_of(second) == nodes_of(first)
    assert second.pods[0].running
    assert first.pods[0].scheduled


def test_the_outcome_is_deterministic():
    shares = gpus("node-a", "gpu-0")
    shares["spec"]["devices"][0] |= {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "8Gi"}}}
    objects = (node("node-a"), shares, claim("a", request(capacity={"requests": {"memory": "1Gi"}})))
    assert placed(*objects).snapshot == placed(*objects).snapshot


def test_higher_priorities_come_first_then_older_pods():
    one = (node("node-a"), gpus("node-a", "gpu-0"), template("one"))
    late = pod("late", templates=["one"])
    late["metadata"]["creationTimestamp"] = "2026-01-02T00:00:00Z"
    early = pod("early", templates=["one"])
    early["metadata"]["creationTimestamp"] = "2026-01-01T00:00:00Z"
    new = pod("new", templates=["one"])
    assert nodes_of(placed(*one, new, late, early)) == {"new": None, "late": None, "early": "node-a"}
    important = pod("important", templates=["one"], priority=10)
    assert nodes_of(placed(*one, early, important))["important"] == "node-a"
    system = pod("system", templates=["one"], priorityClassName="system-node-critical")
    assert nodes_of(placed(*one, important, system))["system"] == "node-a"


def test_pods_share_a_claim_and_follow_it_to_its_node():
    outcome = placed(*TWO_NODES, allocated(claim("c"), "gpu-0", on="node-b"), pod("p", claims=["c"]))
    assert nodes_of(outcome) == {"p": "node-b"}
    two = placed(*TWO_NODES, claim("c"), pod("p", claims=["c"]), pod("q", claims=["c"]))
    assert nodes_of(two) == {"p": "node-a", "q": "node-a"}
    assert [consumer["name"] for consumer in two.snapshot.claims[0]["status"]["reservedFor"]] == ["p", "q"]


def test_a_claim_that_others_use_keeps_its_node():
    used = allocated(claim("c"), "gpu-0", on="node-b", pods=["other"])
    outcome = placed(*TWO_NODES, used, pod("p", claims=["c"], nodeSelector={"kubernetes.io/hostname": "node-a"}))
    assert (
        reason(outcome) == "0 of 2 nodes: claim c allocated elsewhere on 1 node; "
        "not selected by nodeSelector kubernetes.io/hostname=node-a on 1 node"
    )


def test_an_unused_claim_is_reallocated_where_the_pod_can_run():
    unused = allocated(claim("c"), "gpu-0", on="node-b")
    outcome = placed(*TWO_NODES, unused, pod("p", claims=["c"], nodeSelector={"kubernetes.io/hostname": "node-a"}))
    assert nodes_of(outcome) == {"p": "node-a"}
    assert devices_of(outcome) == {"c": ["node-a/gpu-0"]}


def test_a_pod_with_node_name_bypasses_the_scheduler():
    outcome = placed(*TWO_NODES, template("one"), pod("p", templates=["one"], nodeName="node-a"))
    assert nodes_of(outcome) == {"p": None}
    assert reason(outcome).startswith("spec.nodeName bypasses the scheduler, so nothing allocates claim p-")
    running = placed(
        *TWO_NODES, allocated(claim("c"), "gpu-0", pods=["p"]), pod("p", claims=["c"], nodeName="node-a"), pod("q")
    )
    assert nodes_of(running) == {"p": "node-a", "q": "node-a"}
    assert devices_of(running) == {"c": ["node-a/gpu-0"]}


def test_finished_pods_are_ignored():
    done = pod("done", claims=["missing"], nodeName="node-a") | {"status": {"phase": "Failed"}}
    assert placed(*TWO_NODES, done).pods == ()


def test_the_node_with_the_best_alternative_wins():
    plain, special = gpus("node-a", "gpu-0"), gpus("node-b", "gpu-0")
    special["spec"]["devices"][0]["attributes"]["model"] = {"string": "h200"}
    alternatives = [
        {"name": "best", "deviceClassName": "gpu", "selectors": [_model("h200")]},
        {"name": "good", "deviceClassName": "gpu", "selectors": [_model("a100")]},
    ]
    wanted = template("t", {"name": "r", "firstAvailable": alternatives})
    outcome = placed(node("node-a"), node("node-b"), plain, special, wanted, pod("p", templates=["t"]))
    assert nodes_of(outcome) == {"p": "node-b"}
    assert outcome.claims[0].results[0]["request"] == "r/best"


def _model(name):
    return {"cel": {"expression": f'device.attributes["gpu.example.com"].model == "{name}"'}}


def test_a_claim_without_a_pod_is_allocated_as_if_one_used_it():
    outcome = placed(*TWO_NODES, *(claim(name) for name in "abc"))
    assert devices_of(outcome) == {"a": ["node-a/gpu-0"], "b": ["node-b/gpu-0"], "c": []}
    assert [(claim_outcome.node, claim_outcome.hypothetical) for claim_outcome in outcome.claims] == [
        ("node-a", True),
        ("node-b", True),
        (None, True),
    ]
    assert outcome.unallocated[0].reason == "0 of 2 nodes: no devices for claim c on 2 nodes"
    assert "reservedFor" not in outcome.snapshot.claims[0]["status"]
    assert dict(outcome.snapshot.hypothetical) == {("default", "a"): "node-a", ("default", "b"): "node-b"}


def test_pods_come_before_claims_without_one():
    outcome = placed(node("node-a"), gpus("node-a", "gpu-0"), claim("free"), claim("used"), pod("p", claims=["used"]))
    assert devices_of(outcome) == {"free": [], "used": ["node-a/gpu-0"]}


def test_a_claim_without_a_pod_tolerates_taints_but_not_cordoned_nodes():
    tainted = node("node-a", taints=[{"key": "gpu", "effect": "NoSchedule"}])
    assert placed(tainted, gpus("node-a", "gpu-0"), claim("c")).complete
    assert not placed(node("node-a", unschedulable=True), gpus("node-a", "gpu-0"), claim("c")).complete


def test_resources_of_the_node_are_limited():
    small = node("node-a", allocatable={"cpu": "1", "pods": "10"})
    outcome = placed(small, pod_requesting("p", cpu=1), pod_requesting("q", cpu=1), pod_requesting("r"))
    assert nodes_of(outcome) == {"p": "node-a", "q": None, "r": "node-a"}
    assert reason(outcome, "q") == "0 of 1 nodes: not enough cpu on 1 node"


RESOURCE = device_class(extendedResourceName="example.com/gpu")


def test_an_extended_resource_is_allocated_as_devices():
    outcome = placed(
        RESOURCE, node("node-a"), gpus("node-a", "gpu-0", "gpu-1"), pod_requesting("p", example__com_gpu=2)
    )
    assert nodes_of(outcome) == {"p": "node-a"}
    ((name, devices),) = devices_of(outcome).items()
    assert name.startswith("p-extended-resources-")
    assert devices == ["node-a/gpu-0", "node-a/gpu-1"]
    status = outcome.snapshot.pods[0]["status"]["extendedResourceClaimStatus"]
    mapping = {"containerName": "main", "resourceName": "example.com/gpu", "requestName": "container-0-request-0"}
    assert status == {"resourceClaimName": name, "requestMappings": [mapping]}


def test_no_claim_is_made_for_a_resource_of_a_device_plugin():
    plugin = node("node-a", allocatable={"example.com/gpu": "1"})
    outcome = placed(
        RESOURCE, plugin, gpus("node-a", "gpu-0"), *(pod_requesting(name, example__com_gpu=1) for name in "pq")
    )
    assert outcome.claims == ()
    assert nodes_of(outcome) == {"p": "node-a", "q": None}
    assert reason(outcome, "q") == "0 of 1 nodes: not enough example.com/gpu on 1 node"


def test_an_extended_resource_needs_its_feature_gate():
    profile = ServerProfile.of("1.35")
    outcome = placed(
        RESOURCE, node("node-a"), gpus("node-a", "gpu-0"), pod_requesting("p", example__com_gpu=1), profile=profile
    )
    assert reason(outcome) == "0 of 1 nodes: not enough example.com/gpu on 1 node"


def test_a_stale_claim_for_extended_resources_is_replaced():
    first = placed(RESOURCE, node("node-a"), gpus("node-a", "gpu-0"), pod_requesting("p", example__com_gpu=1))
    waiting = first.snapshot.with_objects([pod_requesting("p", example__com_gpu=1)])
    assert len(schedule(waiting).claims) == 1
    assert schedule(waiting).complete


def test_the_reason_names_the_claims_that_do_not_fit():
    both = pod("p", claims=["a", "b"])
    outcome = placed(node("node-a"), gpus("node-a", "gpu-0"), claim("a"), claim("b"), both)
    assert reason(outcome) == "0 of 1 nodes: no devices for claims a, b together on 1 node"
    outcome = placed(node("node-a"), gpus("node-a", "gpu-0"), claim("a"), claim("b", request(count=2)), both)
    assert reason(outcome) == "0 of 1 nodes: no devices for claim b on 1 node"
    resource = pod_requesting("p", example__com_gpu=1)
    assert (
        reason(placed(RESOURCE, node("node-a"), resource)) == "0 of 1 nodes: no devices for example.com/gpu on 1 node"
    )


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([], "there are no nodes"),
        ([node("node-a", unschedulable=True)], "0 of 1 nodes: cordoned on 1 node"),
        (
            [node("node-a"), node("node-b"), gpus("node-b", "gpu-0", count=2)],
            "0 of 2 nodes: no devices for claim c on 2 nodes",
        ),
    ],
)
def test_reasons_for_unscheduled_pods(objects, expected):
    assert reason(placed(*objects, claim("c"), pod("p", claims=["c"]))) == expected


def test_a_claim_with_an_error_affects_only_its_pod():
    broken = claim("c", request(expression='device.attributes["gpu.example.com"].missing == 1'))
    outcome = placed(*TWO_NODES, broken, claim("d"), pod("p", claims=["c"]), pod("q", claims=["d"]))
    assert "no such key: missing" in reason(outcome)
    assert nodes_of(outcome) == {"p": None, "q": "node-a"}


def test_notes_on_unsimulated_features_and_incomplete_pools():
    spread = pod("p", topologySpreadConstraints=[{"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule"}])
    outcome = placed(node("node-a"), gpus("node-a", "gpu-0", count=2), spread)
    assert (
        outcome.notes[0]
        == "pod p: topology spread (spec.topologySpreadConstraints) is not simulated; a cluster may allow fewer nodes"
    )
    assert outcome.notes[1].startswith("pool node-a of driver gpu.example.com is incomplete: ")


def test_an_evicted_pod_is_scheduled_again():
    slices = gpus("node-a", "gpu-0", "gpu-1")
    first = placed(node("node-a"), slices, template("one"), pod("p", templates=["one"]))
    assert list(devices_of(first).values()) == [["node-a/gpu-0"]]
    broken = gpus("node-a", "gpu-0", "gpu-1")
    broken["spec"]["devices"][0]["taints"] = [{"key": "broken", "effect": "NoExecute"}]
    second = schedule(first.snapshot.with_objects([broken]))
    assert list(devices_of(second).values()) == [["node-a/gpu-1"]]
    assert second.evicted["default", "p"].node == "node-a"
    assert second.pods[0].scheduled


def test_in_a_small_cluster_an_error_on_any_node_makes_the_pod_unschedulable():
    """A selector has no answer for a device of node-b. In a large cluster the scheduler stops at enough nodes."""
    lacking = gpus("node-b", "gpu-0", devices=[{"name": "gpu-0"}])
    wanted = claim("c", request(expression='device.attributes["gpu.example.com"].model == "a100"'))
    small = (node("node-a"), node("node-b"), gpus("node-a", "gpu-0"), lacking, wanted, pod("p", claims=["c"]))
    outcome = placed(*small)
    assert nodes_of(outcome) == {"p": None}
    assert "no such key: model" in reason(outcome)
    assert nodes_of(placed(*small, *(node(f"node-{index}") for index in range(98)))) == {"p": "node-a"}


def test_each_search_that_is_given_up_halves_the_limit_of_the_next():
    """So that many claims without a solution have an answer in a time that can be waited for."""
    devices = [f"gpu-{number}" for number in range(40)]
    slices = gpus("node-a", *devices)
    for number, raw_device in enumerate(slices["spec"]["devices"]):
        raw_device["attributes"]["number"] = {"int": number % 7}
    distinct = [{"distinctAttribute": f"{DRIVER}/number"}]
    wanted = [claim(name, *(request(f"r{i}") for i in range(8)), constraints=distinct) for name in "abc"]
    outcome = schedule(cluster(node("node-a"), slices, *wanted, claim("easy")), 80_000)
    reasons = [claim_outcome.reason for claim_outcome in outcome.unallocated]
    given_up = "claim default/{}: the search was given up after {} steps, as kube-scheduler gives up after 10 s"
    expected = [given_up.format(*arguments) for arguments in (("a", 80_000), ("b", 40_000), ("c", 30_000))]
    assert reasons == expected
    assert outcome.claims_by_key["default", "easy"].allocation


def test_a_claim_beside_a_resource_of_plugin_and_class_is_never_bound():
    gpu = device_class("whole", extendedResourceName="example.com/gpu")
    plugin = node("node-a", allocatable={"cpu": "8", "pods": "9", "example.com/gpu": "1"})
    wanted = [{"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}]
    objects = (plugin, gpu, gpus("node-a", "gpu-0"), claim("c"))
    assert nodes_of(placed(*objects, pod("p", containers=wanted))) == {"p": "node-a"}
    outcome = placed(*objects, pod("p", claims=["c"], containers=wanted))
    assert nodes_of(outcome) == {"p": None}
    assert "kube-scheduler fails in PreBind for a claim beside example.com/gpu" in reason(outcome)


def test_a_node_that_lists_its_resources_without_huge_pages_has_none():
    wanted = [{"name": "main", "resources": {"limits": {"hugepages-2Mi": "4Mi", "memory": "1Gi"}}}]
    assert nodes_of(placed(node("n", allocatable={"cpu": "1"}), pod("p", containers=wanted))) == {"p": None}
    assert nodes_of(placed(node("n"), pod("p", containers=wanted))) == {"p": "n"}
