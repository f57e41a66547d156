from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import WhatIfError, schedule
from dra_sdk.tools.scheduling.cluster.eviction_plan import NoRoomError, plan_evictions
from tests.tools.scheduling.cluster.objects import (
    DRIVER,
    allocated,
    claim,
    cluster,
    gpus,
    node,
    obj,
    pod,
    request,
    template,
)

KEY = ("default", "p")


def holder(name, *devices, on="a", priority=0, owner="", **more):
    """A claim with devices and the pod that holds it."""
    made = pod(name, claims=[f"c-{name}"], nodeName=on, priority=priority, **more)
    if owner:
        made["metadata"]["ownerReferences"] = [
            {"apiVersion": "apps/v1", "kind": owner, "name": "owner", "uid": "o", "controller": True}
        ]
    return allocated(claim(f"c-{name}", request(count=len(devices))), *devices, on=on, pods=[name]), made


def wanting(count=1, **spec):
    return template("some", request(count=count)), pod("p", templates=["some"], **spec)


def plan(*objects, **more):
    flat = [one for item in objects for one in (item if isinstance(item, tuple) else (item,))]
    return plan_evictions(schedule(cluster(*flat)), KEY, **more)


def names(planned):
    return [eviction.pod[1] for eviction in planned.evictions]


NODES = (node("a"), gpus("a", "gpu-0", "gpu-1", "gpu-2"), node("b"), gpus("b", "gpu-0", "gpu-1", "gpu-2"))


def test_the_fewest_pods_are_evicted():
    """On a, each of three pods has a GPU; on b, one pod has two."""
    many = [holder(name, f"gpu-{index}") for index, name in enumerate("xyz")]
    eviction_plan = plan(*NODES, *many, holder("big", "gpu-0", "gpu-1", on="b", priority=50), wanting(2, priority=9))
    assert (eviction_plan.node, names(eviction_plan), eviction_plan.fewest) == ("b", ["big"], True)
    (big,) = eviction_plan.evictions
    assert (big.priority, big.owner, big.violates) == (50, "", False)
    assert big.devices == (f"{DRIVER}/b/gpu-0", f"{DRIVER}/b/gpu-1")
    states = {change.subject[1]: (change.before.node, change.after.node) for change in eviction_plan.changes}
    assert states == {"p": (None, "b"), "big": ("b", None)}


def test_of_equally_many_pods_the_less_important_ones():
    full = [holder(f"a{index}", f"gpu-{index}", priority=5) for index in range(3)]
    full += [holder(f"b{index}", f"gpu-{index}", on="b", priority=index + 3) for index in range(3)]
    assert names(plan(*NODES, *full, wanting())) == ["b0"]
    assert names(plan(*NODES, *full, wanting(2))) == ["b0", "b1"]


def test_a_set_that_is_smaller_than_the_first_one_found():
    """Taking back the most important pod first keeps `mid` and evicts two; evicting `mid` alone is enough."""
    pods = [holder("low", "gpu-0"), holder("mid", "gpu-1", "gpu-2", priority=5), holder("free", "gpu-0", on="b")]
    eviction_plan = plan(*NODES[:2], *pods[:2], wanting(2))
    assert (names(eviction_plan), eviction_plan.fewest) == (["mid"], True)
    cut = plan(*NODES[:2], *pods[:2], wanting(2), max_trials=1)
    assert not cut.fewest


def test_pods_that_stay():
    assert names(plan(*NODES[:2], holder("x", "gpu-0", "gpu-1", "gpu-2"), wanting())) == ["x"]
    for owner in ("DaemonSet", "Node"):
        with pytest.raises(
            NoRoomError, match="no evictions make room for pod p: 0 of 1 nodes: no devices for claim some"
        ):
            plan(*NODES[:2], holder("x", "gpu-0", "gpu-1", "gpu-2", owner=owner), wanting())
    (planned,) = plan(*NODES[:2], holder("x", "gpu-0", "gpu-1", "gpu-2", owner="ReplicaSet"), wanting()).evictions
    assert planned.owner == "ReplicaSet owner"


def test_other_resources_make_room_too():
    cpus = [{"name": "main", "resources": {"requests": {"cpu": "2"}}}]
    small = node("a", allocatable={"cpu": "3", "pods": "10"})
    eviction_plan = plan(
        small, gpus("a", "gpu-0"), pod("busy", nodeName="a", containers=cpus), wanting(containers=cpus)
    )
    assert (names(eviction_plan), eviction_plan.evictions[0].devices) == (["busy"], ())


def test_devices_that_several_nodes_can_use():
    shared = gpus("a", "gpu-0", nodeName=None, allNodes=True)
    held = allocated(claim("c-far"), "gpu-0", on="a", pods=["far"])
    held["status"]["allocation"].pop("nodeSelector")
    eviction_plan = plan(node("a"), node("b"), shared, held, pod("far", claims=["c-far"], nodeName="b"), wanting())
    assert names(eviction_plan) == ["far"]


def test_budgets_are_told():
    held, made = holder("x", "gpu-0", "gpu-1", "gpu-2")
    made["metadata"]["labels"] = {"app": "x"}
    budget = obj("PodDisruptionBudget", "b", {"selector": {"matchLabels": {"app": "x"}}}, "default")
    eviction_plan = plan(*NODES[:2], budget | {"status": {"disruptionsAllowed": 0}}, held, made, wanting())
    assert eviction_plan.evictions[0].violates
    assert eviction_plan.to_json()["evictions"][0]["violatesDisruptionBudget"] is True


def test_claims_without_a_pod_hold_nothing_in_a_cluster():
    eviction_plan = plan(*NODES[:2], claim("idle", request(count=2)), holder("x", "gpu-0"), wanting(2))
    assert eviction_plan.evictions == ()
    assert eviction_plan.node == "a"


def test_pods_without_hope():
    with pytest.raises(NoRoomError, match="there is no DeviceClass"):
        plan(*NODES, template("some", request(class_name="other")), pod("p", templates=["some"]))
    with pytest.raises(NoRoomError, match="0 of 2 nodes"):
        plan(*NODES, wanting(4))
    with pytest.raises(NoRoomError, match="within 1 trials"):
        plan(*NODES, wanting(4), max_trials=1)
    with pytest.raises(WhatIfError, match="there is no pod p"):
        plan(*NODES)


def test_a_pod_that_runs_needs_no_room():
    eviction_plan = plan(*NODES, wanting())
    assert (eviction_plan.node, eviction_plan.evictions, eviction_plan.fewest) == ("a", (), True)
