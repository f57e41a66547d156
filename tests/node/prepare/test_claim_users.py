"""Who uses a claim: pods that come after its preparation, pods of a PodGroup, and strangers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dra_sdk import HeldClaim
from dra_sdk.errors import ApiError, ClaimError, RetriableError, UnreachableError
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.files import claim_lock
from dra_sdk.node.prepare.allocation import read_status
from dra_sdk.node.prepare.claim_users import ClaimUsers, reserved_pod_groups, reserved_pods
from dra_sdk.nri import PodSandbox
from tests.node.prepare.world import World

GROUP = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g-1"}
UID = "c-1"


def sandbox(number: int, namespace: str = "default") -> PodSandbox:
    return PodSandbox(f"s{number}", namespace, f"web-{number}", f"p-{number}")


def user(number: int) -> dict[str, str]:
    return {"resource": "pods", "name": f"web-{number}", "uid": f"p-{number}"}


class Held:
    """A claim that is prepared, and reserved for the first pod."""

    def __init__(self, root: Path) -> None:
        self.world = World(root)
        self.ref = self.world.claim(UID, "lamp-0")
        self.raw = self.world.api[UID]
        self.raw["metadata"].update(namespace=self.ref.namespace)
        self.reserve(user(1))
        self.preparer = self.world.preparer()
        self.preparer.prepare(self.ref)
        self.world.fetched.clear()

    def reserve(self, *users: dict[str, str]) -> None:
        self.raw["status"]["reservedFor"] = list(users)

    def admit(self, number: int, *running: str) -> tuple[str, ...]:
        self.preparer.admit(self.claim, sandbox(number, self.ref.namespace), running)
        return tuple(self.claim.pods)

    def pod(self, number: int, group: str, uid: str = "") -> None:
        metadata = {"name": f"web-{number}", "uid": uid or f"p-{number}"}
        self.world.pods[self.ref.namespace, f"web-{number}"] = {
            "metadata": metadata,
            "spec": {"schedulingGroup": {"podGroupName": group}},
        }

    @property
    def claim(self) -> HeldClaim:
        (claim,) = self.preparer.held()
        return claim


@pytest.fixture
def held(tmp_path: Path) -> Held:
    return Held(tmp_path)


def test_those_that_a_claim_is_reserved_for_are_pods_and_groups_of_kubernetes() -> None:
    others = [{"resource": "podgroups", "name": "group", "uid": "u-3"}, {**user(2), "apiGroup": "example.com"}]
    raw = {"metadata": {"uid": UID}, "status": {"reservedFor": [user(1), *others, GROUP, user(4)]}}
    status = read_status(raw, ClaimRef("ns", "claim", UID))
    assert (reserved_pods(status), reserved_pod_groups(status)) == (["p-1", "p-4"], {"gang"})
    nobody = read_status({"metadata": {"uid": UID}}, ClaimRef("ns", "claim", UID))
    assert (reserved_pods(nobody), reserved_pod_groups(nobody)) == ([], set())


def test_a_pod_that_comes_later_uses_the_claim_also_after_a_restart(held: Held) -> None:
    held.reserve(user(1), user(2))
    assert held.admit(2) == ("p-1", "p-2")
    held.preparer = held.world.preparer()
    assert held.claim.pods == ("p-1", "p-2")
    assert held.claim.complete


def test_a_stranger_is_refused_and_nothing_changes(held: Held) -> None:
    with pytest.raises(ClaimError, match=r"is not reserved for pod .*/web-2 \(p-2\)"):
        held.admit(2)
    assert held.claim.pods == ("p-1",)


def test_pods_of_the_group_that_reserves_a_claim_use_it_while_they_run(held: Held) -> None:
    held.reserve(GROUP)
    for number in (2, 3):
        held.pod(number, "gang")
    assert held.admit(2, "p-1", "p-2") == ("p-2", "p-1")
    assert held.admit(3, "p-2", "p-3") == ("p-3", "p-2")


@pytest.mark.parametrize(("group", "uid"), [("other", "p-2"), ("", "p-2"), ("gang", "p-9")])
def test_a_pod_of_another_group_or_of_the_same_name_is_a_stranger(held: Held, group: str, uid: str) -> None:
    held.reserve(GROUP)
    held.pod(2, group, uid)
    with pytest.raises(ClaimError, match="is not reserved for pod"):
        held.admit(2, "p-2")
    with pytest.raises(ClaimError, match="is not reserved for pod"):
        held.admit(3)  # which the API server does not have


def test_a_claim_that_was_generated_for_a_pod_is_read_once_for_others(held: Held) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "web-1", "uid": "p-1", "controller": True}
    held.raw["metadata"]["ownerReferences"] = [owner]
    for number in (2, 3):
        with pytest.raises(ClaimError, match="is not reserved for pod"):
            held.admit(number)
    assert held.world.fetched == [UID]
    held.preparer.unprepare(held.ref)
    held.preparer.prepare(held.ref)
    held.world.fetched.clear()
    with pytest.raises(ClaimError, match="is not reserved for pod"):
        held.admit(2)
    assert held.world.fetched == [UID]


def test_a_claim_that_was_deleted_or_replaced_is_used_by_nobody_else(held: Held) -> None:
    held.raw["metadata"]["uid"] = "c-2"
    with pytest.raises(ClaimError, match="the claim was replaced: it has UID c-2 now"):
        held.admit(2)
    held.world.api.clear()
    with pytest.raises(ClaimError, match="was deleted"):
        held.admit(2)


def test_while_the_kubelet_calls_for_the_claim_its_users_do_not_change(held: Held) -> None:
    held.reserve(user(1), user(2))
    with held.world.locks[-1].hold([claim_lock(UID)]), pytest.raises(RetriableError, match="being prepared or unprep"):
        held.admit(2)
    assert held.claim.pods == ("p-1",)


def raising(error: Exception) -> Any:
    def read(*_arguments: object) -> Any:
        raise error

    return read


def test_an_api_server_that_does_not_answer_is_no_refusal(held: Held) -> None:
    users = ClaimUsers(raising(UnreachableError("connection refused")), held.world.fetch_pod)
    with pytest.raises(UnreachableError):
        users.read(held.ref, sandbox(2))
    held.reserve(GROUP)
    users = ClaimUsers(held.world.fetch, raising(UnreachableError("connection refused")))
    with pytest.raises(UnreachableError):
        users.read(held.ref, sandbox(2))
    users = ClaimUsers(held.world.fetch, raising(ApiError("pods is forbidden", status=403)))
    with pytest.raises(RetriableError, match=r"the role needs get of pods, which .*podGroupClaims: true"):
        users.read(held.ref, sandbox(2))
