"""Reading ResourceClaims, leniently."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.errors import ClaimError
from dra_sdk.wire.claim import Allocation, read_claim
from dra_sdk.wire.dra import AnsweredDevice, ClaimRef

FULL: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {"namespace": "default", "name": "lamps", "uid": "u-1", "generation": 3, "labels": {"a": "b"}},
    "spec": {"devices": {"requests": [{"name": "r"}]}},
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "r/big",
                        "driver": "lamp.example.com",
                        "pool": "node-a",
                        "device": "lamp-0",
                        "adminAccess": True,
                        "shareID": "a671734a-e8e5-11e4-8fde-42010af09327",
                        "consumedCapacity": {"memory": "2Gi"},
                        "tolerations": [],
                        "aFutureField": 1,
                    }
                ],
                "config": [
                    {
                        "source": "FromClass",
                        "requests": ["r"],
                        "opaque": {"driver": "lamp.example.com", "parameters": {"apiVersion": "v1", "x": 1}},
                    }
                ],
            },
            "nodeSelector": {},
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    },
}


RESULT = {"request": "r", "driver": "lamp.example.com", "pool": "node-a", "device": "lamp-0"}


def allocated(**devices: Any) -> dict[str, Any]:
    return {"status": {"allocation": {"devices": devices}}}


def test_all_that_preparation_needs_is_read() -> None:
    claim = read_claim(FULL)
    assert (claim.uid, claim.consumers) == ("u-1", ["p"])
    assert claim.allocation
    (result,) = claim.allocation.results
    assert (result.request, result.driver, result.pool, result.device) == (
        "r/big", "lamp.example.com", "node-a", "lamp-0",
    )  # fmt: skip
    assert result.admin_access is True
    assert result.share_id == "a671734a-e8e5-11e4-8fde-42010af09327"
    assert result.consumed_capacity == {"memory": "2Gi"}
    (config,) = claim.allocation.config
    assert (config.source, config.requests) == ("FromClass", ["r"])
    assert config.opaque
    assert config.opaque.parameters == {"apiVersion": "v1", "x": 1}


@pytest.mark.parametrize("status", [None, {}, {"allocation": None}, "absent"])
def test_a_claim_that_is_not_allocated_is_a_claim(status: Any) -> None:
    raw = {"metadata": {"uid": "u-1"}, **({} if status == "absent" else {"status": status})}
    assert read_claim(raw).allocation is None


@pytest.mark.parametrize("devices", [None, {}, {"results": None, "config": None}, {"results": [], "config": []}])
def test_null_stands_for_absent(devices: Any) -> None:
    claim = read_claim({"metadata": {"uid": "u"}, "status": {"allocation": {"devices": devices}}})
    assert claim.allocation == Allocation([], [])


@pytest.mark.parametrize(
    ("raw", "where"),
    [
        ([], "the whole"),
        ("claim", "the whole"),
        ({"metadata": []}, "metadata"),
        ({"status": {"allocation": {"devices": {"results": [{}]}}}}, "status.allocation.devices.results.0.request"),
        ({"status": {"allocation": {"devices": {"results": {}}}}}, "status.allocation.devices.results"),
        ({"status": {"allocation": {"devices": {"config": [{"source": "FromHeaven"}]}}}}, "config.0.source"),
        ({"status": {"allocation": []}}, "status.allocation: must be an object"),
        ({"status": {"allocation": {"devices": [1]}}}, "status.allocation.devices: must be an object"),
        ({"status": {"allocation": {"devices": {"results": [None]}}}}, "status.allocation.devices.results.0: must"),
        ({"status": {"reservedFor": [{"name": 7}]}}, "status.reservedFor.0.name: must be a string, is a number"),
        ({"metadata": {"uid": 7}}, "metadata.uid: must be a string, is a number"),
        (allocated(config=[{"source": "FromClaim", "requests": [1]}]), "devices.config.0.requests.0: must be a string"),
        (allocated(config=[{"source": "FromClaim", "opaque": {}}]), "devices.config.0.opaque.driver: is required"),
        (allocated(results=[{**RESULT, "adminAccess": "true"}]), "results.0.adminAccess: must be a boolean"),
        (allocated(results=[RESULT, {**RESULT, "pool": 1}]), "results.1.pool: must be a string"),
        (allocated(results=[{**RESULT, "consumedCapacity": {"m": 1}}]), "results.0.consumedCapacity.m: must be a str"),
    ],
)
def test_what_is_no_claim_is_refused_by_field(raw: Any, where: str) -> None:
    with pytest.raises(ClaimError, match="no ResourceClaim") as caught:
        read_claim(raw)
    assert where in str(caught.value)


def test_a_claim_is_named_as_users_know_it() -> None:
    assert str(ClaimRef("default", "lamps", "u-1")) == "claim default/lamps (u-1)"
    assert AnsweredDevice("r", "p", "d").cdi_ids == ()
