from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocatedState, Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.pools import Candidate, Pool
from dra_sdk.tools.scheduling.allocator.quantities import NANOS_PER_UNIT
from dra_sdk.tools.scheduling.allocator.shared_counters import (
    CompatibilityGroups,
    SharedCounters,
    available_counters,
    common_groups,
    is_compatible,
)
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.allocator.build import (
    NEWER,
    a_slice,
    allocated,
    allocator,
    candidates,
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


def pool(memory: str = "4", features: SchedulerFeatures | None = None) -> Pool:
    devices = [device(name) | consumes(memory="2", slots="1") for name in ("a", "b", "c")]
    slices = counter_sets(set={"memory": memory, "slots": "9"}), a_slice(*devices, count=2)
    return Inventory(slices, features or SchedulerFeatures()).node_devices(node()).pools[0]


def reserve(counters: SharedCounters, candidate: Candidate) -> bool:
    return counters.reserve(candidate.pool, candidate.device)


def test_allocated_devices_reduce_the_available_counters() -> None:
    assert available_counters(pool(), AllocatedState()).counters == {
        MEMORY: 4 * NANOS_PER_UNIT,
        SLOTS: 9 * NANOS_PER_UNIT,
    }
    left = available_counters(pool(), AllocatedState.of([held("a")]))
    assert (left.counters, left.overdrawn) == ({MEMORY: 2 * NANOS_PER_UNIT, SLOTS: 8 * NANOS_PER_UNIT}, False)


def test_shares_of_a_device_count_once() -> None:
    shares = [held("a", shareID=share) for share in ("x", "y")]
    assert available_counters(pool(), AllocatedState.of(shares)).counters[MEMORY] == 2 * NANOS_PER_UNIT


def test_all_counters_of_a_device_are_reserved_or_none() -> None:
    one_pool, counters = pool(), SharedCounters(AllocatedState())
    a, b, c = one_pool.candidates
    assert reserve(counters, a)
    assert reserve(counters, b)
    assert not reserve(counters, c)
    assert counters.consumed(one_pool) == {MEMORY: 4 * NANOS_PER_UNIT, SLOTS: 2 * NANOS_PER_UNIT}
    counters.release(one_pool, a.device)
    assert reserve(counters, c)


def test_overdrawn_counters_have_nothing_available() -> None:
    one_pool = pool("1")
    counters = SharedCounters(AllocatedState.of([held("a")]))
    assert counters.available(one_pool).overdrawn
    assert not reserve(counters, one_pool.candidates[1])


def other_pool(memory: str, features: SchedulerFeatures) -> Pool:
    """The same pool of another driver."""
    slices = [counter_sets(set={"memory": memory}), a_slice(device("a") | consumes(memory="2"), count=2)]
    for raw_slice in slices:
        raw_slice["spec"]["driver"] = "other.example.com"
    return Inventory(slices, features).node_devices(node()).pools[0]


def test_up_to_1_36_pools_with_the_same_name_are_mixed_up() -> None:
    counters, first = SharedCounters(AllocatedState()), pool("4")
    assert reserve(counters, first.candidates[0])
    assert reserve(counters, other_pool("1", SchedulerFeatures()).candidates[0])


def test_since_1_37_pools_with_the_same_name_are_separate() -> None:
    counters, first, second = SharedCounters(AllocatedState()), pool("4", NEWER), other_pool("1", NEWER)
    assert reserve(counters, first.candidates[0])
    assert not reserve(counters, second.candidates[0])
    assert counters.consumed(second) == {}
    counters.release(first, first.candidates[0].device)
    assert counters.consumed(first) == {MEMORY: 0, SLOTS: 0}


def test_in_1_34_counters_apply_within_their_slice() -> None:
    """Two slices with a counter set of the same name; the second set is enough for one more device."""
    features = SchedulerFeatures.of(ServerProfile.of("1.34", {"DRAPartitionableDevices": True}))
    slices = [
        a_slice(
            *(device(f"{name}{number}") | consumes(memory="2") for number in range(3)),
            name=name,
            count=2,
            sharedCounters=[{"name": "set", "counters": {"memory": {"value": memory}}}],
        )
        for name, memory in (("a", "2"), ("b", "4"))
    ]
    pool_allocator = allocator(*slices, features=features)
    assert names(allocated(pool_allocator, claim(request("r", count=3)))) == [["a0", "b0", "b1"]]
    assert names(allocated(pool_allocator, claim(request("r", count=2)), held=AllocatedState.of([held("b2")]))) == [
        ["a0", "b0"]
    ]
    assert allocated(pool_allocator, claim(request("r", count=4))) is None


def grouped(name: str, *groups: str, counter_set: str = "set") -> dict[str, Any]:
    consumed = {"counterSet": counter_set, "counters": {"memory": {"value": "1"}}}
    return device(name) | {"consumesCounters": [consumed | ({"compatibilityGroups": list(groups)} if groups else {})]}


def candidates_of(*devices: dict[str, Any]) -> list[Candidate]:
    sets = counter_sets(set={"memory": "9"}, other={"memory": "9"})
    return candidates(sets, a_slice(*devices, count=2, name="s2"), features=NEWER)


def admitted(groups: CompatibilityGroups, candidate: Candidate) -> bool:
    return groups.admits(candidate.pool, candidate.device)


def test_devices_need_a_common_group() -> None:
    first, second, third = candidates_of(grouped("a", "x", "y"), grouped("b", "y", "z"), grouped("c", "x", "z"))
    groups = CompatibilityGroups(AllocatedState())
    assert admitted(groups, first)
    groups.place(first.pool, first.device)
    assert admitted(groups, second)
    assert admitted(groups, third)
    before = groups.place(second.pool, second.device)
    assert not admitted(groups, third)
    groups.restore(second.pool, before)
    assert admitted(groups, third)


def test_devices_without_groups_are_compatible_with_each_other() -> None:
    plain, like, other = candidates_of(grouped("a"), grouped("b"), grouped("c", "x"))
    groups = CompatibilityGroups(AllocatedState())
    groups.place(plain.pool, plain.device)
    assert [admitted(groups, candidate) for candidate in (like, other)] == [True, False]


def test_counter_sets_do_not_affect_each_other() -> None:
    one, elsewhere = candidates_of(grouped("a", "x"), grouped("b", "y", counter_set="other"))
    groups = CompatibilityGroups(AllocatedState())
    groups.place(one.pool, one.device)
    assert admitted(groups, elsewhere)


@pytest.mark.parametrize("share", [{}, {"shareID": "s"}])
def test_groups_of_allocated_devices_count(share: dict[str, str]) -> None:
    _, same, other, plain = candidates_of(grouped("a", "x"), grouped("b", "x"), grouped("c", "y"), grouped("d"))
    groups = CompatibilityGroups(AllocatedState.of([held("a", **share)]))
    assert [admitted(groups, candidate) for candidate in (same, other, plain)] == [True, False, False]


def test_without_a_common_group_no_device_is_compatible() -> None:
    nothing = common_groups(frozenset("y"), frozenset("x"))
    assert nothing == frozenset()
    assert not is_compatible(frozenset("x"), nothing)
    assert not is_compatible(frozenset(), nothing)
    assert common_groups(frozenset(), frozenset("x")) == frozenset("x")
    assert common_groups(frozenset("x"), None) is None
