from __future__ import annotations

from typing import Any

from dra_sdk.tools.scheduling.allocator import SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.devices import ContentCache, PoolSlice
from dra_sdk.tools.scheduling.allocator.pools import Pool, gather_pools
from dra_sdk.tools.scheduling.allocator.quantities import NANOS_PER_UNIT
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.allocator.build import a_slice, consumes, counter_sets, device, node

OF_1_34 = SchedulerFeatures.of(ServerProfile.of("1.34", {"DRAPartitionableDevices": True}))


def pools(features: SchedulerFeatures, *slices: dict[str, Any], others: tuple[dict[str, Any], ...] = ()) -> list[Pool]:
    everything = [PoolSlice(raw, order, ContentCache()) for order, raw in enumerate((*slices, *others))]
    return gather_pools(everything[: len(slices)], everything, node(), features)


def only_pool(
    *slices: dict[str, Any], others: tuple[dict[str, Any], ...] = (), partitionable: bool = True
) -> Pool | None:
    listed = pools(SchedulerFeatures(partitionable_devices=partitionable), *slices, others=others)
    assert len(listed) <= 1
    return listed[0] if listed else None


def devices(pool: Pool | None) -> list[str]:
    assert pool
    assert not pool.incomplete
    assert not pool.invalid
    return [candidate.id.device for candidate in pool.candidates]


def test_devices_are_sorted_by_the_name_of_their_slice() -> None:
    late, early = a_slice(device("a"), name="s2", count=2), a_slice(device("b"), name="s1", count=2)
    assert devices(only_pool(late, early)) == ["b", "a"]


def test_only_the_newest_generation_counts() -> None:
    old, new = a_slice(device("a")), a_slice(device("b"), name="s2", generation=2)
    assert devices(only_pool(old, new)) == ["b"]


def test_a_pool_with_missing_slices_is_incomplete() -> None:
    pool = only_pool(a_slice(device("a"), count=2))
    assert pool
    assert pool.incomplete == "1 of 2 slices of generation 1 exist"
    assert not pool.candidates


def test_slices_for_other_nodes_make_a_pool_complete() -> None:
    other = a_slice(device("b"), name="s2", count=2, nodeName="n2")
    assert devices(only_pool(a_slice(device("a"), count=2), others=(other,))) == ["a"]


def test_a_pool_with_a_newer_generation_elsewhere_is_ignored() -> None:
    newer = a_slice(device("a"), name="s2", nodeName="n2", generation=2, count=2)
    assert only_pool(a_slice(device("a"), count=2), others=(newer,)) is None


def test_a_duplicate_device_name_makes_a_pool_invalid() -> None:
    pool = only_pool(a_slice(device("a"), device("a")))
    assert pool
    assert pool.invalid == "duplicate device name a"


def test_missing_and_duplicate_counter_sets_make_a_pool_invalid() -> None:
    some = counter_sets(set={"memory": "1"})
    no_set = only_pool(some, a_slice(device("a") | consumes("other", memory="1"), count=2))
    no_counter = only_pool(some, a_slice(device("a") | consumes(slots="1"), count=2))
    twice = only_pool(counter_sets(set={"a": "1"}, count=2), counter_sets("more", set={"a": "1"}))
    assert no_set
    assert no_set.invalid == "device a: counter set other not found"
    assert no_counter
    assert no_counter.invalid == "device a: counter slots not found in counter set set"
    assert twice
    assert twice.invalid == "duplicate counter set name set"


def test_devices_on_other_nodes_use_the_same_counters() -> None:
    here, there = device("a") | consumes(memory="1"), device("b") | consumes(memory="2")
    other = a_slice(there, name="s2", count=3, nodeName="n2")
    pool = only_pool(counter_sets(set={"memory": "4"}, count=3), a_slice(here, count=3), others=(other,))
    assert pool
    assert pool.counters == {("set", "memory"): 4 * NANOS_PER_UNIT}
    assert [consumer.id.device for consumer in pool.counter_consumers] == ["a", "b"]
    broken = a_slice(device("b") | consumes("none", x="1"), name="s2", count=3, nodeName="n2")
    pool = only_pool(counter_sets(set={"memory": "4"}, count=3), a_slice(here, count=3), others=(broken,))
    assert pool
    assert pool.invalid


def test_devices_in_a_slice_with_counter_sets_are_ignored() -> None:
    both = a_slice(device("a"), count=2) | {}
    both["spec"]["sharedCounters"] = [{"name": "set", "counters": {"memory": {"value": "1"}}}]
    pool = only_pool(both, a_slice(device("b") | consumes(memory="1"), name="s2", count=2))
    assert devices(pool) == ["b"]


def mixed(name: str, *devices: dict[str, Any], memory: str = "4", count: int = 2, **spec: Any) -> dict[str, Any]:
    """A slice as in 1.34: counter set `set` and the devices that consume from it."""
    sets = [{"name": "set", "counters": {"memory": {"value": memory}}}]
    return a_slice(*devices, name=name, count=count, sharedCounters=sets, **spec)


def test_in_1_34_each_slice_has_its_own_counters() -> None:
    first = mixed("s1", device("a") | consumes(memory="1"), device("plain"))
    per_slice = pools(OF_1_34, first, mixed("s2", device("b") | consumes(memory="1"), memory="9"))
    assert [devices(pool) for pool in per_slice] == [["a", "plain"], ["b"]]
    assert [pool.counters for pool in per_slice] == [
        {("set", "memory"): 4 * NANOS_PER_UNIT},
        {("set", "memory"): 9 * NANOS_PER_UNIT},
    ]
    assert per_slice[0].counters_key != per_slice[1].counters_key
    assert {pool.name for pool in per_slice} == {"gpu.example.com/n1"}


def test_in_1_34_one_bad_slice_makes_the_whole_pool_bad() -> None:
    binds = device("b") | {"bindingConditions": ["ready"]}
    assert [pool.has_binding_conditions for pool in pools(OF_1_34, mixed("s1", device("a")), mixed("s2", binds))] == [
        True,
        True,
    ]
    (twice,) = pools(OF_1_34, mixed("s1", device("a")), mixed("s2", device("a")))
    assert twice.invalid == "duplicate device name a"
    (elsewhere,) = pools(OF_1_34, mixed("s1", device("a")), a_slice(device("b") | consumes(memory="1"), count=2))
    assert elsewhere.invalid == "device b: counter set set not found"
    assert [pool.incomplete for pool in pools(OF_1_34, mixed("s1", device("a")))] == [
        "1 of 2 slices of generation 1 exist"
    ]


def test_without_partitionable_devices_counters_are_not_checked() -> None:
    assert devices(only_pool(a_slice(device("a") | consumes("none", x="1")), partitionable=False)) == ["a"]


def test_devices_of_a_slice_can_be_for_different_nodes() -> None:
    here, there = device("a") | {"nodeName": "n1"}, device("b") | {"nodeName": "n2"}
    pool = only_pool(a_slice(here, there, perDeviceNodeSelection=True))
    assert pool
    assert [(candidate.id.device, candidate.on_node) for candidate in pool.candidates] == [("a", True), ("b", False)]


def test_a_pool_with_binding_conditions() -> None:
    pool = only_pool(a_slice(device("a"), device("b") | {"bindingConditions": ["ready"]}))
    assert pool
    assert pool.has_binding_conditions
