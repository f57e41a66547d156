from __future__ import annotations

from dra_sdk.tools.scheduling.allocator import Allocated, Features, Inventory
from dra_sdk.tools.scheduling.allocator.amounts import UNIT
from dra_sdk.tools.scheduling.allocator.counters import Counters, available
from dra_sdk.tools.scheduling.allocator.pools import Candidate, Pool
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.allocator.build import (
    NEWER,
    a_slice,
    allocated,
    allocator,
    claim,
    consumes,
    counter_sets,
    device,
    held,
    names,
    node,
    request,
)

MEMORY, SLOTS = ("set", "memory"), ("set", "slots")


def pool(memory: str = "4", features: Features | None = None) -> Pool:
    devices = [device(name) | consumes(memory="2", slots="1") for name in ("a", "b", "c")]
    slices = counter_sets(set={"memory": memory, "slots": "9"}), a_slice(*devices, count=2)
    return Inventory(slices, features or Features()).view(node()).pools[0]


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


def twin(memory: str, features: Features) -> Pool:
    """The same pool of another driver."""
    slices = [counter_sets(set={"memory": memory}), a_slice(device("a") | consumes(memory="2"), count=2)]
    for each in slices:
        each["spec"]["driver"] = "other.example.com"
    return Inventory(slices, features).view(node()).pools[0]


def test_up_to_1_36_pools_of_one_name_are_mixed_up() -> None:
    counters, first = Counters(Allocated()), pool("4")
    assert reserve(counters, first.candidates[0])
    assert reserve(counters, twin("1", Features()).candidates[0])


def test_since_1_37_pools_of_one_name_are_kept_apart() -> None:
    counters, first, second = Counters(Allocated()), pool("4", NEWER), twin("1", NEWER)
    assert reserve(counters, first.candidates[0])
    assert not reserve(counters, second.candidates[0])
    assert counters.consumed(second) == {}
    counters.release(first, first.candidates[0].device)
    assert counters.consumed(first) == {MEMORY: 0, SLOTS: 0}


def test_in_1_34_counters_count_within_their_slice() -> None:
    """Two slices with a set of the same name, of which the second has room for one device more."""
    features = Features.of(ServerProfile.of("1.34", {"DRAPartitionableDevices": True}))
    slices = [
        a_slice(
            *(device(f"{name}{number}") | consumes(memory="2") for number in range(3)),
            name=name,
            count=2,
            sharedCounters=[{"name": "set", "counters": {"memory": {"value": memory}}}],
        )
        for name, memory in (("a", "2"), ("b", "4"))
    ]
    found = allocator(*slices, features=features)
    assert names(allocated(found, claim(request("r", count=3)))) == [["a0", "b0", "b1"]]
    assert names(allocated(found, claim(request("r", count=2)), held=Allocated.of([held("b2")]))) == [["a0", "b0"]]
    assert allocated(found, claim(request("r", count=4))) is None
