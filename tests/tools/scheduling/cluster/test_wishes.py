from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.cluster.names import key_of
from dra_sdk.tools.scheduling.cluster.wishes import UnschedulableError, wish_of
from tests.tools.scheduling.cluster.objects import allocated, claim, device_class, parsed, pod, request

CLASSES = {"gpu": device_class()}


def wish(made, *claims, resources=()):
    return wish_of(parsed(made), {key_of(each): each for each in claims}, CLASSES, dict(resources))


def refusal(made, *claims):
    with pytest.raises(UnschedulableError) as refused:
        wish(made, *claims)
    return str(refused.value)


def test_claims_with_and_without_devices():
    found = wish(pod("p", claims=["a", "b"]), claim("a"), allocated(claim("b"), "gpu-0"))
    assert list(found.to_allocate) == ["a"]
    assert list(found.allocated) == ["b"]


def test_what_no_node_can_help():
    gone = claim("a")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    full = allocated(claim("a"), "gpu-0", pods=[f"p{number}" for number in range(256)])
    alternatives = {"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "tpu"}]}
    user = pod("p", claims=["a"])
    assert refusal(user) == "claim a: there is no ResourceClaim a in namespace default"
    assert refusal(user, gone) == "claim a is being deleted"
    assert refusal(user, full) == "claim a is reserved for 256 pods already, more is not allowed"
    assert refusal(user, claim("a", request("r", "npu"))) == "claim a: request r: there is no DeviceClass npu"
    assert refusal(user, claim("a", alternatives)) == "claim a: request r/x: there is no DeviceClass tpu"
    assert refusal(pod("p", templates=["t"])) == "claim t: template t does not exist"
    assert refusal(pod("p", schedulingGates=[{"name": "quota"}])) == "held back by scheduling gate quota"


def test_one_of_256_users_may_use_the_claim_again():
    full = allocated(claim("a"), "gpu-0", pods=[f"p{number}" for number in range(256)])
    assert list(wish(pod("p7", claims=["a"]), full).allocated) == ["a"]


def test_a_generated_claim_must_be_the_pods_own():
    status = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "other"}]}
    assert refusal(pod("p", templates=["t"]) | {"status": status}, claim("other")) == (
        "claim t: other was not made for this pod"
    )


def test_earlier_alternatives_score_higher():
    alternatives = {
        "name": "r",
        "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}, {"name": "y", "deviceClassName": "gpu"}],
    }
    found = wish(pod("p", claims=["a"]), claim("a", alternatives))

    def score(request_name):
        return found.score({"a": {"devices": {"results": [{"request": request_name}]}}})

    assert (found.best_score, score("r/x"), score("r/y")) == (8, 8, 7)
    assert wish(pod("p", claims=["a"]), claim("a")).best_score == 0


def test_pods_that_fit_on_the_same_nodes_are_of_one_kind():
    first, second = claim("a"), claim("b")

    def kind(name, entry, **spec):
        made = pod(name, resourceClaims=[{"name": "x", "resourceClaimName": entry}], **spec)
        return wish(made, first, second).kind

    assert kind("p", "a") == kind("q", "b")
    assert kind("p", "a") != kind("q", "b", nodeSelector={"zone": "1"})
    assert kind("p", "a") != kind("q", "b", containers=[{"resources": {"requests": {"cpu": "1"}}}])
    assert kind("p", "a") != wish(pod("p", claims=["a"]), claim("a", request(count=2))).kind
