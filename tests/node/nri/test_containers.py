"""What a container runtime describes as drivers see it, with claims, and back again."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from dra_sdk import AllocatedDevice, Claim, HeldClaim, HeldDevice, Node
from dra_sdk.errors import ClaimError, NriError
from dra_sdk.node.nri.containers import ContainerTable
from dra_sdk.node.nri.descriptions import claim_variables
from dra_sdk.nri import Container, ContainerResources
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


def table(
    *containers: pb.Container, pods: int = 1, namespace: str = "shop", held: Sequence[HeldClaim] = ()
) -> ContainerTable:
    filled = ContainerTable(NAME, lambda: held)
    filled.replace([pod(number, namespace) for number in range(pods)], containers)
    return filled


def only(table: ContainerTable) -> Container:
    (container,) = table.snapshot().containers.values()
    return container


def test_a_pod_has_what_a_driver_of_networks_needs() -> None:
    found = table().pod(pod())
    assert (found.id, found.uid, found.cgroup_parent) == ("s0", "u0", "/kubepods/pod0")
    assert (found.labels, found.annotations) == ({"app": "web"}, {"note": "x"})
    assert found.network_namespace == "/var/run/netns/x"
    assert str(found) == "pod shop/web"


def test_each_request_has_one_variable_for_all_its_devices() -> None:
    devices = [AllocatedDevice("a/x", "n", "0", None), AllocatedDevice("a/x", "n", "1", None)]
    claim = Claim("shop", "cards", "11_22", Node("n"), [*devices, AllocatedDevice("b", "n", "2", None)])
    found = claim_variables(NAME, claim)
    assert {request: edits.env for request, edits in found.items()} == {
        "a": {f"{ENV}a": "cards"},
        "b": {f"{ENV}b": "cards"},
    }


def test_a_uid_that_is_no_name_is_found_by_its_hash() -> None:
    held = HeldClaim("shop", "cards", "no/name", (HeldDevice("a", "n", "0"),))
    claim = Claim("shop", "cards", "no/name", Node("n"), [AllocatedDevice("a", "n", "0", None)])
    (name,) = claim_variables(NAME, claim)["a"].env
    assert only(table(container(0, f"{name}=cards"), held=[held])).claims == (held,)


def test_a_container_has_the_devices_of_its_requests() -> None:
    snapshot = table(container(0, f"{ENV}a=cards"), held=[HELD]).snapshot()
    using = snapshot.containers["c0"]
    assert [device.name for device in using.claims[0].devices] == ["0"]
    assert using.pod.claims == (HELD,)
    assert snapshot.held == [HELD]


def test_a_claim_of_another_namespace_or_without_devices_does_not_count() -> None:
    filled = table(container(0, f"{ENV}a=cards"), namespace="other", held=[HELD])
    assert only(filled).claims == ()
    with pytest.raises(ClaimError, match=r"uses claim 11_22, which driver cards\.example\.com does not hold"):
        filled.check("c0", filled.snapshot())


def test_a_container_that_ends_while_it_is_created_is_refused() -> None:
    filled = table(container(0))
    snapshot = filled.snapshot()
    filled.remove("c0")
    with pytest.raises(NriError, match="container c0 has ended while it was created"):
        filled.check("c0", snapshot)


def test_containers_that_have_stopped_do_not_count() -> None:
    assert only(table(container(0), container(1, state=pb.CONTAINER_STOPPED))).id == "c0"


def test_a_pod_uses_the_claims_of_its_containers_until_it_ends() -> None:
    joined = replace(HELD, pods=())
    found = table(
        container(0, f"{ENV}a=cards"),
        container(1, f"{ENV}a=cards", of=1, state=pb.CONTAINER_STOPPED),
        pods=3,
        held=[joined],
    )
    found.add(pod(2), container(2, f"{ENV}a=cards", of=2))
    found.remove("c0")
    found.remove("c2", refused=True)
    assert [found.pod(pod(number)).claims for number in range(3)] == [(joined,), (joined,), ()]
    found.remove_pod("s0")
    assert found.pod(pod(0)).claims == ()


def test_a_pod_takes_its_containers_along() -> None:
    found = table(container(0), container(1, of=1), pods=2)
    found.remove_pod("s0")
    assert only(found).id == "c1"


def test_a_malformed_variable_counts_as_none_for_a_container_that_runs() -> None:
    assert only(table(container(0, f"DRA_CLAIM_{NAME}_x=y"), held=[HELD])).claims == ()


def test_containers_with_the_same_cpus_share_one_set() -> None:
    described = [container(number) for number in range(4)]
    for each in described[:2]:
        each.linux.resources.cpu.cpus = "0-127"
    found = table(*described)
    found.record({name: ContainerResources(cpus=frozenset(range(128))) for name in ("c2", "c3")})
    first, *others = (container.resources.cpus for container in found.snapshot().containers.values())
    assert first == frozenset(range(128))
    assert others[0] is first
    assert others[1] is others[2]
    assert found.adjusted("c2").cpus is found.adjusted("c3").cpus
