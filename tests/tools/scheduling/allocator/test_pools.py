from __future__ import annotations

from typing import Any

from dra_sdk.tools.scheduling.allocator import Features, pools
from dra_sdk.tools.scheduling.allocator.amounts import UNIT
from dra_sdk.tools.scheduling.allocator.devices import Contents
from dra_sdk.tools.scheduling.allocator.pools import Pool
from dra_sdk.tools.scheduling.allocator.slices import SliceView
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.allocator.build import a_slice, consumes, counter_sets, device, node

OF_1_34 = Features.of(ServerProfile.of("1.34", {"DRAPartitionableDevices": True}))


def views(features: Features, *slices: dict[str, Any], others: tuple[dict[str, Any], ...] = ()) -> list[Pool]:
    everything = [SliceView(raw, order, Contents()) for order, raw in enumerate((*slices, *others))]
    return pools.view(everything[: len(slices)], everything, node(), features)


def view(*slices: dict[str, Any], others: tuple[dict[str, Any], ...] = (), partitionable: bool = True) -> Pool | None:
    found = views(Features(partitionable_devices=partitionable), *slices, others=others)
    assert len(found) <= 1
    return found[0] if found else None


def devices(pool: Pool | None) -> list[str]:
    assert pool
    assert not pool.incomplete
    assert not pool.invalid
    return [each.id.device for each in pool.candidates]


def test_devices_come_in_the_order_of_the_names_of_their_slices() -> None:
    late, early = a_slice(device("a"), name="s2", count=2), a_slice(device("b"), name="s1", count=2)
    assert devices(view(late, early)) == ["b", "a"]


def test_only_the_newest_generation_counts() -> None:
    old, new = a_slice(device("a")), a_slice(device("b"), name="s2", generation=2)
    assert devices(view(old, new)) == ["b"]


def test_a_pool_lacks_slices() -> None:
    found = view(a_slice(device("a"), count=2))
    assert found
    assert found.incomplete == "1 of 2 slices of generation 1 are there"
    assert not found.candidates


def test_slices_for_other_nodes_make_a_pool_complete() -> None:
    other = a_slice(device("b"), name="s2", count=2, nodeName="n2")
    assert devices(view(a_slice(device("a"), count=2), others=(other,))) == ["a"]


def test_a_pool_with_a_newer_generation_elsewhere_is_as_if_not_there() -> None:
    newer = a_slice(device("a"), name="s2", nodeName="n2", generation=2, count=2)
    assert view(a_slice(device("a"), count=2), others=(newer,)) is None


def test_two_devices_of_a_name_make_a_pool_invalid() -> None:
    found = view(a_slice(device("a"), device("a")))
    assert found
    assert found.invalid == "duplicate device name a"


def test_counters_have_to_be_there() -> None:
    some = counter_sets(set={"memory": "1"})
    no_set = view(some, a_slice(device("a") | consumes("other", memory="1"), count=2))
    no_counter = view(some, a_slice(device("a") | consumes(slots="1"), count=2))
    twice = view(counter_sets(set={"a": "1"}, count=2), counter_sets("more", set={"a": "1"}))
    assert no_set
    assert no_set.invalid == "device a: counter set other not found"
    assert no_counter
    assert no_counter.invalid == "device a: counter slots not found in counter set set"
    assert twice
    assert twice.invalid == "duplicate counter set name set"


def test_devices_on_other_nodes_use_the_same_counters() -> None:
    here, there = device("a") | consumes(memory="1"), device("b") | consumes(memory="2")
    other = a_slice(there, name="s2", count=3, nodeName="n2")
    found = view(counter_sets(set={"memory": "4"}, count=3), a_slice(here, count=3), others=(other,))
    assert found
    assert found.counters == {("set", "memory"): 4 * UNIT}
    assert [each.id.device for each in found.consumers()] == ["a", "b"]
    broken = a_slice(device("b") | consumes("none", x="1"), name="s2", count=3, nodeName="n2")
    found = view(counter_sets(set={"memory": "4"}, count=3), a_slice(here, count=3), others=(broken,))
    assert found
    assert found.invalid


def test_devices_beside_counter_sets_in_one_slice_are_not_offered() -> None:
    both = a_slice(device("a"), count=2) | {}
    both["spec"]["sharedCounters"] = [{"name": "set", "counters": {"memory": {"value": "1"}}}]
    found = view(both, a_slice(device("b") | consumes(memory="1"), name="s2", count=2))
    assert devices(found) == ["b"]


def mixed(name: str, *devices: dict[str, Any], memory: str = "4", count: int = 2, **spec: Any) -> dict[str, Any]:
    """A slice as 1.34 has it: counter set `set` and the devices that use it."""
    sets = [{"name": "set", "counters": {"memory": {"value": memory}}}]
    return a_slice(*devices, name=name, count=count, sharedCounters=sets, **spec)


def test_in_1_34_each_slice_has_counters_of_its_own() -> None:
    first = mixed("s1", device("a") | consumes(memory="1"), device("plain"))
    found = views(OF_1_34, first, mixed("s2", device("b") | consumes(memory="1"), memory="9"))
    assert [devices(each) for each in found] == [["a", "plain"], ["b"]]
    assert [each.counters for each in found] == [{("set", "memory"): 4 * UNIT}, {("set", "memory"): 9 * UNIT}]
    assert found[0].ledger != found[1].ledger
    assert {each.name for each in found} == {"gpu.example.com/n1"}


def test_in_1_34_the_slices_of_a_pool_stand_and_fall_together() -> None:
    binds = device("b") | {"bindingConditions": ["ready"]}
    assert [each.binds for each in views(OF_1_34, mixed("s1", device("a")), mixed("s2", binds))] == [True, True]
    (twice,) = views(OF_1_34, mixed("s1", device("a")), mixed("s2", device("a")))
    assert twice.invalid == "duplicate device name a"
    (elsewhere,) = views(OF_1_34, mixed("s1", device("a")), a_slice(device("b") | consumes(memory="1"), count=2))
    assert elsewhere.invalid == "device b: counter set set not found"
    assert [each.incomplete for each in views(OF_1_34, mixed("s1", device("a")))] == [
        "1 of 2 slices of generation 1 are there"
    ]


def test_without_partitionable_devices_counters_are_not_judged() -> None:
    assert devices(view(a_slice(device("a") | consumes("none", x="1")), partitionable=False)) == ["a"]


def test_devices_of_a_slice_can_be_for_different_nodes() -> None:
    here, there = device("a") | {"nodeName": "n1"}, device("b") | {"nodeName": "n2"}
    found = view(a_slice(here, there, perDeviceNodeSelection=True))
    assert found
    assert [(each.id.device, each.here) for each in found.candidates] == [("a", True), ("b", False)]


def test_a_pool_knows_whether_devices_bind() -> None:
    found = view(a_slice(device("a"), device("b") | {"bindingConditions": ["ready"]}))
    assert found
    assert found.binds
