from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError, Features, Inventory, NodeView
from dra_sdk.tools.scheduling.allocator.amounts import UNIT
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.allocator.build import NEWER, a_slice, consumes, counter_sets, device, node, of_1_37

ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def devices(view: NodeView) -> list[str]:
    return [each.id.device for each in view.candidates if each.here]


def see(*slices: dict[str, Any], at: dict[str, Any] | None = None, features: Features | None = None) -> list[str]:
    return devices(Inventory(slices, features or Features()).view(at or node("n1", zone="a")))


def test_the_four_ways_to_select_nodes() -> None:
    slices = (
        a_slice(device("local"), pool="p1"),
        a_slice(device("elsewhere"), pool="p2", nodeName="n2"),
        a_slice(device("net"), pool="p3", allNodes=True),
        a_slice(device("zone"), pool="p4", nodeSelector=ZONE_A),
        a_slice(
            device("mine") | {"nodeName": "n1"},
            device("theirs") | {"nodeName": "n2"},
            device("all") | {"allNodes": True},
            device("zoned") | {"nodeSelector": ZONE_A},
            pool="p5",
            perDeviceNodeSelection=True,
        ),
        {"metadata": {"name": "future"}, "spec": {"driver": "d", "pool": {"name": "p6", "resourceSliceCount": 1}}},
    )
    assert see(*slices) == ["local", "net", "zone", "mine", "all", "zoned"]
    assert see(*slices, at=node("n2", zone="b")) == ["elsewhere", "net", "theirs", "all"]
    assert see(*slices, at=node("n9")) == ["net", "all"]


def test_nodes_that_no_slice_is_especially_for_share_a_view() -> None:
    inventory = Inventory([a_slice(device("local")), a_slice(device("net"), pool="p", allNodes=True)])
    assert inventory.view(node("n7")) is inventory.view(node("n8"))
    assert inventory.view(node("n1")) is inventory.view(node("n1"))


def test_labels_of_a_node_may_change() -> None:
    inventory = Inventory([a_slice(device("zone"), nodeSelector=ZONE_A)])
    assert devices(inventory.view(node("n1", zone="a"))) == ["zone"]
    assert devices(inventory.view(node("n1", zone="b"))) == []


def test_pools_come_by_name_and_those_that_bind_last() -> None:
    binds = device("binds") | {"bindingConditions": ["ready"]}
    slices = a_slice(binds, pool="a"), a_slice(device("c"), pool="c"), a_slice(device("b"), pool="b", allNodes=True)
    assert see(*slices) == ["b", "c", "binds"]


def test_a_pool_may_have_slices_for_all_nodes_and_for_one() -> None:
    net, local = a_slice(device("net"), name="s1", count=2, allNodes=True), a_slice(device("local"), name="s2", count=2)
    assert see(net, local) == ["net", "local"]
    assert see(net, local, at=node("n2")) == ["net"]


def test_counter_sets_of_other_nodes_matter_only_where_they_are_broken() -> None:
    sound = counter_sets(set={"memory": "1"}, count=1)
    sound["spec"]["pool"]["name"] = "other"
    inventory = Inventory([sound, a_slice(device("local"))])
    assert [pool.name for pool in inventory.view(node()).pools] == ["gpu.example.com/n1"]
    sound["spec"]["pool"]["resourceSliceCount"] = 2
    incomplete = Inventory([sound, a_slice(device("local"))]).view(node()).pools
    assert [bool(pool.incomplete) for pool in incomplete] == [False, True]


def test_since_1_37_counter_sets_concern_the_nodes_they_name() -> None:
    sets = counter_sets(set={"memory": "1"}, count=3)
    sets["spec"] |= {"nodeName": "n2"}
    slices = [sets, a_slice(device("local") | consumes(memory="1"), count=2)]
    incomplete = [pool.incomplete for pool in Inventory(slices, NEWER).view(node("n2")).pools]
    assert incomplete == ["2 of 3 slices of generation 1 are there"]
    assert Inventory(slices, NEWER).view(node("n3")).pools == []
    assert len(Inventory(slices).view(node("n3")).pools) == 1


def test_in_1_34_counter_sets_concern_the_nodes_they_name() -> None:
    """Whether partitionable devices are on or not: a slice with counters is one with devices."""
    sets = [{"name": "set", "counters": {"memory": {"value": "1"}}}]
    here = a_slice(device("a"), sharedCounters=sets)
    there = a_slice(device("b"), pool="p", nodeName="n2", sharedCounters=sets)
    for on in (True, False):
        features = Features.of(ServerProfile.of("1.34", {"DRAPartitionableDevices": on}))
        assert see(here, there, features=features) == ["a"]
        assert see(here, there, features=features, at=node("n3")) == []


def test_counter_sets_of_another_node_are_found_all_the_same() -> None:
    sets = counter_sets(set={"memory": "1"})
    sets["spec"] |= {"nodeName": "n2"}
    slices = [sets, a_slice(device("local") | consumes(memory="1"), name="s2", count=2)]
    for features in (Features(), NEWER):
        (pool,) = Inventory(slices, features).view(node()).pools
        assert not pool.invalid
        assert pool.counters == {("set", "memory"): UNIT}


def test_slices_with_compatibility_groups_need_the_feature() -> None:
    grouped = {"consumesCounters": [{"counterSet": "set", "counters": {}, "compatibilityGroups": ["x"]}]}
    slices = [
        counter_sets(set={"memory": "1"}, count=3),
        a_slice(device("a") | grouped, name="s2", count=3),
        a_slice(device("b"), name="s3", count=3),
    ]
    on, off = Inventory(slices, NEWER), Inventory(slices, of_1_37())
    assert devices(on.view(node())) == ["a", "b"]
    assert devices(off.view(node())) == []
    ((kind, reason),) = [(each.kind, each.reason) for each in off.problems]
    off_because = "those with compatibilityGroups do not count while the feature DRADeviceCompatibilityGroups is off"
    assert (kind, reason) == ("incomplete", f"2 of 3 slices of generation 1 are there, {off_because}")
    assert devices(Inventory(slices).view(node())) == ["a", "b"]


def test_without_partitionable_devices_such_slices_are_not_looked_at() -> None:
    off = Features(partitionable_devices=False)
    per_device = a_slice(device("mine") | {"nodeName": "n1"}, pool="p", perDeviceNodeSelection=True)
    assert see(per_device, a_slice(device("local")), features=off) == ["local"]


def test_rules_add_taints() -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}
    tainted = Inventory([a_slice(device("a"))], Features(), [rule]).view(node())
    assert tainted.candidates[0].device.taints == [{"key": "k", "effect": "NoSchedule"}]
    for features in (Features(taint_rules=False), NEWER):
        off = Inventory([a_slice(device("a"))], features, [rule]).view(node())
        assert not off.candidates[0].device.taints


def test_problems_of_pools() -> None:
    inventory = Inventory(
        [
            a_slice(device("a"), pool="p1", count=2),
            a_slice(device("a"), device("a"), pool="p2"),
            a_slice(device("a"), pool="p3"),
            a_slice(device("a"), name="new", pool="p3", generation=2),
            a_slice(device("a"), pool="p4"),
        ]
    )
    assert [(each.pool, each.kind, each.reason) for each in inventory.problems] == [
        ("p1", "incomplete", "1 of 2 slices of generation 1 are there"),
        ("p2", "invalid", "duplicate device name a"),
        ("p3", "obsolete", "slice s1 is of generation 1, the newest is 2"),
    ]


def test_a_node_selector_that_makes_no_sense_is_an_error() -> None:
    broken = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}
    with pytest.raises(AllocationError, match="Near"):
        see(a_slice(device("a"), nodeSelector=broken))
