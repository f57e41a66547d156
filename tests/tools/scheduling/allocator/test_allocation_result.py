from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.model.claim import base_request
from dra_sdk.tools.scheduling.allocator import AllocationError, SchedulerFeatures
from tests.tools.scheduling.allocator.build import (
    NEWER,
    a_slice,
    allocated,
    allocator,
    claim,
    device,
    device_class,
    exact_request,
    first_available,
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


def one(*slices: dict[str, Any], features: SchedulerFeatures | None = None, **fields: Any) -> dict[str, Any]:
    allocations = allocated(allocator(*slices, features=features), claim(request("r", **fields)))
    assert allocations
    return allocations[0]


def test_a_device_of_the_node() -> None:
    assert one(a_slice(device("gpu-0"))) == {
        "devices": {"results": [{"request": "r", "driver": "gpu.example.com", "pool": "n1", "device": "gpu-0"}]},
        "nodeSelector": ONLY_N1,
    }


def test_admin_access_and_tolerations_are_recorded() -> None:
    (result,) = one(a_slice(device("a")), adminAccess=True, tolerations=[{"operator": "Exists"}])["devices"]["results"]
    assert result["adminAccess"] is True
    assert result["tolerations"] == [{"operator": "Exists"}]


def test_skipped_operations_are_recorded() -> None:
    gpu = a_slice(device("a"), skipNodeOperations=["*"])
    able = node() | {"status": {"declaredFeatures": ["DRAOptionalNodeOperations"]}}
    allocations = allocated(allocator(gpu, features=NEWER), claim(request("r")), at=able)
    assert allocations
    assert allocations[0]["devices"]["results"][0]["skipNodeOperations"] == ["*"]
    assert allocated(allocator(gpu, features=NEWER), claim(request("r"))) is None
    assert "skipNodeOperations" not in one(gpu, features=of_1_37())["devices"]["results"][0]
    off = of_1_37(DRAListTypeAttributes=True)
    assert allocated(allocator(gpu, features=off), claim(request("r")), at=able) is None


def test_a_share_has_an_id_and_its_consumed_capacity() -> None:
    gpu = a_slice(shared("a", capacity={"memory": "80Gi"}))
    (result,) = one(gpu, capacity={"requests": {"memory": "1024Mi"}})["devices"]["results"]
    assert (result["shareID"], result["consumedCapacity"]) == ("share", {"memory": "1Gi"})
    (alone,) = one(gpu, features=SchedulerFeatures(consumable_capacity=False))["devices"]["results"]
    assert not {"shareID", "consumedCapacity"} & set(alone)


def test_binding_conditions_are_copied() -> None:
    conditions = {"bindingConditions": ["ready"], "bindingFailureConditions": ["broken"]}
    (result,) = one(a_slice(device("a") | conditions))["devices"]["results"]
    assert {key: result[key] for key in conditions} == conditions


def selector(*slices: dict[str, Any]) -> dict[str, Any] | None:
    """Of a claim for one device of each slice."""
    allocations = allocated(allocator(*slices), claim(request("r", count=len(slices))))
    assert allocations
    result: dict[str, Any] | None = allocations[0].get("nodeSelector")
    return result


def test_devices_for_all_nodes_can_be_used_everywhere() -> None:
    assert selector(a_slice(device("a"), allNodes=True)) is None


def test_all_node_selectors_must_match() -> None:
    in_a, gpu = need("zone", "a", "b"), need("gpu")
    node = {"metadata": {"name": "n1", "labels": {"zone": "a", "gpu": ""}}}
    slices = [
        a_slice(device("a"), pool="p1", nodeSelector=term(in_a)),
        a_slice(device("b"), pool="p2", nodeSelector=term(need("zone", "b", "a"), gpu)),
        a_slice(device("c"), pool="p3", allNodes=True),
    ]
    allocations = allocated(allocator(*slices), claim(request("r", count=3)), at=node)
    assert allocations
    assert allocations[0]["nodeSelector"] == term(in_a, gpu)


def test_one_local_device_restricts_the_claim_to_the_node() -> None:
    assert selector(a_slice(device("a"), pool="a", allNodes=True), a_slice(device("b"), pool="b")) == ONLY_N1


def test_a_device_with_binds_to_node_restricts_the_claim_to_the_node() -> None:
    assert selector(a_slice(device("a") | {"bindsToNode": True}, allNodes=True)) == ONLY_N1


def test_devices_may_have_their_own_node() -> None:
    local = a_slice(device("a") | {"nodeName": "n1"}, perDeviceNodeSelection=True)
    everywhere = a_slice(device("a") | {"allNodes": True}, perDeviceNodeSelection=True)
    assert selector(local) == ONLY_N1
    assert selector(everywhere) is None


def test_a_selector_with_several_terms_cannot_be_combined() -> None:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "DoesNotExist"}]}] * 2
    with pytest.raises(AllocationError, match="claim ns/c: unsupported node selector with 2 terms of device"):
        selector(a_slice(device("a"), nodeSelector={"nodeSelectorTerms": terms}))


def test_the_result_shares_nothing_with_its_input() -> None:
    tolerations = [{"operator": "Exists"}]
    result = one(a_slice(device("a")), tolerations=tolerations)
    result["devices"]["results"][0]["tolerations"][0]["operator"] = "Equal"
    assert tolerations == [{"operator": "Exists"}]


def opaque(text: str) -> dict[str, Any]:
    return {"opaque": {"driver": "gpu.example.com", "parameters": {"is": text}}}


def of(
    *requests: dict[str, Any], entries: list[dict[str, Any]] | None = None, features: SchedulerFeatures | None = None
) -> list[tuple[Any, ...]]:
    """Source, requests and text of each entry."""
    classes = [
        device_class("gpu", config=[opaque("gpu")]),
        device_class("big", config=[opaque("big 1"), opaque("big 2")]),
    ]
    devices = a_slice(*(device(f"d{index}") for index in range(4)))
    allocations = allocated(
        allocator(devices, classes=classes, features=features), claim(*requests, config=entries or [])
    )
    assert allocations
    return [
        (entry["source"], entry.get("requests"), entry["opaque"]["parameters"]["is"])
        for entry in allocations[0]["devices"]["config"]
    ]


def test_classes_come_first_and_each_once() -> None:
    big = request("b", deviceClassName="big")
    assert of(request("a"), big, request("c"), entries=[opaque("mine")]) == [
        ("FromClass", ["a", "c"], "gpu"),
        ("FromClass", ["b"], "big 1"),
        ("FromClass", ["b"], "big 2"),
        ("FromClaim", None, "mine"),
    ]


def test_only_the_config_of_the_chosen_alternative_applies() -> None:
    both = first_available("r", big=exact_request("false", deviceClassName="big"), small=exact_request())
    entries = [{"requests": [name], **opaque(name)} for name in ("r", "r/big", "r/small")]
    assert of(both, entries=entries) == [
        ("FromClass", ["r/small"], "gpu"),
        ("FromClaim", ["r"], "r"),
        ("FromClaim", ["r/small"], "r/small"),
    ]


def test_an_entry_for_several_requests_is_repeated_for_each() -> None:
    entry = {"requests": ["a", "b"], **opaque("both")}
    config = of(request("a"), request("b"), request("c"), entries=[entry])
    assert config[1:] == [("FromClaim", ["a", "b"], "both")] * 2


def test_since_1_37_an_entry_appears_once() -> None:
    entries = [{"requests": ["a", "b"], **opaque("two")}, {"requests": ["a"], **opaque("one")}]
    config = of(request("a"), request("b"), request("c", deviceClassName="big"), entries=entries, features=NEWER)
    assert config == [
        ("FromClass", ["a", "b"], "gpu"),
        ("FromClass", ["c"], "big 1"),
        ("FromClass", ["c"], "big 2"),
        ("FromClaim", ["a", "b"], "two"),
        ("FromClaim", ["a"], "one"),
    ]


def test_since_1_37_an_entry_for_all_requests_names_none() -> None:
    both = first_available("r", big=exact_request("false", deviceClassName="big"), small=exact_request())
    entries = [{"requests": ["q", "r/small"], **opaque("all")}, {"requests": ["q", "r/big"], **opaque("some")}]
    assert of(request("q"), both, entries=entries, features=NEWER) == [
        ("FromClass", None, "gpu"),
        ("FromClaim", None, "all"),
        ("FromClaim", ["q", "r/big"], "some"),
    ]


def test_the_base_name_of_a_request_reference() -> None:
    assert (base_request("r/small"), base_request("r")) == ("r", "r")
