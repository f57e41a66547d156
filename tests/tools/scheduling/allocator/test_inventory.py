from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import AllocationError, Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.allocator.inventory import NodeInventory
from dra_sdk.tools.scheduling.allocator.quantities import NANOS_PER_UNIT
from dra_sdk.wire.profile import ServerProfile
from tests.tools.scheduling.allocator.build import NEWER, a_slice, consumes, counter_sets, device, node, of_1_37

ZONE_A = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": ["a"]}]}]}


def devices(node_devices: NodeInventory) -> list[str]:
    return [candidate.id.device for candidate in node_devices.candidates if candidate.on_node]


def accessible_devices(
    *slices: dict[str, Any], at: dict[str, Any] | None = None, features: SchedulerFeatures | None = None
) -> list[str]:
    return devices(Inventory(slices, features or SchedulerFeatures()).node_devices(at or node("n1", zone="a")))


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
    assert accessible_devices(*slices) == ["local", "net", "zone", "mine", "all", "zoned"]
    assert accessible_devices(*slices, at=node("n2", zone="b")) == ["elsewhere", "net", "theirs", "all"]
    assert accessible_devices(*slices, at=node("n9")) == ["net", "all"]


def test_nodes_without_slices_of_their_own_share_one_result() -> None:
    inventory = Inventory([a_slice(device("local")), a_slice(device("net"), pool="p", allNodes=True)])
    assert inventory.node_devices(node("n7")) is inventory.node_devices(node("n8"))
    assert inventory.node_devices(node("n1")) is inventory.node_devices(node("n1"))


def test_labels_of_a_node_may_change() -> None:
    inventory = Inventory([a_slice(device("zone"), nodeSelector=ZONE_A)])
    assert devices(inventory.node_devices(node("n1", zone="a"))) == ["zone"]
    assert devices(inventory.node_devices(node("n1", zone="b"))) == []


def test_pools_are_sorted_by_name_with_binding_conditions_last() -> None:
    binds = device("binds") | {"bindingConditions": ["ready"]}
    slices = a_slice(binds, pool="a"), a_slice(device("c"), pool="c"), a_slice(device("b"), pool="b", allNodes=True)
    assert accessible_devices(*slices) == ["b", "c", "binds"]


def test_a_pool_may_have_slices_for_all_nodes_and_for_one() -> None:
    net, local = a_slice(device("net"), name="s1", count=2, allNodes=True), a_slice(device("local"), name="s2", count=2)
    assert accessible_devices(net, local) == ["net", "local"]
    assert accessible_devices(net, local, at=node("n2")) == ["net"]


def test_pools_with_only_counter_sets_matter_only_if_incomplete() -> None:
    complete = counter_sets(set={"memory": "1"}, count=1)
    complete["spec"]["pool"]["name"] = "other"
    inventory = Inventory([complete, a_slice(device("local"))])
    assert [pool.name for pool in inventory.node_devices(node()).pools] == ["gpu.example.com/n1"]
    complete["spec"]["pool"]["resourceSliceCount"] = 2
    incomplete = Inventory([complete, a_slice(device("local"))]).node_devices(node()).pools
    assert [bool(pool.incomplete) for pool in incomplete] == [False, True]


def test_since_1_37_counter_sets_apply_to_the_nodes_of_their_slice() -> None:
    sets = counter_sets(set={"memory": "1"}, count=3)
    sets["spec"] |= {"nodeName": "n2"}
    slices = [sets, a_slice(device("local") | consumes(memory="1"), count=2)]
    incomplete = [pool.incomplete for pool in Inventory(slices, NEWER).node_devices(node("n2")).pools]
    assert incomplete == ["2 of 3 slices of generation 1 exist"]
    assert Inventory(slices, NEWER).node_devices(node("n3")).pools == []
    assert len(Inventory(slices).node_devices(node("n3")).pools) == 1


def test_in_1_34_counter_sets_apply_to_the_nodes_of_their_slice() -> None:
    """With the gate on and off, since a slice with counter sets is also one with devices."""
    sets = [{"name": "set", "counters": {"memory": {"value": "1"}}}]
    here = a_slice(device("a"), sharedCounters=sets)
    there = a_slice(device("b"), pool="p", nodeName="n2", sharedCounters=sets)
    for on in (True, False):
        features = SchedulerFeatures.of(ServerProfile.of("1.34", {"DRAPartitionableDevices": on}))
        assert accessible_devices(here, there, features=features) == ["a"]
        assert accessible_devices(here, there, features=features, at=node("n3")) == []


def test_counter_sets_of_another_node_are_found() -> None:
    sets = counter_sets(set={"memory": "1"})
    sets["spec"] |= {"nodeName": "n2"}
    slices = [sets, a_slice(device("local") | consumes(memory="1"), name="s2", count=2)]
    for features in (SchedulerFeatures(), NEWER):
        (pool,) = Inventory(slices, features).node_devices(node()).pools
        assert not pool.invalid
        assert pool.counters == {("set", "memory"): NANOS_PER_UNIT}


def test_slices_with_compatibility_groups_need_the_feature() -> None:
    grouped = {"consumesCounters": [{"counterSet": "set", "counters": {}, "compatibilityGroups": ["x"]}]}
    slices = [
        counter_sets(set={"memory": "1"}, count=3),
        a_slice(device("a") | grouped, name="s2", count=3),
        a_slice(device("b"), name="s3", count=3),
    ]
    on, off = Inventory(slices, NEWER), Inventory(slices, of_1_37())
    assert devices(on.node_devices(node())) == ["a", "b"]
    assert devices(off.node_devices(node())) == []
    ((kind, reason),) = [(problem.kind, problem.reason) for problem in off.problems]
    reason_off = "those with compatibilityGroups are ignored while the feature DRADeviceCompatibilityGroups is off"
    assert (kind, reason) == ("incomplete", f"2 of 3 slices of generation 1 exist, {reason_off}")
    assert devices(Inventory(slices).node_devices(node())) == ["a", "b"]


def test_without_partitions_slices_with_per_device_nodes_are_ignored() -> None:
    off = SchedulerFeatures(partitionable_devices=False)
    per_device = a_slice(device("mine") | {"nodeName": "n1"}, pool="p", perDeviceNodeSelection=True)
    assert accessible_devices(per_device, a_slice(device("local")), features=off) == ["local"]


def test_rules_add_taints() -> None:
    rule = {"metadata": {"name": "r"}, "spec": {"taint": {"key": "k", "effect": "NoSchedule"}}}
    tainted = Inventory([a_slice(device("a"))], SchedulerFeatures(), [rule]).node_devices(node())
    assert tainted.candidates[0].device.taints == [{"key": "k", "effect": "NoSchedule"}]
    for features in (SchedulerFeatures(taint_rules=False), NEWER):
        off = Inventory([a_slice(device("a"))], features, [rule]).node_devices(node())
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
    assert [(problem.pool, problem.kind, problem.reason) for problem in inventory.problems] == [
        ("p1", "incomplete", "1 of 2 slices of generation 1 exist"),
        ("p2", "invalid", "duplicate device name a"),
        ("p3", "obsolete", "slice s1 is of generation 1, the newest is 2"),
    ]


def test_an_invalid_node_selector_is_an_error() -> None:
    broken = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Near"}]}]}
    with pytest.raises(AllocationError, match="Near"):
        accessible_devices(a_slice(device("a"), nodeSelector=broken))
