from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.simulator.allocation import AllocatedDevice, allocation, class_name

DRIVER = "gpu.example.com"
OF_CLASS = {"opaque": {"driver": DRIVER, "parameters": {"from": "class"}}}
OF_CLAIM = {"opaque": {"driver": DRIVER, "parameters": {"from": "claim"}}}
CLASSES = {"plain": {"spec": {}}, "tuned": {"spec": {"config": [OF_CLASS]}}}


@pytest.fixture
def claim() -> dict[str, Any]:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "tuned"}},
        {"name": "b", "firstAvailable": [{"name": "big", "deviceClassName": "tuned"}]},
        {"name": "c", "exactly": {"deviceClassName": "plain"}},
    ]
    return {"metadata": {"name": "claim-1"}, "spec": {"devices": {"requests": requests}}}


def device(request: str, **more: Any) -> AllocatedDevice:
    return AllocatedDevice(request, DRIVER, "node-1", "d0", **more)


def test_results_and_node(claim: dict[str, Any]) -> None:
    devices = [
        device("a", admin_access=True),
        device("b/big", share_id="s", more={"consumedCapacity": {"memory": "1Gi"}}),
        device("c"),
    ]
    written = allocation(claim, {}, devices, "node-1")
    plain = {"driver": DRIVER, "pool": "node-1", "device": "d0"}
    assert written["devices"] == {
        "results": [
            {"request": "a", **plain, "adminAccess": True},
            {"request": "b/big", **plain, "shareID": "s", "consumedCapacity": {"memory": "1Gi"}},
            {"request": "c", **plain},
        ]
    }
    terms = written["nodeSelector"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]


def test_the_configuration_of_the_classes_comes_before_the_claims(claim: dict[str, Any]) -> None:
    def of_claim(*requests: str) -> dict[str, Any]:
        return {**OF_CLAIM, "requests": list(requests)}

    claim["spec"]["devices"]["config"] = [OF_CLAIM, of_claim("b"), of_claim("b/big"), of_claim("b/small", "x")]
    written = allocation(claim, CLASSES, [device("a"), device("a"), device("b/big"), device("c")], "node-1")
    assert written["devices"]["config"] == [
        {"source": "FromClass", "requests": ["a"], **OF_CLASS},
        {"source": "FromClass", "requests": ["b/big"], **OF_CLASS},
        {"source": "FromClaim", **OF_CLAIM},
        {"source": "FromClaim", **of_claim("b")},
        {"source": "FromClaim", **of_claim("b/big")},
    ]


@pytest.mark.parametrize("request_name", ["x", "b", "a/sub", "b/small"])
def test_a_request_that_is_not_there(claim: dict[str, Any], request_name: str) -> None:
    with pytest.raises(KeyError, match=f"claim claim-1 has no request '{request_name}'"):
        class_name(claim, request_name)
