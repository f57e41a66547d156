from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import ObjectSource, SnapshotReadError, drain, read_snapshot, schedule
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import (
    allocated,
    claim,
    device_class,
    gpus,
    node,
    nodes_of,
    obj,
    pod,
    template,
)

NEWEST = ServerProfile.of("1.37", {"DRAWorkloadResourceClaims": True})
GANGS = ServerProfile.of("1.37", {"GenericWorkload": True})
V1BETA1, V1ALPHA3, V1ALPHA2 = (f"scheduling.k8s.io/{version}" for version in ("v1beta1", "v1alpha3", "v1alpha2"))
SHARED = {"name": "c", "resourceClaimTemplateName": "one"}


def group(name="g", *claims, version=V1BETA1, needs=0, **more):
    policy = {"gang": {"minCount": needs}} if needs else {"basic": {}}
    spec = {"schedulingPolicy": policy, **({"resourceClaims": list(claims)} if claims else {}), **more}
    return obj("PodGroup", name, spec, "default") | {"apiVersion": version}


def member(name, *entries, of="g", **spec):
    return pod(name, resourceClaims=list(entries), schedulingGroup={"podGroupName": of}, **spec)


def members(count, *entries, **spec):
    return [member(f"p{number}", *entries, **spec) for number in range(count)]


def simulated(*objects, profile=NEWEST, devices=2):
    names = [f"gpu-{number}" for number in range(devices)]
    source = ObjectSource(
        "a.yaml", [Document(made) for made in (*objects, node("n"), gpus("n", *names), device_class())]
    )
    return schedule(read_snapshot([source], profile).snapshot)


OWN = {"name": "own", "resourceClaimTemplateName": "one"}


def test_pods_share_the_claim_of_their_group():
    outcome = simulated(group("g", SHARED, needs=2), template("one"), *members(3, SHARED), devices=1)
    assert nodes_of(outcome) == {"p0": "n", "p1": "n", "p2": "n"}
    (made,) = outcome.snapshot.claims
    metadata = made["metadata"]
    assert metadata["name"].startswith("g-c-")
    assert metadata["ownerReferences"] == [
        {"apiVersion": V1BETA1, "kind": "PodGroup", "name": "g", "uid": "g-uid", "controller": True}
    ]
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "g-uid"}
    assert made["status"]["reservedFor"] == [consumer]
    (after,) = outcome.snapshot.pod_groups
    assert after["status"]["resourceClaimStatuses"] == [{"name": "c", "resourceClaimName": metadata["name"]}]
    again = schedule(outcome.snapshot)
    assert all(placement.running for placement in again.pods), "a claim reserved for the group is reserved for its pods"


def test_an_entry_that_is_not_that_of_the_group_is_the_pods_own():
    outcome = simulated(group("g", SHARED), template("one"), *members(2, SHARED, OWN), devices=3)
    assert outcome.complete
    assert sorted(claim["metadata"]["name"][:-5] for claim in outcome.snapshot.claims) == ["g-c-", "p0-own-", "p1-own-"]


def test_a_named_claim_is_reserved_for_the_group():
    entry = {"name": "c", "resourceClaimName": "x"}
    outcome = simulated(
        group("g", entry), claim("x"), *members(2, entry), member("alone", entry, of="other"), group("other")
    )
    (held,) = outcome.snapshot.claims
    assert [(consumer["resource"], consumer["name"]) for consumer in held["status"]["reservedFor"]] == [
        ("podgroups", "g"),
        ("pods", "alone"),
    ]


def test_without_its_gate_each_pod_has_a_claim_of_its_own():
    outcome = simulated(group("g", SHARED), template("one"), *members(2, SHARED), profile=GANGS)
    assert len(outcome.snapshot.claims) == 2
    note = "PodGroup g: resourceClaims have no effect: feature gate DRAWorkloadResourceClaims is off in Kubernetes 1.37"
    assert note in outcome.notes


def test_a_gang_is_placed_as_a_whole_or_not_at_all():
    pods = members(3, OWN)
    outcome = simulated(group(needs=3), template("one"), *pods, pod("q", templates=["one"]), devices=2)
    assert nodes_of(outcome) == {"p0": None, "p1": None, "p2": None, "q": "n"}, "the gang leaves its devices to others"
    assert {placement.reason for placement in outcome.pods[:3]} == {
        "PodGroup g needs 3 pods, of which 2 fit; pod p2: 0 of 1 nodes: no devices for claim own on 1 node"
    }
    assert sum(claim.allocation is not None for claim in outcome.claims) == 1
    fits = simulated(group(needs=2), template("one"), *pods, devices=2)
    assert nodes_of(fits) == {"p0": "n", "p1": "n", "p2": None}


def test_a_gang_that_is_not_placed_gives_all_back():
    wanted = [{"name": "main", "resources": {"limits": {"example.com/gpu": "1"}}}]
    offered = device_class("extended", extendedResourceName="example.com/gpu")
    quota = obj("ResourceQuota", "q", {"hard": {"count/resourceclaims.resource.k8s.io": "2"}}, "default")
    quota["apiVersion"] = "v1"
    others = [pod(f"q{number}", containers=wanted) for number in range(2)]
    outcome = simulated(group(needs=3), quota, *members(3, containers=wanted), *others, offered)
    assert nodes_of(outcome) == {"p0": None, "p1": None, "p2": None, "q0": "n", "q1": "n"}
    assert len(outcome.snapshot.claims) == 2


def test_claims_that_a_group_cannot_use_are_deallocated():
    named = {"name": "x", "resourceClaimName": "x"}
    elsewhere = allocated(claim("x"), "gpu-0", on="gone")
    elsewhere["metadata"]["finalizers"] = ["resource.kubernetes.io/delete-protection"]
    outcome = simulated(group(needs=2), elsewhere, *members(2, named), node("gone", unschedulable=True))
    assert nodes_of(outcome) == {"p0": "n", "p1": "n"}


def test_a_group_that_is_drained_moves_with_its_claim():
    outcome = simulated(group("g", SHARED, needs=2), template("one"), *members(2, SHARED), node("m"), gpus("m", "b"))
    assert set(nodes_of(outcome).values()) == {"m"}
    after = schedule(drain(outcome.snapshot, "m"))
    assert nodes_of(after) == {"p0": "n", "p1": "n"}
    (held,) = after.snapshot.claims
    assert [consumer["resource"] for consumer in held["status"]["reservedFor"]] == ["podgroups"]


def test_the_other_pods_of_a_gang_follow_alone():
    cpu = [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]
    low, high = pod("low", priority=1, nodeName="n", containers=cpu), pod("high", priority=9, containers=cpu)
    given = [group(needs=2), template("one"), *members(3, OWN, priority=5), low, high]
    documents = [*given, node("n", allocatable={"cpu": "1"}), gpus("n", "a", "b"), device_class()]
    source = ObjectSource("a.yaml", [Document(document) for document in documents])
    outcome = schedule(read_snapshot([source], NEWEST).snapshot)
    assert nodes_of(outcome) == {"p0": "n", "p1": "n", "p2": None, "low": None, "high": "n"}
    reason = next(placement.reason for placement in outcome.pods if placement.pod[1] == "p2")
    assert reason.startswith("0 of 1 nodes"), "tried again after the eviction, with two pods of its gang placed"


def test_a_basic_group_is_no_gang():
    assert nodes_of(simulated(group(), template("one"), *members(3, OWN))) == {"p0": "n", "p1": "n", "p2": None}


def test_a_gang_waits_for_its_pods_and_for_its_group():
    few = simulated(group(needs=3), template("one"), *members(2, OWN))
    assert {placement.reason for placement in few.pods} == {"PodGroup g has 2 of the 3 pods that it needs"}
    none = simulated(template("one"), *members(2, OWN))
    assert {placement.reason for placement in none.pods} == {"PodGroup g does not exist"}
    assert not any(claim.allocation for claim in none.claims)


def test_pods_that_run_count_for_the_gang():
    running = member("p0", {"name": "x", "resourceClaimName": "x"}, nodeName="n")
    held = allocated(claim("x"), "gpu-0", on="n", pods=["p0"])
    outcome = simulated(group(needs=2), template("one"), held, running, *members(3, OWN)[1:], devices=2)
    assert nodes_of(outcome) == {"p0": "n", "p1": "n", "p2": None}


def test_a_group_is_scheduled_when_its_first_pod_is():
    pods = [member("p0", OWN, priority=5), pod("q", templates=["one"], priority=3), member("p1", OWN, priority=1)]
    assert nodes_of(simulated(group(needs=2), template("one"), *pods)) == {"p0": "n", "q": None, "p1": "n"}


def test_in_1_36_gangs_have_a_gate_of_their_own():
    objects = [group(needs=3, version=V1ALPHA2), template("one"), *members(3, OWN)]
    only = simulated(*objects, profile=ServerProfile.of("1.36", {"GenericWorkload": True}))
    assert nodes_of(only) == {"p0": "n", "p1": "n", "p2": None}
    gangs = simulated(*objects, profile=ServerProfile.of("1.36", {"GangScheduling": True}))
    assert nodes_of(gangs) == {"p0": None, "p1": None, "p2": None}


@pytest.mark.parametrize(
    ("version", "profile", "warning"),
    [
        (V1BETA1, NEWEST, ""),
        (V1ALPHA3, NEWEST, ""),
        (
            V1ALPHA2,
            NEWEST,
            "has scheduling.k8s.io/v1beta1 and scheduling.k8s.io/v1alpha3, not scheduling.k8s.io/v1alpha2",
        ),
        (V1ALPHA2, ServerProfile.of("1.36", {"GenericWorkload": True}), ""),
        (
            V1BETA1,
            ServerProfile.of("1.37"),
            "Kubernetes 1.37 has no such kind without the feature gate GenericWorkload",
        ),
    ],
)
def test_versions_by_release(version, profile, warning):
    workload = {"apiVersion": version, "kind": "Workload", "metadata": {"name": "w"}, "spec": {"podGroupTemplates": []}}
    source = ObjectSource("a.yaml", [Document(group(version=version)), Document(workload)])
    reading = read_snapshot([source], profile)
    assert len(reading.snapshot.pod_groups) == (not warning)
    assert [text for text in reading.warnings if not text.endswith(warning)] == []
    assert len(reading.warnings) == (2 if warning else 0)


def test_without_the_gate_pods_are_scheduled_one_by_one():
    outcome = simulated(group(needs=3), template("one"), *members(3, OWN), profile=ServerProfile.of("1.37"))
    assert nodes_of(outcome) == {"p0": "n", "p1": "n", "p2": None}
    note = "pods p0, p1, p2: schedulingGroup has no effect: feature gate GenericWorkload is off in Kubernetes 1.37"
    assert note in outcome.notes


@pytest.mark.parametrize(
    ("made", "problem"),
    [
        (group(schedulingPolicy={}), "spec.schedulingPolicy: must have one of basic and gang"),
        (group(schedulingPolicy={"gang": {"minCount": 0}}), "gang.minCount: must be at least 1, is 0"),
        (group("g", {"name": "c"}), "spec.resourceClaims[0]: must have one of resourceClaimName and"),
        (group("g", SHARED, SHARED), "spec.resourceClaims[1].name: "),
        (group("g", *(SHARED | {"name": f"c{number}"} for number in range(5))), "spec.resourceClaims: "),
        (group(resourceClaim=[]), "spec.resourceClaim: unknown field; did you mean resourceClaims?"),
    ],
)
def test_what_is_invalid(made, problem):
    with pytest.raises(SnapshotReadError) as caught:
        read_snapshot([ObjectSource("a.yaml", [Document(made)])], NEWEST)
    assert any(problem in text for text in caught.value.problems)


def test_topology_constraints_are_noted():
    made = group(schedulingConstraints={"topology": [{"key": "rack"}]})
    assert any(
        note.startswith("PodGroup g: its topology constraints are not simulated") for note in simulated(made).notes
    )
