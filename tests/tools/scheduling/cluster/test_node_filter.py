from __future__ import annotations

from fractions import Fraction

import pytest

from dra_sdk.tools.scheduling.allocator import AllocatedState, AllocationError, Allocator, Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.node_filter import (
    CandidateNodes,
    FreeResources,
    NodeFilter,
    NodeFit,
    NodeRejection,
    rejection_reason,
)
from dra_sdk.tools.scheduling.cluster.pod_requirements import requirements_of
from dra_sdk.tools.scheduling.cluster.snapshot import object_key
from tests.tools.scheduling.allocator.build import of_1_37
from tests.tools.scheduling.cluster.objects import (
    allocated,
    claim,
    cluster,
    device_class,
    gpus,
    node,
    nodes_of,
    parsed,
    pod,
    pod_requesting,
    request,
    template,
)


def free_resources(**allocatable):
    amounts = {key: str(value) for key, value in allocatable.items()}
    return FreeResources([node("a", allocatable=amounts), node("open")])


def test_a_node_fills_up():
    free = free_resources(cpu=2, memory="1Gi", pods=2)
    assert free.missing_resources("a", {"cpu": Fraction(2)}, ()) == []
    free.add_pod("a", {"cpu": Fraction(3, 2)})
    assert free.missing_resources("a", {"cpu": Fraction(1), "memory": Fraction(2**30)}, ()) == ["cpu"]
    assert free.missing_resources("a", {"cpu": Fraction(1, 2)}, ()) == []
    free.add_pod("a", {})
    assert free.missing_resources("a", {}, ()) == ["pods"]


def test_extended_resources_of_device_plugins():
    free = free_resources(**{"a.b/c": 1, "a.b/none": 0})
    assert free.has_device_plugin("a", "a.b/c")
    assert not free.has_device_plugin("a", "a.b/none")
    assert not free.has_device_plugin("open", "a.b/c")
    assert free.missing_resources("a", {"a.b/c": Fraction(2)}, ()) == ["a.b/c"]
    assert free.missing_resources("a", {"a.b/c": Fraction(2)}, {"a.b/c"}) == []
    assert free.missing_resources("open", {"a.b/c": Fraction(1)}, ()) == ["a.b/c"]
    assert free.missing_resources("open", {"cpu": Fraction(1000)}, ()) == []


TAINTED = node("a", taints=[{"key": "gpu", "value": "yes", "effect": "NoSchedule"}])


def required(*requirements, fields=()):
    term = {"matchExpressions": list(requirements), "matchFields": list(fields)}
    selector = {"nodeSelectorTerms": [term]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": selector}}


def rejection(where, **spec):
    return rejection_reason(parsed(pod("p", **spec)), where)


@pytest.mark.parametrize(
    ("where", "spec", "expected"),
    [
        (node("a"), {}, ""),
        (node("a", unschedulable=True), {}, "cordoned"),
        (node("a", unschedulable=True), {"tolerations": [{"operator": "Exists"}]}, ""),
        (TAINTED, {}, "taint gpu=yes:NoSchedule not tolerated"),
        (TAINTED, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, ""),
        (TAINTED, {"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoSchedule"}]}, ""),
        (TAINTED, {"tolerations": [{"key": "gpu", "value": "no"}]}, "taint gpu=yes:NoSchedule not tolerated"),
        (TAINTED, {"tolerations": [{"key": "gpu", "value": "yes", "effect": "NoExecute"}]}, "taint gpu=yes:NoSchedule"),
        (TAINTED, {"tolerations": [{"key": "cpu", "operator": "Exists"}]}, "taint gpu=yes:NoSchedule not tolerated"),
        (node("a", taints=[{"key": "x", "effect": "NoExecute"}]), {}, "taint x:NoExecute not tolerated"),
        (node("a", taints=[{"key": "x", "effect": "PreferNoSchedule"}]), {}, ""),
        (node("a", labels={"zone": "1"}), {"nodeSelector": {"zone": "1"}}, ""),
        (node("a", labels={"zone": "1"}), {"nodeSelector": {"zone": "2"}}, "not selected by nodeSelector zone=2"),
        (node("a"), {"nodeSelector": {"kubernetes.io/hostname": "a"}}, ""),
        (
            node("a", labels={"cores": "8"}),
            {"affinity": required({"key": "cores", "operator": "Gt", "values": ["4"]})},
            "",
        ),
        (
            node("a"),
            {"affinity": required({"key": "cores", "operator": "Exists"})},
            "not selected by affinity cores Exists",
        ),
        (
            node("a"),
            {"affinity": required(fields=[{"key": "metadata.name", "operator": "In", "values": ["b"]}])},
            "not selected by affinity metadata.name In (b)",
        ),
        (node("a"), {"affinity": {"podAffinity": {}}}, ""),
    ],
)
def test_rejection_reason(where, spec, expected):
    assert rejection(where, **spec).startswith(expected)
    assert bool(rejection(where, **spec)) == bool(expected)


def test_an_invalid_selector_is_an_error():
    with pytest.raises(AllocationError, match="Near"):
        rejection(node("a"), affinity=required({"key": "x", "operator": "Near", "values": ["y"]}))


FEATURES_1_36 = SchedulerFeatures()
CLASSES = {"gpu": device_class(extendedResourceName="example.com/gpu")}


def check(raw_pod, *claims, where=None, slices=None, features=FEATURES_1_36):
    where = where or node("node-a")
    inventory = Inventory(slices or [gpus("node-a", "gpu-0")], features)
    checker = NodeFilter(Allocator(inventory, CLASSES), AllocatedState.of(claims), FreeResources([where]))
    needed = requirements_of(
        parsed(raw_pod), {object_key(claim): claim for claim in claims}, CLASSES, {"example.com/gpu": "gpu"}
    )
    return checker.check(needed, where)


def test_a_node_that_fits():
    checked = check(pod("p", claims=["c"]), claim("c"))
    assert isinstance(checked, NodeFit)
    assert checked.allocations["c"]["devices"]["results"][0]["device"] == "gpu-0"


def test_a_pod_without_claims_needs_no_devices():
    assert check(pod("p")) == NodeFit("node-a")


def test_an_extended_resource_without_a_device_plugin_becomes_a_claim():
    checked = check(pod_requesting("p", example__com_gpu=1))
    assert isinstance(checked, NodeFit)
    assert list(checked.allocations) == ["extended resources"]
    plugin = node("node-a", allocatable={"example.com/gpu": "1"})
    assert check(pod_requesting("p", example__com_gpu=1), where=plugin) == NodeFit("node-a")


@pytest.mark.parametrize(
    ("made", "claims", "where", "expected"),
    [
        (pod("p"), (), node("node-a", unschedulable=True), NodeRejection("cordoned")),
        (pod_requesting("p", cpu=2), (), node("node-a", allocatable={"cpu": "1"}), NodeRejection("not enough cpu")),
        (
            pod("p", claims=["c"]),
            (allocated(claim("c"), "gpu-0", on="node-b"),),
            None,
            NodeRejection("claim c allocated elsewhere", ["c"]),
        ),
        (pod("p", claims=["c"]), (claim("c", request(count=2)),), None, NodeRejection()),
    ],
)
def test_rejections(made, claims, where, expected):
    assert check(made, *claims, where=where) == expected


def test_an_invalid_pool_rejects_only_its_node():
    twice = gpus("node-a", "gpu-0", "gpu-0")
    checked = check(pod("p", claims=["c"]), claim("c"), slices=[twice])
    assert isinstance(checked, NodeRejection)
    assert checked.reason.startswith("invalid resource pools were encountered")


def test_a_selector_that_fails_is_an_error():
    broken = claim("c", request(expression='device.attributes["gpu.example.com"].missing == 1'))
    with pytest.raises(AllocationError, match="no such key: missing"):
        check(pod("p", claims=["c"]), broken)


def test_a_claim_whose_devices_skip_operations_needs_a_node_that_supports_it():
    """Since 1.37, and whether the gate is still on or not."""
    held = allocated(claim("c"), "gpu-0", on="node-a")
    for result in held["status"]["allocation"]["devices"]["results"]:
        result["skipNodeOperations"] = ["*"]
    able = node("node-a") | {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    made = pod("p", claims=["c"])
    assert check(made, held, features=of_1_37()) == NodeRejection("claim c allocated elsewhere", ["c"])
    assert check(made, held, features=of_1_37(), where=able) == NodeFit("node-a")
    assert check(made, held) == NodeFit("node-a")


NODES = {raw_node["metadata"]["name"]: raw_node for raw_node in map(node, "abc")}


def node_filter():
    return NodeFilter(
        Allocator(Inventory([]), {"gpu": device_class()}),
        AllocatedState(),
        FreeResources(NODES.values()),
    )


def requirements():
    return requirements_of(parsed(pod("p", claims=["x"])), {("default", "x"): claim("x")}, {"gpu": device_class()}, {})


def test_rejected_nodes_are_not_tried_again():
    candidates = CandidateNodes(NODES)
    assert [raw_node["metadata"]["name"] for raw_node in candidates] == ["a", "b", "c"]
    candidates.reject("b", NodeRejection("cordoned"))
    candidates.reject("a", NodeRejection("claim x allocated elsewhere", ["x"]))
    assert [raw_node["metadata"]["name"] for raw_node in candidates] == ["c"]
    assert list(candidates.unusable_claims) == ["x"]


def test_reasons_are_counted_the_most_frequent_first():
    candidates = CandidateNodes(NODES)
    candidates.reject("b", NodeRejection("cordoned"))
    candidates.reject("a", NodeRejection())
    candidates.reject("c", NodeRejection())
    expected = "0 of 3 nodes: no devices for claim x on 2 nodes; cordoned on 1 node"
    assert candidates.summary(requirements(), node_filter()) == expected
    assert candidates.summary(requirements(), node_filter()) == expected
    assert CandidateNodes({}).summary(requirements(), node_filter()) == "there are no nodes"


def test_equivalent_pods_try_each_full_node_once(monkeypatch):
    tried = []
    allocate = Allocator.allocate

    def counting(self, where, claims, allocated):
        tried.append(where["metadata"]["name"])
        return allocate(self, where, claims, allocated)

    monkeypatch.setattr(Allocator, "allocate", counting)
    names = [f"node-{number:03}" for number in range(100)]  # in smaller clusters every node is tried each time
    pods = [pod(f"pod-{number:03}", templates=["one"]) for number in range(105)]
    outcome = schedule(cluster(*map(node, names), *(gpus(name, "gpu-0") for name in names), template("one"), *pods))
    assert sum(where is not None for where in nodes_of(outcome).values()) == 100
    assert len(tried) == 100 + 100  # once for each pod that fits, and once for each node when it is full
