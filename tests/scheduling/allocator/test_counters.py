from __future__ import annotations

from dra_sdk.scheduling.allocator import Allocated, Inventory
from dra_sdk.scheduling.allocator.amounts import UNIT
from dra_sdk.scheduling.allocator.behaviour import SINCE_1_37
from dra_sdk.scheduling.allocator.counters import Counters, available
from dra_sdk.scheduling.allocator.pools import Candidate, Pool
from tests.scheduling.allocator.build import a_slice, consumes, counter_sets, device, held, node

MEMORY, SLOTS = ("set", "memory"), ("set", "slots")


def pool(memory: str = "4") -> Pool:
    devices = [device(name) | consumes(memory="2", slots="1") for name in ("a", "b", "c")]
    slices = counter_sets(set={"memory": memory, "slots": "9"}), a_slice(*devices, count=2)
    return Inventory(slices).view(node()).pools[0]


def reserve(counters: Counters, candidate: Candidate) -> bool:
    return counters.reserve(candidate.pool, candidate.device)


def test_allocated_devices_leave_less() -> None:
    assert available(pool(), Allocated()).counters == {MEMORY: 4 * UNIT, SLOTS: 9 * UNIT}
    left = available(pool(), Allocated.of([held("a")]))
    assert (left.counters, left.overdrawn) == ({MEMORY: 2 * UNIT, SLOTS: 8 * UNIT}, False)


def test_shares_of_a_device_count_once() -> None:
    shares = [held("a", shareID=each) for each in ("x", "y")]
    assert available(pool(), Allocated.of(shares)).counters[MEMORY] == 2 * UNIT


def test_counters_are_taken_all_or_none() -> None:
    found, counters = pool(), Counters(Allocated())
    a, b, c = found.candidates
    assert reserve(counters, a)
    assert reserve(counters, b)
    assert not reserve(counters, c)
    assert counters.consumed(found) == {MEMORY: 4 * UNIT, SLOTS: 2 * UNIT}
    counters.release(found, a.device)
    assert reserve(counters, c)


def test_nothing_can_be_had_of_counters_that_are_overdrawn() -> None:
    found = pool("1")
    counters = Counters(Allocated.of([held("a")]))
    assert counters.available(found).overdrawn
    assert not reserve(counters, found.candidates[1])


def twin(memory: str) -> Pool:
    """The same pool of another driver."""
    slices = [counter_sets(set={"memory": memory}), a_slice(device("a") | consumes(memory="2"), count=2)]
    for each in slices:
        each["spec"]["driver"] = "other.example.com"
    return Inventory(slices).view(node()).pools[0]


def test_up_to_1_36_pools_of_one_name_are_mixed_up() -> None:
    first, second = pool("4"), twin("1")
    mixed, apart = Counters(Allocated()), Counters(Allocated(), SINCE_1_37)
    for counters in (mixed, apart):
        assert reserve(counters, first.candidates[0])
    assert [reserve(each, second.candidates[0]) for each in (mixed, apart)] == [True, False]
    assert apart.consumed(second) == {}
    apart.release(first, first.candidates[0].device)
    assert apart.consumed(first) == {MEMORY: 0, SLOTS: 0}
