from __future__ import annotations

from dra_sdk.tools.scheduling.cluster.cluster_state import ClusterState
from dra_sdk.tools.scheduling.cluster.node_filter import NodeFit
from dra_sdk.tools.scheduling.cluster.pod_requirements import requirements_of
from dra_sdk.tools.scheduling.cluster.snapshot import object_key
from tests.tools.scheduling.cluster.objects import allocated, claim, cluster, device_class, gpus, node, parsed, pod

ALLOCATION = allocated(claim("x"), "gpu-0")["status"]["allocation"]


def requirements(made, *claims):
    return requirements_of(parsed(made), {object_key(claim): claim for claim in claims}, {"gpu": device_class()}, {})


def test_binding_sets_allocation_reservation_and_node():
    one, user = claim("c"), pod("p", claims=["c"])
    state = ClusterState(cluster(node("node-a"), gpus("node-a", "gpu-0"), one, user))
    assert not state.is_allocated(("default", "c"))
    used = state.bind(requirements(user, one), NodeFit("node-a", {"c": one}, {"c": ALLOCATION}))
    assert used == (("default", "c"),)
    assert state.is_allocated(("default", "c"))
    after = state.snapshot()
    assert after.pods[0]["spec"]["nodeName"] == "node-a"
    assert after.claims[0]["status"]["allocation"] == ALLOCATION
    assert [str(device) for device in state.allocated.devices] == ["gpu.example.com/node-a/gpu-0"]
    assert "status" not in one
    assert "nodeName" not in user["spec"]


def test_a_second_pod_is_added_to_reserved_for():
    held = allocated(claim("c"), "gpu-0", pods=["q"])
    user = pod("p", claims=["c"])
    state = ClusterState(cluster(held, user))
    state.bind(requirements(user, held), NodeFit("node-a"))
    state.bind(requirements(user, state.claims["default", "c"]), NodeFit("node-a"))
    assert [consumer["name"] for consumer in state.claims["default", "c"]["status"]["reservedFor"]] == ["q", "p"]


def test_only_claims_without_other_consumers_are_deallocated():
    free, used = allocated(claim("free"), "gpu-0"), allocated(claim("used"), "gpu-1", pods=["other"])
    user = pod("p", claims=["free", "used"])
    state = ClusterState(cluster(free, used, user, hypothetical={("default", "free"): "node-a"}))
    assert state.deallocate_unused(requirements(user, free, used), ["free", "used"]) == 1
    assert not state.is_allocated(("default", "free"))
    assert state.is_allocated(("default", "used"))
    assert state.hypothetical == {}
    assert [device.device for device in state.allocated.devices] == ["gpu-1"]


def test_a_hypothetical_allocation_is_recorded():
    state = ClusterState(cluster(claim("c")))
    state.allocate_hypothetically(("default", "c"), "node-a", ALLOCATION)
    assert dict(state.snapshot().hypothetical) == {("default", "c"): "node-a"}
    assert "reservedFor" not in state.snapshot().claims[0]["status"]
