from __future__ import annotations

from typing import Any

from dra_sdk.tools.scheduling.tracker import Change, Tracker, apply_rules
from tests.tools.scheduling.allocator.build import a_slice, device

TAINT = {"key": "k", "effect": "NoSchedule"}


def rule(name: str = "rule", taint: dict[str, Any] | None = None, **selector: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint or TAINT}}


def taints(each: dict[str, Any]) -> list[Any]:
    return [one.get("taints") for one in each["spec"].get("devices", [])]


def test_a_rule_taints_the_devices_it_selects() -> None:
    gpus = a_slice(device("a"), device("b"))
    assert taints(apply_rules([gpus], [rule(device="b")])[0]) == [None, [TAINT]]
    assert taints(apply_rules([gpus], [rule(pool="n1")])[0]) == [[TAINT], [TAINT]]
    assert taints(apply_rules([gpus], [rule()])[0]) == [[TAINT], [TAINT]]
    assert taints(gpus) == [None, None]


def test_a_slice_that_no_rule_is_about_is_the_same_object() -> None:
    gpus = a_slice(device("a"))
    for other in (rule(driver="x"), rule(pool="x"), rule(device="x"), rule(driver="x", device="a")):
        assert apply_rules([gpus], [other])[0] is gpus
    assert apply_rules([gpus], [])[0] is gpus


def test_a_rule_without_a_selector_is_about_nothing_since_1_37() -> None:
    gpus = a_slice(device("a"))
    for everything in ({"taint": TAINT}, {"taint": TAINT, "deviceSelector": None}):
        sweeping = {"metadata": {"name": "r"}, "spec": everything}
        assert taints(apply_rules([gpus], [sweeping])[0]) == [[TAINT]]
        assert apply_rules([gpus], [sweeping], need_selector=True)[0] is gpus
    assert taints(apply_rules([gpus], [rule()], need_selector=True)[0]) == [[TAINT]]


def test_taints_of_the_driver_stay_first() -> None:
    own = {"key": "own", "effect": "NoExecute"}
    other = {"key": "other", "value": "x", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"}
    found = apply_rules([a_slice(device("a") | {"taints": [own]})], [rule(), rule("more", other)])
    assert taints(found[0]) == [[own, TAINT, other]]


def test_the_tracker_tells_what_changes() -> None:
    tracker, gpus = Tracker(), a_slice(device("a"))
    assert tracker.put_slice(gpus) == [Change("add", None, gpus)]
    (change,) = tracker.put_rule(rule())
    assert (change.event, change.old, taints(change.new or {})) == ("update", gpus, [[TAINT]])
    assert tracker.slices == [change.new]
    assert tracker.delete_rule("rule") == [Change("update", change.new, gpus)]
    assert tracker.delete_slice("s1") == [Change("delete", gpus, None)]
    assert tracker.slices == []


def test_what_changes_nothing_is_not_told() -> None:
    tracker = Tracker()
    tracker.put_slice(a_slice(device("a")))
    assert tracker.put_rule(rule(device="b")) == []
    assert tracker.delete_rule("nobody") == []
    assert tracker.delete_slice("nothing") == []


def test_a_slice_that_is_put_again_is_an_update() -> None:
    tracker, gpus = Tracker(), a_slice(device("a"))
    tracker.put_slice(gpus)
    assert [each.event for each in tracker.put_slice(gpus)] == ["update"]
