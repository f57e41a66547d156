from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from dra_sdk import cel
from dra_sdk.model.device import AttributeValue, Device, DeviceTaint, ResourcePool, Version
from dra_sdk.node.overlay import Overlaid, Overlay, OverlayRule
from dra_sdk.node.slices.plan import PoolPlan, plan

DRIVER = "gpu.example.com"
BROKEN = DeviceTaint(key="site.example.com/broken", effect="NoSchedule", value="yes")


def rule(
    attributes: Mapping[str, AttributeValue] | None = None,
    *taints: DeviceTaint,
    match: str | None = None,
    nodes: tuple[str, ...] = (),
    override: bool = False,
    publish: bool | None = None,
) -> OverlayRule:
    return OverlayRule("", cel.compile(match) if match else None, nodes, attributes or {}, taints, override, publish)


def apply(devices: Sequence[Device], *rules: OverlayRule, node: str = "gpu-1") -> Overlaid:
    numbered = [
        OverlayRule(
            f"rules[{index}]", each.match, each.nodes, each.attributes, each.taints, each.override, each.publish
        )
        for index, each in enumerate(rules)
    ]
    return Overlay("file", tuple(numbered)).apply([ResourcePool("gpu-1", devices)], driver=DRIVER, node=node)


def attributes(found: Overlaid) -> list[dict[str, Any]]:
    return [dict(device.attributes) for pool in found.pools for device in pool.devices]


def gpus(count: int) -> list[Device]:
    return [Device(f"gpu-{index}", {"index": index}) for index in range(count)]


def test_a_rule_adds_to_the_devices_it_matches():
    low = rule({"t.example.com/rail": 1}, BROKEN, match=f'device.attributes["{DRIVER}"].index < 1')
    found = apply(gpus(2), low)
    assert attributes(found) == [{"index": 0, "t.example.com/rail": 1}, {"index": 1}]
    assert [device.taints for device in found.pools[0].devices] == [(BROKEN,), ()]
    assert found.problems == []


def test_what_goes_in_stays_as_it_is():
    devices = gpus(2)
    pools = [ResourcePool("a", devices), ResourcePool("b")]
    before = [dict(device.attributes) for device in devices]
    found = Overlay("file", (rule({"t.example.com/rail": 1}),)).apply(pools, driver=DRIVER, node="n")
    assert [dict(device.attributes) for device in devices] == before
    assert pools[0].devices is devices
    assert found.pools[1] is pools[1]


def test_what_is_not_changed_is_the_same_object():
    devices = gpus(2)
    found = apply(devices, rule({"index": 0}, match=f'device.attributes["{DRIVER}"].index == 0'))
    assert found.pools[0].devices == devices
    other = apply(devices, rule({"a": 1}, match=f'device.attributes["{DRIVER}"].index == 1')).pools[0].devices
    assert other[0] is devices[0]
    assert other[1] is not devices[1]


def test_rules_are_for_some_nodes():
    some = rule({"a": 1}, nodes=("gpu-*",))
    assert attributes(apply(gpus(1), some, node="gpu-7")) == [{"index": 0, "a": 1}]
    assert attributes(apply(gpus(1), some, node="cpu-7")) == [{"index": 0}]


@pytest.mark.parametrize("name", ["index", f"{DRIVER}/index"])
@pytest.mark.parametrize("own", ["index", f"{DRIVER}/index"])
def test_what_a_device_has_is_not_overwritten(name: str, own: str):
    found = apply([Device("gpu-0", {own: 0})], rule({name: 7}))
    assert attributes(found) == [{own: 0}]
    assert found.problems == [
        (
            f"overlay file: rules[0].attributes[{name}]: device gpu-1/gpu-0: has 0 already; "
            "only a rule with override: true may replace it"
        )
    ]


@pytest.mark.parametrize("name", ["index", f"{DRIVER}/index"])
def test_override_replaces_under_the_name_that_the_device_uses(name: str):
    found = apply(gpus(1), rule({name: 7}, override=True))
    assert attributes(found) == [{"index": 7}]
    assert found.problems == []


@pytest.mark.parametrize(
    ("old", "new"), [(1, True), ("1.0.0", Version("1.0.0")), ([1], [1, 2]), ([1], 1), ("a", ["a"]), ([True], [1])]
)
def test_values_of_another_type_are_other_values(old: AttributeValue, new: AttributeValue):
    assert len(apply([Device("d", {"a": old})], rule({"a": new})).problems) == 1


@pytest.mark.parametrize("value", [1, True, "a", Version("1.0.0"), [1, 2], ["a"]])
def test_the_same_value_is_no_conflict(value: AttributeValue):
    same = tuple(value) if isinstance(value, list) else value
    assert apply([Device("d", {"a": same})], rule({"a": value})).problems == []


def test_among_rules_the_first_wins_unless_a_later_one_overrides():
    first, second = rule({"t.example.com/rail": 1}), rule({"t.example.com/rail": 2})
    found = apply(gpus(1), first, second)
    assert attributes(found)[0]["t.example.com/rail"] == 1
    assert found.problems[0].startswith(
        "overlay file: rules[1].attributes[t.example.com/rail]: device gpu-1/gpu-0: has 1"
    )
    found = apply(gpus(1), first, rule({"t.example.com/rail": 2}, override=True))
    assert attributes(found)[0]["t.example.com/rail"] == 2
    assert found.problems == []


def test_expressions_see_the_device_as_its_driver_described_it():
    dependent = rule({"b": 1}, match=f'"a" in device.attributes["{DRIVER}"]')
    assert attributes(apply(gpus(1), rule({"a": 1}), dependent)) == [{"index": 0, "a": 1}]


def test_taints_are_told_apart_by_key_and_effect():
    driver_taint = DeviceTaint(
        key=BROKEN.key, effect="NoSchedule", value="no", time_added=datetime(2026, 1, 1, tzinfo=UTC)
    )
    evicting = DeviceTaint(key=BROKEN.key, effect="NoExecute")
    device = Device("gpu-0", taints=(driver_taint,))
    found = apply([device], rule(None, BROKEN, evicting))
    assert found.pools[0].devices[0].taints == (driver_taint, evicting)
    assert found.problems == [
        (
            "overlay file: rules[0].taints[site.example.com/broken:NoSchedule]: device gpu-1/gpu-0: has value 'no' "
            "already; only a rule with override: true may replace it"
        )
    ]
    assert apply([device], rule(None, BROKEN, override=True)).pools[0].devices[0].taints == (BROKEN,)


def test_a_taint_keeps_the_time_that_its_driver_gave():
    timed = DeviceTaint(key="a", effect="NoExecute", value="b", time_added=datetime(2026, 1, 1, tzinfo=UTC))
    device = Device("gpu-0", taints=(timed,))
    found = apply([device], rule(None, DeviceTaint(key="a", effect="NoExecute", value="b"), override=True))
    assert found.pools[0].devices[0] is device
    assert apply(gpus(1), rule(None, BROKEN)).pools[0].devices[0].taints[0].time_added is None


def test_an_expression_that_fails_is_told_once_and_stops_nothing_else():
    failing = rule({"a": 1}, match=f'device.attributes["{DRIVER}"].rail == 1')
    found = apply(gpus(3), failing, rule({"b": 1}))
    assert all(each["b"] == 1 and "a" not in each for each in attributes(found))
    assert found.problems == [
        (
            "overlay file: rules[0].match: device gpu-1/gpu-0 (and 2 more devices): no such key: rail "
            f"(CEL expression 'device.attributes[\"{DRIVER}\"].rail == 1')"
        )
    ]


def test_a_pattern_without_its_library_is_a_problem_of_its_rule(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setitem(sys.modules, "re2", None)
    computed = rule({"a": 1}, match='device.driver.matches(device.driver + "only in this test")')
    found = apply(gpus(1), computed, rule({"b": 1}))
    assert attributes(found) == [{"index": 0, "b": 1}]
    assert "regular expressions need the package google-re2" in found.problems[0]


def test_applying_twice_changes_nothing_more():
    rules = Overlay("file", (rule({"a": 1}, BROKEN),))
    once = rules.apply([ResourcePool("p", gpus(2))], driver=DRIVER, node="n").pools
    twice = rules.apply(once, driver=DRIVER, node="n")
    assert twice.pools == once
    assert twice.problems == []


def test_what_comes_out_can_be_published():
    found = apply(gpus(2), rule({"t.example.com/rail": 1, "t.example.com/fw": Version("1.0.0")}, BROKEN))
    planned = plan(found.pools, driver=DRIVER, node_name="gpu-1")["gpu-1"]
    assert isinstance(planned, PoolPlan)
    assert '"t.example.com/fw": {"version": "1.0.0"}' in json.dumps(planned.slices)


@pytest.mark.parametrize(
    ("nodes", "node", "concerned"),
    [
        ((), "anything", True),
        (("gpu-*",), "gpu-1", True),
        (("gpu-*",), "cpu-1", False),
        (("a", "gpu-[12]"), "gpu-2", True),
        (("GPU-*",), "gpu-1", False),
    ],
)
def test_nodes_are_patterns(nodes: tuple[str, ...], node: str, concerned: bool):
    assert rule(nodes=nodes).concerns(node) is concerned


def test_without_an_expression_every_device_is_selected():
    view = cel.DeviceView("d", {"index": 1})
    assert rule().selects(view)
    assert rule(match="device.attributes['d'].index == 1").selects(view)
    assert not rule(match="device.attributes['d'].index == 2").selects(view)


def test_the_last_rule_that_says_so_decides_whether_a_device_is_published():
    some = f'device.attributes["{DRIVER}"].index'
    found = apply(
        gpus(4),
        rule(publish=False),
        rule(match=f"{some} >= 2", publish=True),
        rule({"t.example.com/rail": 1}, match=f"{some} == 3"),
        rule(match=f"{some} == 2", publish=False, nodes=("other-*",)),
    )
    assert [device.name for device in found.pools[0].devices] == ["gpu-2", "gpu-3"]
    assert attributes(found) == [{"index": 2}, {"index": 3, "t.example.com/rail": 1}]


def test_a_rule_that_fails_on_a_device_leaves_it_published():
    found = apply(gpus(1), rule(match=f'device.attributes["{DRIVER}"].none == 1', publish=False))
    assert [device.name for device in found.pools[0].devices] == ["gpu-0"]
    assert len(found.problems) == 1
