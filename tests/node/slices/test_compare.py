from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.node.slices.compare import normal, same, with_times


def tainted(time: str | None, **more: Any) -> dict[str, Any]:
    taint = {"key": "k", "effect": "NoSchedule", **({"timeAdded": time} if time else {}), **more}
    return {"devices": [{"name": "d", "taints": [taint]}]}


@pytest.mark.parametrize(
    ("stored", "wanted", "equal"),
    [
        ({"devices": []}, {}, True),
        ({"devices": None, "nodeName": "n"}, {"nodeName": "n"}, True),
        ({"nodeName": "n"}, {"nodeName": "m"}, False),
        ({"unknownField": 1}, {}, False),
        ({"devices": [{"name": "a"}, {"name": "b"}]}, {"devices": [{"name": "b"}, {"name": "a"}]}, False),
        ({"devices": [{"name": "a", "bindsToNode": False}]}, {"devices": [{"name": "a"}]}, True),
        (
            {"devices": [{"name": "a", "attributes": {"x": {"bool": False}}}]},
            {"devices": [{"name": "a", "attributes": {"x": {"bool": True}}}]},
            False,
        ),
        (
            {"devices": [{"name": "a", "attributes": {"x": {"bool": False}}}]},
            {"devices": [{"name": "a"}]},
            False,
        ),
        (
            {"devices": [{"name": "a", "attributes": {"x": {"int": 1}}}]},
            {"devices": [{"name": "a", "attributes": {"x": {"string": "1"}}}]},
            False,
        ),
    ],
)
def test_same(stored: dict[str, Any], wanted: dict[str, Any], equal: bool):
    assert same(stored, wanted) is equal


@pytest.mark.parametrize(
    ("field", "stored", "wanted", "equal"),
    [
        ("capacity", {"m": {"value": "1024Mi"}}, {"m": {"value": "1Gi"}}, True),
        ("capacity", {"m": {"value": "1024Mi"}}, {"m": {"value": "1G"}}, False),
        ("capacity", {"m": {"value": "junk"}}, {"m": {"value": "1G"}}, False),
        (
            "capacity",
            {"m": {"value": "4", "requestPolicy": {"default": "1000m", "validValues": ["1000m", "2"]}}},
            {"m": {"value": "4", "requestPolicy": {"default": "1", "validValues": ["1", "2"]}}},
            True,
        ),
        (
            "consumesCounters",
            [{"counterSet": "s", "counters": {"value": {"value": "2000m"}}}],
            [{"counterSet": "s", "counters": {"value": {"value": "2"}}}],
            True,
        ),
        (
            "nodeAllocatableResourceMappings",
            {"cpu": {"allocationMultiplier": "1000m"}},
            {"cpu": {"allocationMultiplier": "1"}},
            True,
        ),
        ("attributes", {"value": {"string": "1000m"}}, {"value": {"string": "1"}}, False),
    ],
)
def test_quantities_in_another_form_are_equal(field: str, stored: Any, wanted: Any, equal: bool):
    assert same({"devices": [{"name": "d", field: stored}]}, {"devices": [{"name": "d", field: wanted}]}) is equal


def test_shared_counters_in_another_form_are_equal():
    stored = {"sharedCounters": [{"name": "s", "counters": {"m": {"value": "2048Mi"}}}]}
    assert same(stored, {"sharedCounters": [{"name": "s", "counters": {"m": {"value": "2Gi"}}}]})


@pytest.mark.parametrize(
    ("stored", "wanted", "equal"),
    [
        ("2026-01-01T00:00:01Z", None, True),
        (None, "2026-01-01T00:00:01Z", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:02Z", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T01:00:02+01:00", True),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:03Z", False),
        ("2026-01-01T00:00:01Z", "never", False),
        ("2026-01-01T00:00:01Z", "2026-01-01T00:00:01", False),
    ],
)
def test_taint_times(stored: str | None, wanted: str | None, equal: bool):
    assert same(tainted(stored), tainted(wanted)) is equal
    assert not same(tainted(stored), tainted(wanted, value="other"))


def test_comparing_changes_nothing():
    spec = tainted("2026-01-01T00:00:01Z")
    assert same(spec, spec)
    assert spec == tainted("2026-01-01T00:00:01Z")
    assert normal(spec) == spec


def test_taints_keep_the_time_they_have():
    wanted = [tainted(None), tainted("2026-05-05T00:00:00Z"), tainted(None, value="new")]
    filled = with_times(wanted, [tainted("2026-01-01T00:00:01Z")])
    assert filled == [tainted("2026-01-01T00:00:01Z"), tainted("2026-05-05T00:00:00Z"), tainted(None, value="new")]
    assert wanted[0] == tainted(None)
    assert with_times(wanted, []) == wanted
