from __future__ import annotations

from dra_sdk.tools.scheduling.cluster import (
    DeviceTarget,
    PlacementState,
    add_taint,
    compare_outcomes,
    drain,
    schedule,
)
from tests.tools.scheduling.cluster.objects import DRIVER, claim, cluster, gpus, node, pod, template

BEFORE = schedule(
    cluster(
        node("node-a"),
        node("node-b"),
        gpus("node-a", "gpu-0"),
        gpus("node-b", "gpu-0"),
        template("one"),
        claim("free"),
        pod("p", templates=["one"]),
        pod("q"),
    )
)


def test_equal_outcomes_have_no_changes():
    assert compare_outcomes(BEFORE, schedule(BEFORE.snapshot)) == ()


def test_a_pod_that_moves_and_a_claim_that_loses_its_devices():
    changes = compare_outcomes(BEFORE, schedule(drain(BEFORE.snapshot, "node-b")))
    assert [change.subject[1] for change in changes] == ["free"]
    assert changes[0].before == PlacementState("node-b", {"gpu": (f"{DRIVER}/node-b/gpu-0",)})
    assert changes[0].after == PlacementState(None, {})
    assert changes[0].reason.startswith("0 of 2 nodes: ")
    assert not changes[0].is_pod


def test_an_evicted_pod_says_why():
    taint = {"key": "broken", "effect": "NoExecute"}
    after = schedule(add_taint(BEFORE.snapshot, DeviceTarget(DRIVER, "node-a"), taint))
    (change,) = compare_outcomes(BEFORE, after)
    assert change.evicted == f"device {DRIVER}/node-a/gpu-0 has taint broken:NoExecute"
    assert change.before == PlacementState("node-a", {"gpu": (f"{DRIVER}/node-a/gpu-0",)})
    assert change.after == PlacementState(None, {})


def test_added_and_removed_pods():
    after = schedule(BEFORE.snapshot.without("Pod", ("default", "q")).with_objects([pod("r")]))
    come, gone = compare_outcomes(BEFORE, after)
    assert (come.subject[1], come.before, come.after) == ("r", None, PlacementState("node-a", {}))
    assert (gone.subject[1], gone.before, gone.after) == ("q", PlacementState("node-a", {}), None)


def test_devices_of_several_claims_are_prefixed_by_the_claim():
    both = cluster(node("n"), gpus("n", "gpu-0", "gpu-1"), claim("a"), claim("b"), pod("p", claims=["a", "b"]))
    empty = schedule(both.without("ResourceSlice", ("", "n-1-gpu-0-gpu-1")))
    (change,) = compare_outcomes(empty, schedule(both))
    devices = {"a/gpu": (f"{DRIVER}/n/gpu-0",), "b/gpu": (f"{DRIVER}/n/gpu-1",)}
    assert change.after == PlacementState("n", devices)
