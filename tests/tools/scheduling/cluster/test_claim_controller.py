from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.claim_controller import (
    FINALIZER,
    claim_key,
    deallocated,
    used_claims,
    with_current_reservations,
    with_recreated_pods,
    without_consumers,
)
from dra_sdk.tools.scheduling.cluster.generated_claims import with_generated_claims
from tests.tools.scheduling.cluster.objects import (
    allocated,
    claim,
    cluster,
    gpus,
    node,
    nodes_of,
    parsed,
    pod,
    template,
)


def test_an_entry_that_needed_no_claim_has_none():
    status = {"resourceClaimStatuses": [{"name": "one"}]}
    parsed_pod = parsed(pod("p", templates=["one"]) | {"status": status})
    assert claim_key(parsed_pod, parsed_pod.spec.resource_claims[0]) is None
    assert list(used_claims(parsed_pod)) == []


def test_a_claim_keeps_its_devices_until_nobody_uses_it():
    held = allocated(claim("c"), "gpu-0", pods=["p", "q"])
    held["metadata"]["finalizers"] = [FINALIZER, "mine"]
    assert without_consumers(held, ["unknown"]) is held
    one_left = without_consumers(held, ["p-uid"])
    assert [consumer["name"] for consumer in one_left["status"]["reservedFor"]] == ["q"]
    assert "allocation" in one_left["status"]
    free = without_consumers(one_left, ["q-uid"])
    assert free["status"] == {}
    assert free["metadata"]["finalizers"] == ["mine"]
    assert deallocated(held) == free


def test_a_recreated_pod_has_no_node_no_status_and_no_generated_claims():
    shared = allocated(claim("shared"), "gpu-0", pods=["p", "q"])
    before = with_generated_claims(
        cluster(template("one"), shared, pod("p", templates=["one"], claims=["shared"], nodeName="node-a"), pod("q"))
    )
    assert len(before.claims) == 2
    after = with_recreated_pods(before, [parsed(before.pods_by_key["default", "p"])])
    assert [claim["metadata"]["name"] for claim in after.claims] == ["shared"]
    assert [consumer["name"] for consumer in after.claims[0]["status"]["reservedFor"]] == ["q"]
    again = after.pods_by_key["default", "p"]
    assert "nodeName" not in again["spec"]
    assert "status" not in again
    assert after.pods_by_key["default", "q"] is before.pods_by_key["default", "q"]


def reservations(snapshot):
    """For each claim by its name: the reserving pods, and whether it is allocated."""
    return {
        claim["metadata"]["name"]: (
            [consumer["name"] for consumer in claim["status"].get("reservedFor", ())],
            "allocation" in claim["status"],
        )
        for claim in snapshot.claims
    }


def ended(name, phase="Succeeded", **more):
    return pod(name, claims=["c"], nodeName="node-a", **more) | {"status": {"phase": phase}}


def held(name="c", pods=("p",), finalizers=(FINALIZER,), **metadata):
    made = allocated(claim(name), "gpu-0", pods=pods)
    made["metadata"] |= {"finalizers": list(finalizers)} | metadata
    return made


OWNER = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": True}]
DELETED = "2026-11-28T00:00:00Z"
WAITING_AND_DELETED = pod("p", claims=["c"])
WAITING_AND_DELETED["metadata"] |= {"deletionTimestamp": DELETED}
REPLACED = pod("p", claims=["c"])
REPLACED["metadata"] |= {"uid": "another"}


@pytest.mark.parametrize(
    ("given", "pods", "left"),
    [
        (held(), [ended("p")], {"c": ([], False)}),
        (held(), [ended("p", "Failed")], {"c": ([], False)}),
        (held(), [ended("p", "Running")], {"c": (["p"], True)}),
        (held(), [], {"c": (["p"], True)}),
        (held(), [WAITING_AND_DELETED], {"c": ([], False)}),
        (held(), [REPLACED], {"c": ([], False)}),
        (held(pods=["p", "q"]), [ended("p"), ended("q", "Running")], {"c": (["q"], True)}),
        (held(finalizers=()), [ended("p")], {"c": ([], True)}),
        (held(pods=()), [ended("p")], {"c": ([], True)}),
        (held(ownerReferences=OWNER), [ended("p")], {}),
        (held(ownerReferences=OWNER, finalizers=()), [ended("p")], {}),
        (held(ownerReferences=OWNER, finalizers=(FINALIZER, "mine")), [ended("p")], {"c": ([], False)}),
        (held(ownerReferences=OWNER), [ended("p", "Running")], {"c": (["p"], True)}),
        (held(pods=(), deletionTimestamp=DELETED), [], {}),
        (held(deletionTimestamp=DELETED), [ended("p", "Running")], {"c": (["p"], True)}),
        (held(pods=()), [ended("p", "Running")], {"c": (["p"], True)}),
    ],
)
def test_claims_are_reserved_for_the_pods_that_run(given, pods, left):
    assert reservations(with_current_reservations(cluster(given, *pods))) == left


def test_a_consumer_that_is_no_pod_keeps_its_claim():
    given = held()
    given["status"]["reservedFor"] = [
        {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "p", "uid": "g"}
    ]
    assert reservations(with_current_reservations(cluster(given, ended("p")))) == {"c": (["p"], True)}


def test_a_pod_gets_the_devices_of_one_that_has_ended():
    waiting = pod("next", templates=["one"])
    outcome = schedule(cluster(node("node-a"), gpus("node-a", "gpu-0"), held(), ended("p"), template("one"), waiting))
    assert nodes_of(outcome) == {"next": "node-a"}
    assert outcome.complete, "nobody waits for the claim of the pod that has ended"
