"""What is free in pools: the numbers of each release. tests/cluster/test_pool_status.py asks the real controller."""

from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.model import JSON
from dra_sdk.tools.usage.pool_status import PoolObjects, is_incomplete, pool_status
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation import validate
from tests.wire.validation.objects import claim, device, resource_slice

DRIVER = "gpu.example.com"
NOW = "2026-11-28T12:00:00Z"


def asked(slices: list[JSON], claims: list[JSON] = [], version: str = "1.37", **spec: Any) -> JSON:  # noqa: B006
    rules = [spec.pop("rule")] if "rule" in spec else []
    profile = ServerProfile.of(version, {"DRAResourcePoolStatus": True})
    status = pool_status({"driver": DRIVER, **spec}, PoolObjects(slices, claims, rules), profile, NOW)
    request = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
    stored = {**request, "metadata": {"name": "ask", "resourceVersion": "1"}, "spec": {"driver": DRIVER, "limit": 100}}
    assert not validate({**stored, "status": status}, old=stored, profile=profile, subresource="status")
    return status


def allocated(*names: str, **fields: Any) -> JSON:
    results = [{"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": name, **fields} for name in names]
    return claim(status={"allocation": {"devices": {"results": results}}})


def numbers(status: JSON) -> tuple[int, ...]:
    (pool,) = status["pools"]
    return tuple(pool[f"{name}Devices"] for name in ("total", "allocated", "available", "unavailable"))


@pytest.mark.parametrize(("version", "expected"), [("1.36", (4, 4, 0, 0)), ("1.37", (4, 2, 1, 1))])
def test_a_device_counts_once_and_an_observer_and_a_tainted_one_as_the_release_has_it(
    version: str, expected: tuple[int, ...]
) -> None:
    hot = device("d", taints=[{"key": "example.com/hot", "effect": "NoSchedule"}])
    slices = [resource_slice(device("a"), device("b"), device("c"), hot)]
    claims = [allocated("a", "b"), allocated("a"), allocated("c", adminAccess=True)]
    assert numbers(asked(slices, claims, version)) == expected


def test_a_rule_of_an_administrator_makes_its_devices_unavailable() -> None:
    rule = {"spec": {"deviceSelector": {"pool": "node-a", "device": "b"}, "taint": {"key": "k", "effect": "NoExecute"}}}
    slices = [resource_slice(device("a"), device("b"))]
    assert numbers(asked(slices, rule=rule)) == (2, 0, 1, 1)
    nothing: JSON = {"spec": {"taint": rule["spec"]["taint"]}}
    assert numbers(asked(slices, rule=nothing)) == (2, 0, 2, 0)


def test_pools_are_sorted_filtered_and_cut_at_the_limit() -> None:
    slices = [resource_slice(device(), pool={"name": name, "resourceSliceCount": 1}) for name in ("c", "a", "b")]
    status = asked(slices, limit=2)
    assert (status["poolCount"], [pool["poolName"] for pool in status["pools"]]) == (3, ["a", "b"])
    assert [pool["poolName"] for pool in asked(slices, poolName="c")["pools"]] == ["c"]
    assert asked(slices, poolName="nowhere") == {
        "poolCount": 0,
        "conditions": [
            {
                "type": "Complete",
                "status": "True",
                "reason": "CalculationComplete",
                "message": "Calculated status for 0 pools",
                "lastTransitionTime": NOW,
            }
        ],
    }


@pytest.mark.parametrize(("version", "prefix"), [("1.36", ""), ("1.37", "PoolIncomplete: ")])
def test_a_pool_without_all_slices_of_its_newest_generation_has_no_numbers(version: str, prefix: str) -> None:
    old = resource_slice(device("old"))
    new = resource_slice(device("new"), pool={"name": "node-a", "generation": 2, "resourceSliceCount": 2})
    status = asked([old, new], version=version)
    assert is_incomplete(status)
    (pool,) = status["pools"]
    sentence = f"pool {DRIVER}/node-a is incomplete: observed 1/2 slices at generation 2"
    assert (pool["validationError"], "totalDevices" in pool) == (prefix + sentence, False)


def partition(name: str, profile: str, memory: str) -> JSON:
    consumed = [{"counterSet": "gpu", "counters": {"memory": {"value": memory}}}]
    return device(name, attributes={"profile": {"string": profile}}, consumesCounters=consumed)


def partitioned(*devices: JSON, memory: str | None = "40Gi", declares: bool = True) -> JSON:
    counters = [{"name": "gpu", "counters": {"memory": {"value": memory}}}] if memory else None
    attribute = f"{DRIVER}/profile" if declares else None
    return resource_slice(*devices, sharedCounters=counters, partitionTypeAttribute=attribute)


SMALL = [partition(f"small-{number}", "small", "10Gi") for number in range(4)]


def test_partitions_that_still_fit_are_counted_for_each_type() -> None:
    slices = [partitioned(*SMALL, partition("whole", "whole", "40Gi"))]
    free = {"attribute": f"{DRIVER}/profile", "type": "small", "total": 4, "allocatable": 4}
    whole = {**free, "type": "whole", "total": 1, "allocatable": 1}
    assert asked(slices)["pools"][0]["partitionSummary"] == [free, whole]
    one_taken = asked(slices, [allocated("small-0")])["pools"][0]["partitionSummary"]
    assert one_taken == [{**free, "allocatable": 3}, {**whole, "allocatable": 0}]
    assert "partitionSummary" not in asked(slices, version="1.36")["pools"][0]


def test_a_request_names_the_type_for_a_driver_that_does_not() -> None:
    slices = [partitioned(*SMALL, declares=False)]
    assert "partitionSummary" not in asked(slices)["pools"][0]
    (summary,) = asked(slices, defaultPartitionTypeAttribute=f"{DRIVER}/profile")["pools"][0]["partitionSummary"]
    assert summary["allocatable"] == 4


@pytest.mark.parametrize(
    ("slices", "error"),
    [
        (partitioned(*SMALL, memory=None), "declares partitionTypeAttribute but publishes no sharedCounters"),
        (partitioned(*SMALL, partition("odd", "small", "20Gi")), "consume different counters"),
        (
            partitioned({**SMALL[0], "attributes": {}}),
            f'does not carry partition type attribute "{DRIVER}/profile"',
        ),
        (
            partitioned(*(partition(f"p{number}", f"type-{number}", "1Gi") for number in range(33))),
            "has 33 partition types, exceeding the maximum of 32",
        ),
    ],
)
def test_partitions_that_cannot_be_counted_say_why_and_leave_the_other_numbers(slices: JSON, error: str) -> None:
    (pool,) = asked([slices])["pools"]
    assert error in pool["validationError"]
    assert pool["totalDevices"] == len(slices["spec"]["devices"])
    assert "partitionSummary" not in pool


def test_shares_are_summed_over_the_devices_that_can_be_shared() -> None:
    capacity = {"memory": {"value": "16Gi"}, "watt": {"value": "300"}}
    shared = [device(name, allowMultipleAllocations=True, capacity=capacity) for name in ("a", "b")]
    slices = [resource_slice(*shared, device("alone", capacity=capacity))]
    share = {"shareID": "00000000-0000-4000-8000-000000000000", "consumedCapacity": {"memory": "2Gi"}}
    assert asked(slices, [allocated("a", **share), allocated("a", **share)])["pools"][0]["shareableSummary"] == {
        "fullyAvailableDevices": 1,
        "partiallyAvailableDevices": 1,
        "capacity": [
            {"name": "memory", "total": "32Gi", "consumed": "4Gi", "available": "28Gi"},
            {"name": "watt", "total": "600", "consumed": "0", "available": "600"},
        ],
    }
