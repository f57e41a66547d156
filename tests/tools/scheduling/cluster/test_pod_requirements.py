from __future__ import annotations

from fractions import Fraction

import pytest

from dra_sdk.tools.scheduling.cluster.pod_requirements import UnschedulableError, pod_requests, requirements_of
from dra_sdk.tools.scheduling.cluster.snapshot import object_key
from tests.tools.scheduling.cluster.objects import allocated, claim, device_class, parsed, pod, request


def container(sidecar=False, **requests):
    made = {"resources": {"requests": {key: str(value) for key, value in requests.items()}}}
    return made | {"restartPolicy": "Always"} if sidecar else made


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, {}),
        ({"containers": [container(cpu=1, memory=2), container(cpu="500m")]}, {"cpu": Fraction(3, 2), "memory": 2}),
        ({"containers": [{"resources": {"limits": {"a.b/c": "2"}}}]}, {"a.b/c": 2}),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}, "requests": {"cpu": "1"}}}]}, {"cpu": 1}),
        ({"containers": [container(cpu=1)], "initContainers": [container(cpu=3), container(cpu=2)]}, {"cpu": 3}),
        ({"containers": [container(cpu=1)], "initContainers": [container(True, cpu=2)]}, {"cpu": 3}),
        (
            {"containers": [container(cpu=1)], "initContainers": [container(True, cpu=2), container(cpu=4)]},
            {"cpu": 6},
        ),
        ({"containers": [container(cpu=1)], "overhead": {"cpu": "250m"}}, {"cpu": Fraction(5, 4)}),
        (
            {"containers": [container(cpu=1)], "resources": {"requests": {"cpu": "4", "a.b/c": "9"}}},
            {"cpu": 4},
        ),
    ],
)
def test_pod_requests(spec, expected):
    assert pod_requests(parsed(pod("p", **({"containers": []} | spec)))) == expected


CLASSES = {"gpu": device_class()}


def requirements(made, *claims, resources=()):
    return requirements_of(parsed(made), {object_key(claim): claim for claim in claims}, CLASSES, dict(resources))


def unschedulable_reason(made, *claims):
    with pytest.raises(UnschedulableError) as caught:
        requirements(made, *claims)
    return str(caught.value)


def test_claims_with_and_without_devices():
    needs = requirements(pod("p", claims=["a", "b"]), claim("a"), allocated(claim("b"), "gpu-0"))
    assert list(needs.unallocated_claims) == ["a"]
    assert list(needs.allocated_claims) == ["b"]


def test_unschedulable_pods():
    gone = claim("a")
    gone["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    full = allocated(claim("a"), "gpu-0", pods=[f"p{number}" for number in range(256)])
    alternatives = {"name": "r", "firstAvailable": [{"name": "x", "deviceClassName": "tpu"}]}
    user = pod("p", claims=["a"])
    assert unschedulable_reason(user) == "claim a: there is no ResourceClaim a in namespace default"
    assert unschedulable_reason(user, gone) == "claim a is being deleted"
    assert unschedulable_reason(user, full) == "claim a is already reserved for 256 pods, and no more are allowed"
    assert (
        unschedulable_reason(user, claim("a", request("r", "npu"))) == "claim a: request r: there is no DeviceClass npu"
    )
    assert unschedulable_reason(user, claim("a", alternatives)) == "claim a: request r/x: there is no DeviceClass tpu"
    assert unschedulable_reason(pod("p", templates=["t"])) == "claim t: template t does not exist"
    assert unschedulable_reason(pod("p", schedulingGates=[{"name": "quota"}])) == "blocked by scheduling gate quota"


def test_a_consumer_of_a_full_claim_may_use_it_again():
    full = allocated(claim("a"), "gpu-0", pods=[f"p{number}" for number in range(256)])
    assert list(requirements(pod("p7", claims=["a"]), full).allocated_claims) == ["a"]


def test_a_generated_claim_must_be_the_pods_own():
    status = {"resourceClaimStatuses": [{"name": "t", "resourceClaimName": "other"}]}
    assert unschedulable_reason(pod("p", templates=["t"]) | {"status": status}, claim("other")) == (
        "claim t: other was not made for this pod"
    )


def test_earlier_alternatives_score_higher():
    alternatives = {
        "name": "r",
        "firstAvailable": [{"name": "x", "deviceClassName": "gpu"}, {"name": "y", "deviceClassName": "gpu"}],
    }
    needs = requirements(pod("p", claims=["a"]), claim("a", alternatives))

    def score(request_name):
        return needs.score({"a": {"devices": {"results": [{"request": request_name}]}}})

    assert (needs.best_score, score("r/x"), score("r/y")) == (8, 8, 7)
    assert requirements(pod("p", claims=["a"]), claim("a")).best_score == 0


def test_equivalent_pods_have_the_same_key():
    first, second = claim("a"), claim("b")

    def key(name, entry, **spec):
        made = pod(name, resourceClaims=[{"name": "x", "resourceClaimName": entry}], **spec)
        return requirements(made, first, second).equivalence_key

    assert key("p", "a") == key("q", "b")
    assert key("p", "a") != key("q", "b", nodeSelector={"zone": "1"})
    assert key("p", "a") != key("q", "b", containers=[{"resources": {"requests": {"cpu": "1"}}}])
    assert key("p", "a") != requirements(pod("p", claims=["a"]), claim("a", request(count=2))).equivalence_key
