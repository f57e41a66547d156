from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.explain import Explainer, ExplainError, SuggestedChange, explain
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem, ScheduledCluster
from dra_sdk.tools.scheduling.explain.explainer import suggest_changes
from dra_sdk.tools.scheduling.explain.node_inspection import group_nodes, inspect_nodes
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.clusters import GPU, NIC, bare_node, claim, cluster, exactly, gpus, obj, pod, with_devices
from tests.tools.scheduling.explain import situations

KEY = ("default", "c")


def edited(snapshot: Snapshot, change: SuggestedChange) -> Snapshot:
    """The snapshot with a change of the claim made by its field path, as somebody would who read the explanation."""
    obj = json.loads(json.dumps(snapshot.claims_by_key[KEY]))
    parts = re.findall(r"\[(.+?)\]|(\w+)", change.field)
    *path, key = [int(quoted) if quoted.isdecimal() else quoted or plain for quoted, plain in parts]
    at = obj
    for step in path:
        at = at[step]
    if change.after is None:
        del at[key]
    else:
        at[key] = change.after
    return snapshot.with_objects([obj])


@pytest.mark.parametrize("name", situations.FAILING)
def test_every_edit_of_the_claim_helps_when_it_is_made(name: str):
    snapshot = situations.FAILING[name]()
    explanation = explain(snapshot, KEY)
    assert not explanation.satisfiable
    for change in explanation.changes:
        if change.object == "ResourceClaim c":
            after = schedule(edited(snapshot, change))
            assert after.claims_by_key[KEY].allocation, change.text


@pytest.mark.parametrize(
    ("name", "summary", "changes"),
    [
        ("memory", "on any of 7 nodes: request gpu: none of 4 devices passes selector 0 (memory is 40Gi)",
         ['request gpu, selector 0: change "80Gi" to "40Gi"']),
        ("taken", "on any of 2 nodes: request gpu: 1 of 2 free (1 in use), 2 needed",
         ["request gpu: 1 device instead of 2", "claim o releases its devices (gpu-0 on n2)",
          "one more node like n2"]),
        ("tainted", ("on n1: request gpu: none of 2 devices is without untolerated taints "
         "(2 with taint gpu.nvidia.com/xid=79:NoExecute, which is not tolerated)"),
         ["request gpu: tolerate taint gpu.nvidia.com/xid=79:NoExecute",
          "taint gpu.nvidia.com/xid=79:NoExecute is removed from gpu-0, gpu-1 (on n1)"]),
        ("aligned", ("on n1: constraint 0 (matchAttribute resource.kubernetes.io/pcieRoot): "
         "no value is shared by enough devices"),
         ["remove constraint 0 (matchAttribute resource.kubernetes.io/pcieRoot)",
          "claim old-gpu-0 releases its devices (gpu-0 on n1)", "one more node like n1"]),
        ("counters", "on n1: request whole: none of 2 devices has enough counters left (2 short of counter memory)",
         ['request whole, selector 0: change "7g.40gb" to "1g.5gb"',
          "claim old-gpu-0-mig-1g-5gb-6 releases its devices (gpu-0-mig-1g-5gb-6 on n1)", "one more node like n1"]),
        ("counters_together", "on n1: there are not enough counters for all devices together",
         ['request b, selector 0: change "3g.20gb" to "1g.5gb"']),
        ("error", "on n1: request gpu: selector 0 fails on gpu.nvidia.com/n1/gpu-0: no such key: memory",
         ['request gpu, selector 0: remove device.attributes["gpu.nvidia.com"].memory > 40']),
        ("partly_error", ("on any of 2 nodes: request gpu: selector 0 fails on gpu.nvidia.com/n1/gpu-0: "
         "no such key: fast"),
         [("request gpu, selector 0: check first that the attribute exists: "
          'has(device.attributes["gpu.nvidia.com"].fast) && device.attributes["gpu.nvidia.com"].fast')]),
        ("shared", ("on n1: request cpu: none of 2 devices has enough capacity left "
         "(2 short of capacity dra.cpu/cpu: 16 needed)"),
         ["request cpu: 12 of dra.cpu/cpu instead of 16", "request cpu: 8 of dra.cpu/cpu instead of 16",
          "claim old-0 releases its devices (numa-0 on n1)", "one more node like n1"]),
        ("incomplete", ("on n1: request gpu: none of 2 devices is in a valid and complete pool (2 in pool "
         "gpu.nvidia.com/n1, which is incomplete: 1 of 2 slices of generation 1 exist)"),
         ["the missing slices of pool gpu.nvidia.com/n1 are published"]),
        ("everything", "on n1: request all: all 4 matching devices are needed, 1 is not available (1 in use)",
         ["request all: 3 devices instead of all 4", "claim old-gpu-3 releases its devices (gpu-3 on n1)",
          "one more node like n1"]),
        ("too_many", "on n1: number of requested devices 40 exceeds the claim limit of 32",
         ["request all: 32 devices instead of all 40"]),
        ("together", "on n1: request gpu: 1 of 2 free (1 in use), 2 needed",
         ["request gpu: 1 device instead of 2"]),
        ("cordoned", "on n1: cordoned", ["the pod is allowed on n1 (now: cordoned)"]),
        ("two_things", "on n1: request gpu: none of 2 devices passes selector 0 (memory is 40Gi)",
         ['request gpu: tolerate taint broken:NoSchedule; and request gpu, selector 0: change "80Gi" to "40Gi"']),
    ],
)  # fmt: skip
def test_reason_and_changes(name: str, summary: str, changes: list[str]):
    explanation = explain(situations.FAILING[name](), KEY)
    user = " of pod p" if name in {"together", "cordoned"} else ""
    assert explanation.summary == f"claim c{user} cannot be allocated {summary}"
    texts = [change.text for change in explanation.changes]
    assert [text for text in changes if text not in texts] == []
    assert texts[0] == changes[0], "the smallest change comes first"


def test_a_claim_with_an_unknown_class():
    explanation = explain(situations.no_class(), KEY)
    assert not explanation.satisfiable
    assert explanation.summary == (
        "claim c cannot be allocated: request gpu: could not retrieve device class nothing: it does not exist"
    )
    assert explanation.notes == ("DeviceClasses are: gpu.nvidia.com, mig.nvidia.com, nic.example.com",)


def test_a_claim_that_can_be_allocated():
    explanation = explain(situations.alternatives(), "c")
    assert explanation.satisfiable
    assert explanation.allocated
    assert explanation.summary == "claim c can be allocated on n1: gpu/two gets gpu-0 and gpu-1"
    big, two = explanation.reports[0].requests
    assert (big.request, big.left, big.enough) == ("gpu/big", 0, False)
    assert (two.request, two.left, two.enough) == ("gpu/two", 4, True)


def test_one_node():
    snapshot = situations.taken()
    assert len(explain(snapshot, KEY, "n1").reports) == 1
    assert explain(snapshot, KEY, "n1").summary.startswith(
        "claim c cannot be allocated on n1: request gpu: none of 2 devices"
    )
    both = cluster(gpus("n1"), gpus("n2"), claim("c", exactly("gpu", GPU)))
    assert explain(both, KEY).node == "n1"
    elsewhere = explain(both, KEY, "n2")
    assert elsewhere.satisfiable
    assert not elsewhere.allocated
    assert elsewhere.summary == "claim c can be allocated on n2: gpu gets gpu-0"


def test_a_pod_with_several_claims():
    pod_explanation = Explainer(schedule(situations.together())).pod("p")
    assert not pod_explanation.satisfiable
    assert pod_explanation.summary == "pod p cannot run: 0 of 1 nodes: no devices for claims a, c together on 1 node"
    assert [explanation.claim for explanation in pod_explanation.claims] == ["a", "c"]
    assert json.loads(json.dumps(pod_explanation.to_json()))["claims"][1]["changes"]
    runs = Explainer(schedule(cluster(gpus("n1"), claim("c", exactly("gpu", GPU)), pod("p", "c")))).pod("p")
    assert (runs.satisfiable, runs.node, runs.claims[0].pod) == (True, "n1", "p")


def test_extended_resources_are_explained_too():
    cls = situations.device_class("fast", 'device.driver == "gpu.nvidia.com"')
    cls["spec"]["extendedResourceName"] = "example.com/gpu"
    wanting = pod("p")
    wanting["spec"]["containers"] = [{"name": "m", "resources": {"requests": {"example.com/gpu": "3"}}}]
    pod_explanation = Explainer(schedule(cluster(gpus("n1"), cls, wanting))).pod("p")
    assert not pod_explanation.satisfiable
    assert pod_explanation.claims[0].summary.endswith(
        "cannot be allocated on n1: request container-0-request-0: 2 of 2 of class fast, 3 needed"
    )


def test_unknown_claims_pods_and_nodes():
    snapshot = situations.taken()
    with pytest.raises(ExplainError, match="there is no claim x; claims are: old-gpu-0, old-gpu-1, o, c"):
        explain(snapshot, "x")
    with pytest.raises(ExplainError, match="there is no pod ml/x that waits or runs; pods are: none"):
        Explainer(schedule(snapshot)).pod("ml/x")
    with pytest.raises(ExplainError, match="there is no node n9; nodes are: n1, n2"):
        explain(snapshot, KEY, "n9")


def test_a_pod_with_a_scheduling_gate():
    waiting = pod("p", "c")
    waiting["spec"]["schedulingGates"] = [{"name": "later"}]
    explanation = explain(cluster(gpus("n1"), claim("c", exactly("gpu", GPU)), waiting), KEY)
    assert explanation.summary == "claim c of pod p cannot be allocated: blocked by scheduling gate later"
    assert explanation.tried == 0


def test_no_nodes():
    assert (
        explain(cluster(claim("c", exactly("gpu", GPU))), KEY).summary
        == "claim c cannot be allocated: there are no nodes"
    )


def test_admin_access_is_shown():
    snapshot = cluster(gpus("n1"), with_devices(claim("o", exactly("x", GPU)), ("x", GPU, "n1", "gpu-0")),
                     claim("c", exactly("all", GPU, allocationMode="All", adminAccess=True)))  # fmt: skip
    assert explain(snapshot, KEY).summary == (
        "claim c can be allocated on n1: all gets gpu-0 (admin access) and gpu-1 (admin access)"
    )


def kinds(name: str, rejections: dict[str, str] | None = None) -> tuple[list[str], int]:
    target = ScheduledCluster(schedule(situations.FAILING[name]())).target_of_claim(("default", "c"))
    problem = target.problem(target.claims, target.snapshot.nodes)
    changes, tried = suggest_changes(target.snapshot, problem, group_nodes(inspect_nodes(problem, rejections or {})))
    return [change.kind for change in changes], tried


def test_changes_are_ordered_by_size():
    assert kinds("taken") == (["count", "claim-freed", "node"], 3)
    assert kinds("tainted")[0] == ["toleration", "taint-removed"]
    assert kinds("two_things")[0] == ["pair"]


def test_nodes_that_reject_the_pod_can_only_be_opened():
    assert kinds("tainted", {"n1": "cordoned"}) == ([], 1), "a pod on n1 would not get the tainted devices either"
    assert kinds("cordoned", {"n1": "cordoned"})[0] == ["node-opened"]


def test_nothing_helps():
    suggested, tried = kinds("incomplete")
    assert (suggested, tried) == (["pool-completed"], 2)


def test_equal_pods_are_examined_once(monkeypatch: pytest.MonkeyPatch):
    searches: list[object] = []
    allocate_on = AllocationProblem.allocate_on
    monkeypatch.setattr(
        AllocationProblem, "allocate_on", lambda *args: (searches.append(args[1]), allocate_on(*args))[1]
    )
    claims = [claim(name, exactly("gpu", GPU, count=3)) for name in ("a", "b", "c")]
    pods = [pod(f"p-{name}", name) for name in ("a", "b", "c")]
    for made in pods:
        made["spec"]["resourceClaims"][0]["name"] = "gpu"
    explainer = Explainer(schedule(cluster(gpus("n1", 2), *claims, *pods)))
    first = explainer.pod("p-a")
    needed = len(searches)
    others = [explainer.pod(name) for name in ("p-b", "p-c")]
    assert needed > 0
    assert len(searches) == needed
    assert "claim a of pod p-a cannot be allocated on n1" in first.claims[0].summary
    assert "claim c of pod p-c cannot be allocated on n1" in others[1].claims[0].summary
    assert [explained.claims[0].changes[0].object for explained in (first, *others)] == [
        "ResourceClaim a", "ResourceClaim b", "ResourceClaim c",
    ]  # fmt: skip
    assert first.claims[0].reports == others[1].claims[0].reports


def test_pods_on_other_nodes_are_not_equal():
    elsewhere = pod("q", "b")
    elsewhere["spec"]["nodeSelector"] = {"zone": "z"}
    wanted = (claim(name, exactly("gpu", GPU, count=3)) for name in ("a", "b"))
    explainer = Explainer(schedule(cluster(gpus("n1", 2), *wanted, pod("p", "a"), elsewhere)))
    assert not explainer.pod("p").claims[0].reports[0].rejection
    assert explainer.pod("q").claims[0].reports[0].rejection


def test_the_driver_of_the_class_has_published_nothing():
    explanation = explain(cluster(gpus("n1", 2), claim("c", exactly("nic", NIC))), KEY)
    assert explanation.summary == f"claim c cannot be allocated: driver {NIC} of class {NIC} has published nothing"
    assert explanation.changes == ()


def test_labels_that_nodes_have_instead():
    waiting = pod("p")
    waiting["spec"]["nodeSelector"] = {"zone": "z1"}
    nodes = [
        bare_node(name) | {"metadata": {"name": name, "labels": labels}}
        for name, labels in (("n1", {"zone": "z2"}), ("n2", {"zone": "z2"}), ("n3", {}))
    ]
    explained = Explainer(schedule(cluster(*nodes, waiting))).pod("p")
    assert explained.summary == ("pod p cannot run: 0 of 3 nodes: not selected by nodeSelector zone=z1 on 3 nodes")
    assert explained.notes == ("no node has label zone=z1; zone is z2 on n1 and 1 more",)
    nodes[2] |= {"metadata": {"name": "n3", "labels": {"zone": "z1"}}, "spec": {"unschedulable": True}}
    assert Explainer(schedule(cluster(*nodes, waiting))).pod("p").notes == ("label zone=z1 is on n3",)


@pytest.mark.parametrize(("version", "told"), [("1.36", True), ("1.37", False)])
def test_a_share_without_capacity_takes_counters_again(version: str, told: bool):
    node_slice = obj("ResourceSlice", "s", version="resource.k8s.io/v1", spec={
        "driver": NIC, "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 2},
        "devices": [{"name": "vf", "allowMultipleAllocations": True, "consumesCounters": [
            {"counterSet": "board", "counters": {"slot": {"value": "1"}}}]}],
    })  # fmt: skip
    counters = obj("ResourceSlice", "t", version="resource.k8s.io/v1", spec={
        "driver": NIC, "nodeName": "n1", "pool": {"name": "n1", "generation": 1, "resourceSliceCount": 2},
        "sharedCounters": [{"name": "board", "counters": {"slot": {"value": "1"}}}],
    })  # fmt: skip
    snapshot = cluster(obj("Node", "n1", version="v1"), node_slice, counters,
                       claim("a", exactly("g", NIC)), claim("c", exactly("g", NIC)))  # fmt: skip
    explanation = explain(replace(snapshot, profile=ServerProfile.of(version)), KEY)
    assert explanation.satisfiable is not told
    if told:
        (conflict,) = explanation.reports[0].conflicts
        assert conflict.text.startswith("one more share takes the counters of the device again")
        assert conflict.details == (
            "vf is held by a",
            "this is a bug of Kubernetes up to 1.36, mended in 1.37; shares that consume capacity do not have it",
        )
