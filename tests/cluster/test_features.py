"""Which gates are turned on for a release, and which tests are left out; no cluster is needed."""

from __future__ import annotations

import pytest

from tests.cluster import features
from tests.cluster.harness.cache import Version
from tests.cluster.harness.components import served_apis

RULES = "resource.k8s.io/v1alpha3=true"


@pytest.mark.parametrize(
    ("minor", "on", "off"),
    [
        (
            34,
            {"DRAPartitionableDevices", "ResourceHealthStatus"},
            {"DRADeviceTaintRules", "ResourceHealthStatusMessage"},
        ),
        (35, {"DRAPartitionableDevices", "DRADeviceTaintRules"}, {"ResourceHealthStatusMessage"}),
        (36, set(), {"DRAPartitionableDevices"}),
        (37, set(), {"DRAPartitionableDevices", "DRAFractionalCapacityRange"}),
    ],
)
def test_alpha_features_are_turned_on_where_they_are_known(minor: int, on: set[str], off: set[str]) -> None:
    gates = features.turned_on(minor)
    assert set(gates.values()) <= {True}
    assert on <= set(gates)
    assert not off & set(gates)


def test_a_release_is_asked_for_its_own_gates_only() -> None:
    names = {"DRADeviceTaints", "DRADeviceTaintRules", "DRAFractionalCapacityRange"}
    assert features.known(names, 34) == {"DRADeviceTaints"}
    assert features.known(names, 35) == {"DRADeviceTaints", "DRADeviceTaintRules"}
    assert features.known(names, 37) == names


def test_the_session_says_what_runs_and_what_it_lacks() -> None:
    first, second = features.header("1.35.4")
    assert first.startswith("Kubernetes 1.35.4, with these alpha gates: DRAConsumableCapacity, ")
    assert second == "Kubernetes 1.35.4 does not have DRAFractionalCapacityRange, ResourceHealthStatusMessage"
    assert features.header("1.37.1") == ["Kubernetes 1.37.1"]


@pytest.mark.parametrize(("minor", "left"), [(34, ["old", "span"]), (35, ["old"]), (36, []), (37, ["new", "span"])])
def test_marks_decide_what_is_left_out(request: pytest.FixtureRequest, minor: int, left: list[str]) -> None:
    marks = {"old": {"since": 36}, "new": {"until": 36}, "span": {"since": 35, "until": 36}, "all": None}
    items = []
    for name, limits in marks.items():
        item = pytest.Function.from_parent(request.node.parent, name=name, callobj=lambda: None)
        if limits:
            item.add_marker(getattr(pytest.mark, features.MARK)(**limits, because=f"{name} is not there"))
        items.append(item)
    found = list(features.left_out(items, minor))
    assert [item.name for item, _ in found] == left
    assert [reason for _, reason in found] == [f"{name} is not there" for name in left]


@pytest.mark.parametrize(
    ("version", "gates", "served"),
    [
        ("1.34.4", {"DRADeviceTaints": True}, f"api/ga=true,api/beta=true,{RULES}"),
        ("1.35.4", {"DRADeviceTaintRules": True}, f"api/ga=true,api/beta=true,{RULES}"),
        ("1.34.4", {"DRADeviceTaints": False}, "api/ga=true,api/beta=true"),
        ("1.36.3", {"DRADeviceTaintRules": True}, "api/ga=true,api/beta=true"),
        ("1.34.4", {"AllAlpha": True}, "api/all=true"),
    ],
)
def test_alpha_taint_rules_are_served_where_the_scheduler_waits_for_them(
    version: str, gates: dict[str, bool], served: str
) -> None:
    assert served_apis(Version.parse(version), gates) == served
