from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError, Features
from tests.tools.scheduling.allocator.build import (
    NEWER,
    a_slice,
    allocated,
    allocator,
    claim,
    device,
    node,
    of_1_37,
    request,
    shared,
)

ONLY_N1 = {
    "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}],
}


def term(*requirements: dict[str, Any]) -> dict[str, Any]:
    return {"nodeSelectorTerms": [{"matchExpressions": list(requirements)}]}


def need(key: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": "In" if values else "Exists", **({"values": list(values)} if values else {})}


def one(*slices: dict[str, Any], features: Features | None = None, **fields: Any) -> dict[str, Any]:
    found = allocated(allocator(*slices, features=features), claim(request("r", **fields)))
    assert found
    return found[0]


def test_a_device_of_the_node() -> None:
    assert one(a_slice(device("gpu-0"))) == {
        "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]},
        "nodeSelector": ONLY_N1,
    }


def test_admin_access_and_tolerations_are_recorded() -> None:
    (found,) = one(a_slice(device("a")), adminAccess=True, tolerations=[{"operator": "Exists"}])["devices"]["results"]
    assert found["adminAccess"] is True
    assert found["tolerations"] == [{"operator": "Exists"}]


def test_operations_that_are_skipped_are_recorded() -> None:
    gpu = a_slice(device("a"), skipNodeOperations=["*"])
    able = node() | {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    found = allocated(allocator(gpu, features=NEWER), claim(request("r")), at=able)
    assert found
    assert found[0]["devices"]["results"][0]["skipNodeOperations"] == ["*"]
    assert allocated(allocator(gpu, features=NEWER), claim(request("r"))) is None
    assert "skipNodeOperations" not in one(gpu, features=of_1_37())["devices"]["results"][0]
    off = of_1_37(DRAListTypeAttributes=True)
    assert allocated(allocator(gpu, features=off), claim(request("r")), at=able) is None


def test_a_share_has_an_id_and_says_what_it_consumes() -> None:
    gpu = a_slice(shared("a", capacity={"memory": "80Gi"}))
    (found,) = one(gpu, capacity={"requests": {"memory": "1024Mi"}})["devices"]["results"]
    assert (found["shareID"], found["consumedCapacity"]) == ("share", {"memory": "1Gi"})
    (alone,) = one(gpu, features=Features(consumable_capacity=False))["devices"]["results"]
    assert not {"shareID", "consumedCapacity"} & set(alone)


def test_binding_conditions_are_copied() -> None:
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    (found,) = one(a_slice(device("a") | conditions))["devices"]["results"]
    assert {key: found[key] for key in conditions} == conditions


def selector(*slices: dict[str, Any]) -> dict[str, Any] | None:
    """Of a claim for one device of each slice."""
    found = allocated(allocator(*slices), claim(request("r", count=len(slices))))
    assert found
    result: dict[str, Any] | None = found[0].get("nodeSelector")
    return result


def test_devices_for_all_nodes_can_be_used_everywhere() -> None:
    assert selector(a_slice(device("a"), allNodes=True)) is None


def test_all_node_selectors_have_to_hold() -> None:
    in_a, gpu = need("zone", "a", "b"), need("gpu")
    node = {"metadata": {"name": "n1", "labels": {"zone": "a", "gpu": ""}}}
    slices = [
        a_slice(device("a"), pool="p1", nodeSelector=term(in_a)),
        a_slice(device("b"), pool="p2", nodeSelector=term(need("zone", "b", "a"), gpu)),
        a_slice(device("c"), pool="p3", allNodes=True),
    ]
    found = allocated(allocator(*slices), claim(request("r", count=3)), at=node)
    assert found
    assert found[0]["nodeSelector"] == term(in_a, gpu)


def test_one_local_device_ties_the_claim_to_the_node() -> None:
    assert selector(a_slice(device("a"), pool="a", allNodes=True), a_slice(device("b"), pool="b")) == ONLY_N1


def test_a_device_that_binds_to_the_node_ties_the_claim_to_it() -> None:
    assert selector(a_slice(device("a") | {"bindsToNode": True}, allNodes=True)) == ONLY_N1


def test_devices_may_say_themselves_where_they_are() -> None:
    local = a_slice(device("a") | {"nodeName": "n1"}, perDeviceNodeSelection=True)
    everywhere = a_slice(device("a") | {"allNodes": True}, perDeviceNodeSelection=True)
    assert selector(local) == ONLY_N1
    assert selector(everywhere) is None


def test_a_selector_with_several_terms_cannot_be_combined() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}] * 2
    with pytest.raises(AllocationError, match="claim ns/c: unsupported node selector with 2 terms of device"):
        selector(a_slice(device("a"), nodeSelector={"nodeSelectorTerms": terms}))


def test_nothing_is_shared_with_the_objects_it_came_from() -> None:
    tolerations = [{"operator": "Exists"}]
    found = one(a_slice(device("a")), tolerations=tolerations)
    found["devices"]["results"][0]["tolerations"][0]["operator"] = "Equal"
    assert tolerations == [{"operator": "Exists"}]
