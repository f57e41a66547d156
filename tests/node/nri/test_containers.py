"""What a container runtime describes as drivers see it, with claims, and back again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from dra_sdk import AllocatedDevice, Claim, ContainerResources, HeldClaim, HeldDevice, Node
from dra_sdk.errors import ClaimError
from dra_sdk.node.nri.containers import ContainerTable, claim_variables, fill, resources_of
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

NAME = "cards.example.com"
HELD = HeldClaim("shop", "cards", "11_22", (HeldDevice("a/x", "n", "0"), HeldDevice("b", "n", "1")))
ENV = f"DRA_CLAIM_{NAME}_11_22_"


def pod(number: int = 0, namespace: str = "shop") -> pb.PodSandbox:
    found = pb.PodSandbox(id=f"s{number}", name="web", uid=f"u{number}", namespace=namespace, labels={"app": "web"})
    found.annotations["note"] = "x"
    found.linux.cgroup_parent = "/kubepods/pod0"
    found.linux.namespaces.add(type="ipc", path="/ipc")
    found.linux.namespaces.add(type="network", path="/var/run/netns/x")
    return found


def container(number: int = 0, *env: str, of: int = 0, state: Any = pb.CONTAINER_RUNNING) -> pb.Container:
    return pb.Container(id=f"c{number}", name="main", pod_sandbox_id=f"s{of}", env=env, state=state)


def table(*containers: pb.Container, pods: int = 1) -> ContainerTable:
    found = ContainerTable(NAME)
    found.replace([pod(number) for number in range(pods)], containers)
    return found


def test_a_pod_has_what_a_driver_of_networks_needs() -> None:
    found = table().pod(pod(), [])
    assert (found.id, found.uid, found.cgroup_parent) == ("s0", "u0", "/kubepods/pod0")
    assert (found.labels, found.annotations) == ({"app": "web"}, {"note": "x"})
    assert found.network_namespace == "/var/run/netns/x"
    assert str(found) == "pod shop/web"


def test_each_request_has_one_variable_for_all_its_devices() -> None:
    devices = [AllocatedDevice("a/x", "n", "0", None), AllocatedDevice("a/x", "n", "1", None)]
    claim = Claim("shop", "cards", "11_22", Node("n"), [*devices, AllocatedDevice("b", "n", "2", None)])
    found = claim_variables(NAME)(claim)
    assert {request: edits.env for request, edits in found.items()} == {
        "a": {f"{ENV}a": "cards"},
        "b": {f"{ENV}b": "cards"},
    }


def test_a_uid_that_is_no_name_is_found_by_its_hash() -> None:
    held = HeldClaim("shop", "cards", "no/name", (HeldDevice("a", "n", "0"),))
    claim = Claim("shop", "cards", "no/name", Node("n"), [AllocatedDevice("a", "n", "0", None)])
    (name,) = claim_variables(NAME)(claim)["a"].env
    (found,) = table(container(0, f"{name}=cards")).containers([held])
    assert found.claims == (held,)


def test_a_container_has_the_devices_of_its_requests() -> None:
    (found,) = table(container(0, f"{ENV}a=cards")).containers([HELD])
    assert [each.name for each in found.claims[0].devices] == ["0"]
    assert found.pod.claims == (HELD,)


def test_a_claim_of_another_namespace_or_without_devices_does_not_count() -> None:
    found = ContainerTable(NAME)
    found.replace([pod(namespace="other")], [container(0, f"{ENV}a=cards")])
    assert [each.claims for each in found.containers([HELD])] == [()]
    with pytest.raises(ClaimError, match=r"uses claim 11_22, which driver cards\.example\.com does not hold"):
        found.check(container(0, f"{ENV}a=cards"), "other", [HELD])


def test_containers_that_have_stopped_do_not_count() -> None:
    found = table(container(0), container(1, state=pb.CONTAINER_STOPPED))
    assert [each.id for each in found.containers([])] == ["c0"]


def test_a_pod_uses_the_claims_of_its_containers_until_it_ends() -> None:
    joined = replace(HELD, pods=())
    found = table(
        container(0, f"{ENV}a=cards"), container(1, f"{ENV}a=cards", of=1, state=pb.CONTAINER_STOPPED), pods=3
    )
    found.add(pod(2), container(2, f"{ENV}a=cards", of=2))
    found.remove("c0")
    found.remove("c2", refused=True)
    assert [found.pod(pod(number), [joined]).claims for number in range(3)] == [(joined,), (joined,), ()]
    found.remove_pod("s0")
    assert found.pod(pod(0), [joined]).claims == ()


def test_a_pod_takes_its_containers_along() -> None:
    found = table(container(0), container(1, of=1), pods=2)
    found.remove_pod("s0")
    assert [each.id for each in found.containers([])] == ["c1"]


def test_a_malformed_variable_counts_as_none_for_a_container_that_runs() -> None:
    (found,) = table(container(0, f"DRA_CLAIM_{NAME}_x=y")).containers([HELD])
    assert found.claims == ()


def test_resources_survive_a_message() -> None:
    resources = ContainerResources(frozenset({0, 1, 5}), frozenset({1}), -1, {"1GB": 1 << 30})
    message = pb.LinuxResources()
    fill(message, resources)
    assert (message.cpu.cpus, message.cpu.mems) == ("0-1,5", "1")
    assert resources_of(message) == resources
    assert resources_of(pb.LinuxResources()) == ContainerResources()


@pytest.mark.parametrize("cpus", ["garbage", "3-1", "0-99999999", "-", "é"])
def test_a_list_that_cannot_be_read_counts_as_unknown(cpus: str) -> None:
    assert resources_of(pb.LinuxResources(cpu=pb.LinuxCPU(cpus=cpus))) == ContainerResources()


def test_containers_with_the_same_cpus_share_one_set() -> None:
    described = [container(number) for number in range(4)]
    for each in described[:2]:
        each.linux.resources.cpu.cpus = "0-127"
    found = table(*described)
    for name in ("c2", "c3"):
        found.update(name, ContainerResources(cpus=frozenset(range(128))), adjusted=True)
    first, *others = (each.resources.cpus for each in found.containers([]))
    assert first == frozenset(range(128))
    assert others[0] is first
    assert others[1] is others[2]
    assert found.adjusted("c2").cpus is found.adjusted("c3").cpus
