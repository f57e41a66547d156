from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.claim_ownership import (
    ClaimNotCreatedError,
    ClaimOwnershipError,
    check_owner,
    claim_name,
    consumer_reference,
    is_reserved_for,
)

POD = {
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "ns", "uid": "pod-1"},
    "spec": {"containers": [], "schedulingGroup": {"podGroupName": "g"}},
}


GROUP = {
    "kind": "PodGroup",
    "metadata": {"name": "g", "namespace": "ns", "uid": "group-1"},
    "spec": {"resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": "big"}]},
}


OWNER = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "pod-1", "controller": True}


def claim(**metadata: object) -> dict[str, object]:
    return {"metadata": {"name": "c", "namespace": "ns", **metadata}}


def test_a_named_claim_needs_no_owner() -> None:
    assert claim_name(POD, {"name": "gpu", "resourceClaimName": "mine"}) == ("mine", False)


def test_the_claim_of_a_template_is_in_the_status_of_the_pod() -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "big"}
    pod = POD | {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}
    assert claim_name(pod, entry) == ("p-gpu-x", True)
    none_needed = POD | {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    assert claim_name(none_needed, entry) == (None, True)
    with pytest.raises(ClaimNotCreatedError, match='pod "ns/p": ResourceClaim not created yet'):
        claim_name(POD, entry)


def test_a_claim_must_be_controlled_by_the_pod() -> None:
    check_owner(POD, claim(ownerReferences=[OWNER]))
    with pytest.raises(ClaimOwnershipError, match=r"not created for Pod ns/p \(Pod is not owner\)"):
        check_owner(POD, claim(ownerReferences=[OWNER | {"uid": "pod-2"}]))
    with pytest.raises(ClaimOwnershipError, match="not in the same namespace"):
        check_owner(POD, claim(namespace="other", ownerReferences=[OWNER]))


def test_an_owner_that_is_not_the_controller_does_not_count() -> None:
    with pytest.raises(ClaimOwnershipError):
        check_owner(POD, claim(ownerReferences=[OWNER | {"controller": False}]))


def test_a_claim_of_a_pod_group_is_for_its_pods_if_the_feature_is_on() -> None:
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "x", "controller": True}
    check_owner(POD, claim(ownerReferences=[owner]), group_claims=True)
    with pytest.raises(ClaimOwnershipError):
        check_owner(POD, claim(ownerReferences=[owner]))
    foreign = owner | {"apiVersion": "example.com/v1"}
    with pytest.raises(ClaimOwnershipError, match="neither Pod nor PodGroup g is the owner"):
        check_owner(POD, claim(ownerReferences=[foreign]), group_claims=True)


def test_a_pod_without_a_group_is_an_error_if_group_claims_are_on() -> None:
    alone = POD | {"spec": {"containers": []}}
    with pytest.raises(ClaimOwnershipError, match="ResourceClaim ns/c was not created for Pod ns/p"):
        check_owner(alone, claim(), group_claims=True)


def test_pods_are_reserved_by_uid_and_groups_by_name() -> None:
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "?"}
    assert is_reserved_for(POD, {"status": {"reservedFor": [{"uid": "pod-1"}]}})
    assert is_reserved_for(POD, {"status": {"reservedFor": [consumer]}}, group_claims=True)
    assert not is_reserved_for(POD, {"status": {"reservedFor": [consumer]}})
    assert not is_reserved_for(POD, {})


def test_the_consumer_is_the_group_if_it_has_the_same_entry() -> None:
    same, other = {"name": "gpu", "resourceClaimTemplateName": "big"}, {"name": "nic", "resourceClaimName": "n"}
    pod = {"resource": "pods", "name": "p", "uid": "pod-1"}
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-1"}
    assert consumer_reference(POD, same) == pod
    assert consumer_reference(POD, same, GROUP) == group
    assert consumer_reference(POD, other, GROUP) == pod


def test_a_pod_without_a_group_cannot_use_the_claim_of_one() -> None:
    alone = POD | {"spec": {"containers": []}}
    with pytest.raises(ClaimOwnershipError, match="Pod ns/p does not belong to a PodGroup"):
        consumer_reference(alone, {"name": "gpu", "resourceClaimName": "x"}, GROUP)
