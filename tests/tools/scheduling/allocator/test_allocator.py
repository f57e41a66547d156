from __future__ import annotations

import pytest

from dra_sdk.tools.scheduling.allocator import (
    AllocatedState,
    AllocationError,
    Allocator,
    InvalidPoolsError,
    Inventory,
)
from dra_sdk.tools.scheduling.allocator.allocator import new_share_id
from tests.tools.scheduling.allocator.build import (
    a_slice,
    allocated,
    allocator,
    claim,
    device,
    device_class,
    held,
    names,
    node,
    request,
    shared,
)


def test_no_claims_need_no_devices() -> None:
    assert allocated(allocator()) == []


def test_a_claim_without_requests_is_allocated() -> None:
    nothing = {"metadata": {"name": "c", "namespace": "default"}, "spec": {}}
    assert allocated(allocator(a_slice(device("a"))), nothing) == [{"devices": {"results": []}}]


def test_one_allocation_for_each_claim() -> None:
    gpu_allocator = allocator(a_slice(device("a"), device("b")))
    assert names(allocated(gpu_allocator, claim(request("r")), claim(request("r"), name="d"))) == [["a"], ["b"]]
    assert allocated(gpu_allocator, claim(request("r", count=2)), claim(request("r"), name="d")) is None


def test_allocated_state_is_not_changed() -> None:
    used = AllocatedState.of([held("a")])
    before = set(used.devices)
    assert names(allocated(allocator(a_slice(device("a"), device("b"))), claim(request("r")), held=used)) == [["b"]]
    assert used.devices == before


def test_one_allocator_serves_many_claims_and_nodes() -> None:
    gpu_allocator = allocator(a_slice(device("a")), a_slice(device("b"), pool="n2", nodeName="n2"))
    used, wanted = AllocatedState(), claim(request("r"))
    assert names(allocated(gpu_allocator, wanted, held=used)) == [["a"]]
    used.add(held("a"))
    assert allocated(gpu_allocator, wanted, held=used) is None
    assert names(allocated(gpu_allocator, wanted, held=used, at=node("n2"))) == [["b"]]
    used.remove(held("a"))
    assert names(allocated(gpu_allocator, wanted, held=used)) == [["a"]]


def test_a_changed_claim_is_parsed_again() -> None:
    gpu_allocator, wanted = allocator(a_slice(device("a"), device("b"))), claim(request("r"))
    assert names(allocated(gpu_allocator, wanted)) == [["a"]]
    wanted["spec"]["devices"]["requests"][0]["exactly"]["count"] = 2
    assert names(allocated(gpu_allocator, wanted)) == [["a", "b"]]


def test_many_claims_with_a_limited_cache() -> None:
    gpu_allocator = allocator(a_slice(device("a")))
    claims = [claim(request("r", count=1 + index % 2), name=f"c{index}") for index in range(200)]
    for _ in range(2):
        assert [allocated(gpu_allocator, wanted) is not None for wanted in claims] == [True, False] * 100


def test_an_invalid_pool_is_an_error_if_nothing_else_fits() -> None:
    invalid = a_slice(device("a"), device("a"), pool="p")
    assert names(allocated(allocator(invalid, a_slice(device("b"))), claim(request("r")))) == [["b"]]
    problem = r"invalid resource pools were encountered: gpu.example.com/p \(duplicate device name a\)"
    with pytest.raises(InvalidPoolsError, match=problem):
        allocated(allocator(invalid), claim(request("r")))


def test_nothing_is_allocated_from_an_incomplete_pool() -> None:
    assert allocated(allocator(a_slice(device("a"), count=2)), claim(request("r"))) is None


def test_errors_name_the_claim_and_request() -> None:
    with pytest.raises(AllocationError, match="claim ns/c, request r: could not retrieve device class tpu"):
        allocated(allocator(), claim(request("r", deviceClassName="tpu")))


def test_every_share_gets_its_own_id() -> None:
    inventory = Inventory([a_slice(shared("a", capacity={"memory": "4"}))])
    gpu_allocator = Allocator(inventory, {"gpu": device_class()})
    wanted = [claim(request("r", capacity={"requests": {"memory": "1"}}), name=name) for name in ("c", "d")]
    allocations = gpu_allocator.allocate(node(), wanted, AllocatedState())
    assert allocations
    ids = {result["shareID"] for allocation in allocations for result in allocation["devices"]["results"]}
    assert len(ids) == 2
    assert len(new_share_id()) == 36
