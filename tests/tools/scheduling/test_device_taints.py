from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.device_taints import (
    apply_taint_rules,
    tolerates,
    untolerated_taints,
)
from tests.tools.scheduling.allocator.build import a_slice, device

VALUED_TAINT = {"key": "k", "value": "v", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "k", "operator": "Exists"}, True),
        ({"key": "k", "operator": "Equal", "value": "v"}, True),
        ({"key": "k", "value": "v"}, True),
        ({"key": "k", "value": "v", "effect": "NoSchedule"}, True),
        ({"key": "k", "value": "v", "effect": "NoExecute"}, False),
        ({"key": "k", "value": "w"}, False),
        ({"key": "l", "operator": "Exists"}, False),
        ({"key": "k", "operator": "Near", "value": "v"}, False),
        ({"key": "k"}, False),
    ],
)
def test_tolerations(toleration: dict[str, Any], expected: bool) -> None:
    assert tolerates(toleration, VALUED_TAINT) is expected


def test_a_toleration_without_value_matches_a_taint_without_value() -> None:
    assert tolerates({"key": "k"}, {"key": "k", "effect": "NoSchedule"})


def test_only_effects_that_prevent_allocation_count() -> None:
    taints = [
        VALUED_TAINT,
        {"key": "k", "effect": "None"},
        {"key": "e", "effect": "NoExecute"},
        {"key": "f", "effect": "New"},
    ]
    assert untolerated_taints(taints, [{"key": "k", "operator": "Exists"}]) == [taints[2]]
    assert untolerated_taints(taints, []) == [taints[0], taints[2]]


TAINT = {"key": "k", "effect": "NoSchedule"}


def rule(name: str = "rule", taint: dict[str, Any] | None = None, **selector: str) -> dict[str, Any]:
    return {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint or TAINT}}


def taints(raw_slice: dict[str, Any]) -> list[Any]:
    return [one.get("taints") for one in raw_slice["spec"].get("devices", [])]


def test_a_rule_taints_the_devices_it_selects() -> None:
    gpus = a_slice(device("a"), device("b"))
    assert taints(apply_taint_rules([gpus], [rule(device="b")])[0]) == [None, [TAINT]]
    assert taints(apply_taint_rules([gpus], [rule(pool="n1")])[0]) == [[TAINT], [TAINT]]
    assert taints(apply_taint_rules([gpus], [rule()])[0]) == [[TAINT], [TAINT]]
    assert taints(gpus) == [None, None]


def test_a_slice_without_matching_rules_is_the_same_object() -> None:
    gpus = a_slice(device("a"))
    for other in (rule(driver="x"), rule(pool="x"), rule(device="x"), rule(driver="x", device="a")):
        assert apply_taint_rules([gpus], [other])[0] is gpus
    assert apply_taint_rules([gpus], [])[0] is gpus


def test_since_1_37_a_rule_without_a_selector_selects_nothing() -> None:
    gpus = a_slice(device("a"))
    for everything in ({"taint": TAINT}, {"taint": TAINT, "deviceSelector": None}):
        sweeping = {"metadata": {"name": "r"}, "spec": everything}
        assert taints(apply_taint_rules([gpus], [sweeping])[0]) == [[TAINT]]
        assert apply_taint_rules([gpus], [sweeping], require_selector=True)[0] is gpus
    assert taints(apply_taint_rules([gpus], [rule()], require_selector=True)[0]) == [[TAINT]]


def test_taints_of_the_driver_come_first() -> None:
    own = {"key": "own", "effect": "NoExecute"}
    other = {"key": "other", "value": "x", "effect": "None", "timeAdded": "2026-01-01T00:00:00Z"}
    tainted = apply_taint_rules([a_slice(device("a") | {"taints": [own]})], [rule(), rule("more", other)])
    assert taints(tainted[0]) == [[own, TAINT, other]]
