from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster import schedule
from dra_sdk.tools.scheduling.cluster.quotas import QuotaAdmission
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.cluster.objects import (
    allocated,
    claim,
    cluster,
    device_class,
    gpus,
    node,
    nodes_of,
    obj,
    pod,
    pod_requesting,
    request,
    template,
)

DEVICES = "gpu.deviceclass.resource.k8s.io/devices"
CLAIMS = "count/resourceclaims.resource.k8s.io"
TEMPLATES = "count/resourceclaimtemplates.resource.k8s.io"
EXTENDED = "requests.example.com/gpu"
IMPLICIT = "requests.deviceclass.resource.kubernetes.io/gpu"
EXISTS = {"creationTimestamp": "2026-11-28T00:00:00Z"}


def quota(name="q", namespace="default", *, used=None, scopes=(), selector=None, **hard):
    spec = {"hard": hard.pop("hard", hard), "scopes": list(scopes)}
    if selector:
        spec["scopeSelector"] = {"matchExpressions": [selector]}
    made = obj("ResourceQuota", name, spec, namespace)
    return made if used is None else made | {"status": {"used": used}}


def refused(*objects, **more):
    """The names of the objects that are refused."""
    admission = QuotaAdmission(cluster(*objects, **more))
    return sorted(uid.removesuffix("-uid") for uid in admission.refusals)


def extended_class():
    return device_class(extendedResourceName="example.com/gpu")


ALTERNATIVES = {
    "name": "r",
    "firstAvailable": [
        {"name": "a", "deviceClassName": "gpu", "count": 2, "allocationMode": "ExactCount"},
        {"name": "b", "deviceClassName": "gpu", "count": 3, "allocationMode": "ExactCount"},
        {"name": "c", "deviceClassName": "other", "count": 9, "allocationMode": "ExactCount"},
    ],
}


@pytest.mark.parametrize(
    ("hard", "objects", "names"),
    [
        ({DEVICES: "1"}, [claim("a"), claim("b")], ["b"]),
        ({DEVICES: "1"}, [claim("a", request(class_name="other")), claim("b")], []),
        ({DEVICES: "3"}, [claim("a", request("x", count=2), request("y")), claim("b")], ["b"]),
        ({DEVICES: "31"}, [claim("a", request(allocationMode="All"))], ["a"]),
        ({DEVICES: "32"}, [claim("a", request(allocationMode="All"))], []),
        ({DEVICES: "2"}, [claim("a", ALTERNATIVES)], ["a"]),
        ({DEVICES: "3"}, [claim("a", ALTERNATIVES)], []),
        ({DEVICES: "0"}, [claim("a", namespace="elsewhere")], []),
        ({CLAIMS: "1"}, [claim("a"), claim("b"), claim("c")], ["b", "c"]),
        ({TEMPLATES: "1"}, [template("a"), template("b"), claim("c")], ["b"]),
        ({"count/pods": "1"}, [pod("a"), pod("b")], ["b"]),
        ({"pods": "1"}, [pod("a", nodeName="n"), pod("b"), pod("c")], ["b", "c"]),
        ({"pods": "1"}, [pod("a") | {"status": {"phase": "Succeeded"}}, pod("b")], []),
        ({"count/pods": "1"}, [pod("a") | {"status": {"phase": "Succeeded"}}, pod("b")], ["b"]),
        ({"requests.cpu": "3"}, [pod_requesting("a", cpu=2), pod_requesting("b", cpu=2)], ["b"]),
        ({"cpu": "3"}, [pod("a")], ["a"]),
        ({EXTENDED: "1"}, [extended_class(), claim("a"), claim("b")], ["b"]),
        ({EXTENDED: "1"}, [extended_class(), pod_requesting("a", example__com_gpu=2)], ["a"]),
        ({EXTENDED: "1"}, [claim("a"), claim("b")], []),
        ({IMPLICIT: "1"}, [claim("a"), claim("b")], ["b"]),
    ],
)
def test_what_a_quota_refuses(hard, objects, names):
    assert refused(quota(hard=hard), *objects) == names


def test_in_1_34_claims_do_not_count_as_extended_resources():
    objects = [quota(hard={EXTENDED: "1"}), extended_class(), claim("a"), claim("b")]
    gates = {"DRAExtendedResource": True}
    assert refused(*objects, profile=ServerProfile.of("1.34", gates)) == []
    assert refused(*objects, profile=ServerProfile.of("1.35", gates)) == ["b"]
    assert refused(*objects, profile=ServerProfile.of("1.35")) == []


def priority(operator, *values):
    return {"scopeName": "PriorityClass", "operator": operator, "values": list(values)}


@pytest.mark.parametrize(
    ("scope", "names"),
    [
        ({"scopes": ["BestEffort"]}, ["plain", "timed", "urgent"]),
        ({"scopes": ["NotBestEffort"]}, ["sized"]),
        ({"scopes": ["Terminating"]}, ["timed"]),
        ({"scopes": ["NotTerminating"]}, ["plain", "sized", "urgent"]),
        ({"selector": priority("In", "high")}, ["urgent"]),
        ({"selector": priority("NotIn", "low")}, ["plain", "sized", "timed", "urgent"]),
        ({"selector": priority("Exists")}, ["urgent"]),
        ({"selector": priority("DoesNotExist")}, ["plain", "sized", "timed"]),
        ({"scopes": ["Terminating", "NotBestEffort"]}, []),
        ({"scopes": ["CrossNamespacePodAffinity"]}, []),
    ],
)
def test_scopes(scope, names):
    pods = [
        pod("plain"),
        pod_requesting("sized", cpu=1),
        pod("timed", activeDeadlineSeconds=5),
        pod("urgent", priorityClassName="high"),
    ]
    assert refused(quota(hard={"pods": "0", DEVICES: "0"}, **scope), *pods, claim("c")) == names


def test_claims_have_no_scope():
    assert refused(quota(hard={DEVICES: "0"}), claim("c")) == ["c"]
    assert refused(quota(hard={DEVICES: "0"}, scopes=["BestEffort"]), claim("c")) == []


def test_what_exists_is_counted_and_stays():
    held = allocated(claim("held"), "a", pods=["p"])
    stored = claim("stored")
    stored["metadata"] |= EXISTS
    assert refused(quota(hard={DEVICES: "2"}), claim("new"), held, stored) == ["new"]
    assert refused(quota(hard={DEVICES: "0"}), held, stored) == []
    assert refused(quota(hard={DEVICES: "2"}, used={DEVICES: "2"}), claim("new")) == ["new"]


def test_the_sentence_is_that_of_the_server():
    admission = QuotaAdmission(cluster(quota(hard={DEVICES: "1", CLAIMS: "5"}), claim("a", request(count=2))))
    assert admission.refusals == {
        "a-uid": f"the API server refuses ResourceClaim a (403): exceeded quota: q, requested: {DEVICES}=2, "
        f"used: {DEVICES}=0, limited: {DEVICES}=1"
    }
    admission = QuotaAdmission(cluster(quota(hard={"memory": "1Gi"}), pod("p")))
    assert list(admission.refusals.values()) == [
        "the API server refuses Pod p (403): failed quota: q: must specify memory for: main"
    ]


NODE = (node("n"), gpus("n", "a", "b", "c", "d"))


def test_a_pod_whose_claim_is_refused_waits():
    outcome = schedule(cluster(*NODE, quota(hard={DEVICES: "1"}), claim("a"), claim("b"), pod("p", claims=["b"])))
    assert nodes_of(outcome) == {"p": None}
    assert outcome.pods[0].reason.startswith("claim b: the API server refuses ResourceClaim b (403): exceeded quota: q")
    assert [claim.claim[1] for claim in outcome.claims if claim.allocation] == ["a"]


def test_a_pod_for_which_no_claim_can_be_made_waits():
    pods = [pod(f"p{number}", templates=["one"]) for number in range(3)]
    outcome = schedule(cluster(*NODE, quota(hard={DEVICES: "2"}), template("one"), *pods))
    assert nodes_of(outcome) == {"p0": "n", "p1": "n", "p2": None}
    assert "claim one: the API server refuses ResourceClaim p2-one-" in outcome.pods[2].reason
    assert len(outcome.snapshot.claims) == 2
    again = schedule(outcome.snapshot)
    assert nodes_of(again) == nodes_of(outcome), "the same again, though claims exist now"
    assert again.pods[2].reason == outcome.pods[2].reason


def test_a_refused_pod_has_no_claims():
    outcome = schedule(cluster(*NODE, quota(hard={"pods": "0"}), template("one"), pod("p", templates=["one"])))
    assert outcome.pods[0].reason.startswith("the API server refuses Pod p (403): exceeded quota: q, requested: pods=1")
    assert outcome.snapshot.claims == ()


def test_the_scheduler_cannot_make_a_claim_beyond_the_quota():
    pods = [pod_requesting(f"p{number}", example__com_gpu=1) for number in range(2)]
    outcome = schedule(cluster(*NODE, extended_class(), quota(hard={DEVICES: "1"}), *pods))
    assert nodes_of(outcome) == {"p0": "n", "p1": None}
    assert "the API server refuses ResourceClaim p1-extended-resources-" in outcome.pods[1].reason
    assert len(outcome.snapshot.claims) == 1
    both = schedule(cluster(*NODE, extended_class(), quota(hard={EXTENDED: "2"}), *pods))
    assert both.complete, "what a pod requests does not count once more in its claim"


def test_a_finished_pod_gives_quota_back():
    owner = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "p-uid", "controller": True}]
    held = allocated(claim("held"), "a", on="n", pods=["p"])
    held["metadata"] |= {"finalizers": ["resource.kubernetes.io/delete-protection"], "ownerReferences": owner}
    done = pod("p", nodeName="n") | {"status": {"phase": "Succeeded"}}
    outcome = schedule(
        cluster(*NODE, quota(hard={DEVICES: "1"}), held, done, template("one"), pod("q", templates=["one"]))
    )
    assert nodes_of(outcome) == {"q": "n"}
