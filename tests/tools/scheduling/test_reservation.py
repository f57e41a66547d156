from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling import reservation
from dra_sdk.tools.scheduling.reservation import ClaimNotCreatedError, ReservationError

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


def test_the_name_of_a_claim_is_the_one_given_and_nobody_has_to_own_it() -> None:
    assert reservation.claim_name(POD, {"name": "gpu", "resourceClaimName": "mine"}) == ("mine", False)


def test_the_claim_of_a_template_is_in_the_status_of_the_pod() -> None:
    entry = {"name": "gpu", "resourceClaimTemplateName": "big"}
    pod = POD | {"status": {"resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "p-gpu-x"}]}}
    assert reservation.claim_name(pod, entry) == ("p-gpu-x", True)
    none_needed = POD | {"status": {"resourceClaimStatuses": [{"name": "gpu"}]}}
    assert reservation.claim_name(none_needed, entry) == (None, True)
    with pytest.raises(ClaimNotCreatedError, match='pod "ns/p": ResourceClaim not created yet'):
        reservation.claim_name(POD, entry)


def test_a_claim_is_for_the_pod_that_controls_it() -> None:
    reservation.check_owner(POD, claim(ownerReferences=[OWNER]))
    with pytest.raises(ReservationError, match=r"not created for Pod ns/p \(Pod is not owner\)"):
        reservation.check_owner(POD, claim(ownerReferences=[OWNER | {"uid": "pod-2"}]))
    with pytest.raises(ReservationError, match="not in the same namespace"):
        reservation.check_owner(POD, claim(namespace="other", ownerReferences=[OWNER]))


def test_an_owner_that_does_not_control_is_none() -> None:
    with pytest.raises(ReservationError):
        reservation.check_owner(POD, claim(ownerReferences=[OWNER | {"controller": False}]))


def test_a_claim_of_the_group_is_for_its_pods_where_that_is_on() -> None:
    owner = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "name": "g", "uid": "x", "controller": True}
    reservation.check_owner(POD, claim(ownerReferences=[owner]), group_claims=True)
    with pytest.raises(ReservationError):
        reservation.check_owner(POD, claim(ownerReferences=[owner]))
    foreign = owner | {"apiVersion": "example.com/v1"}
    with pytest.raises(ReservationError, match="neither Pod nor PodGroup g is the owner"):
        reservation.check_owner(POD, claim(ownerReferences=[foreign]), group_claims=True)


def test_a_pod_without_group_is_refused_in_a_sentence_where_group_claims_are_on() -> None:
    alone = POD | {"spec": {"containers": []}}
    with pytest.raises(ReservationError, match="ResourceClaim ns/c was not created for Pod ns/p"):
        reservation.check_owner(alone, claim(), group_claims=True)


def test_reservations_are_known_by_uid_and_those_of_groups_by_name() -> None:
    consumer = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "?"}
    assert reservation.is_reserved_for(POD, {"status": {"reservedFor": [{"uid": "pod-1"}]}})
    assert reservation.is_reserved_for(POD, {"status": {"reservedFor": [consumer]}}, group_claims=True)
    assert not reservation.is_reserved_for(POD, {"status": {"reservedFor": [consumer]}})
    assert not reservation.is_reserved_for(POD, {})


def test_the_consumer_is_the_group_if_it_has_the_same_entry() -> None:
    same, other = {"name": "gpu", "resourceClaimTemplateName": "big"}, {"name": "nic", "resourceClaimName": "n"}
    pod = {"resource": "pods", "name": "p", "uid": "pod-1"}
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "g", "uid": "group-1"}
    assert reservation.consumer_of(POD, same) == pod
    assert reservation.consumer_of(POD, same, GROUP) == group
    assert reservation.consumer_of(POD, other, GROUP) == pod


def test_a_pod_of_no_group_cannot_use_one() -> None:
    alone = POD | {"spec": {"containers": []}}
    with pytest.raises(ReservationError, match="Pod ns/p does not belong to a PodGroup"):
        reservation.consumer_of(alone, {"name": "gpu", "resourceClaimName": "x"}, GROUP)
