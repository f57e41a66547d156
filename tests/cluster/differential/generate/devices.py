"""Random devices. Attributes, capacities, counters, taints and conditions have few values, so devices are alike."""

from __future__ import annotations

from typing import Any, Final

from tests.cluster.differential.case import JSON, SLOT
from tests.cluster.differential.generate.draw import Draw

MODELS: Final = ("a100", "h100", "t4")
ROOT: Final = "resource.kubernetes.io/pcieRoot"
COUNTERS: Final = ("memory", "slices")
TAINT_KEYS: Final = ("example.com/broken", "example.com/reserved")


def device(draw: Draw, driver: str, name: str) -> JSON:
    """Returns a device of a driver."""
    made: JSON = {"name": name, "attributes": _attributes(draw, driver), "capacity": _capacity(draw, driver)}
    if draw.has("shares", 0.7):
        made["allowMultipleAllocations"] = True
        made["capacity"] = {key: _with_policy(draw, value) for key, value in made["capacity"].items()}
    if draw.has("counters", 0.8):
        made["consumesCounters"] = consumption(draw)
    if draw.has("taints", 0.3):
        made["taints"] = [taint(draw) for _ in range(draw.number(1, 2))]
    if draw.has("binding", 0.5):
        made["bindingConditions"] = ["example.com/attached"]
        made["bindingFailureConditions"] = ["example.com/failed"]
    if draw.has("bound-to-node", 0.6):
        made["bindsToNode"] = True
    return {key: value for key, value in made.items() if value != {}}


def taint(draw: Draw) -> JSON:
    """Returns a taint; the server sets `timeAdded`."""
    made = {"key": draw.one(*TAINT_KEYS), "effect": draw.one("NoSchedule", "NoSchedule", "NoExecute", "None")}
    if draw.chance(0.6):
        made["value"] = draw.one("yes", "no")
    return made


def consumption(draw: Draw) -> list[JSON]:
    """Returns what a device consumes of the counter sets of its pool."""
    return [_consumed(draw, name) for name in draw.some(("board0", "board1"), 1, draw.one(1, 1, 2))]


def counter_set(draw: Draw, name: str) -> JSON:
    """Returns a counter set that is enough for a few devices."""
    counters = {"memory": {"value": draw.one("40Gi", "80Gi")}, "slices": {"value": draw.one("3", "7")}}
    return {"name": name, "counters": counters}


def node_choice(draw: Draw, node: str) -> JSON:
    """Returns the node selection of a device or a slice."""
    if draw.chance(0.6):
        return {"nodeName": node}
    return {"nodeSelector": zone_selector(draw)}


def zone_selector(draw: Draw) -> JSON:
    """Returns a selector of nodes of the slot by their labels, with one term."""
    expressions: list[JSON] = [{"key": "slot", "operator": "In", "values": [SLOT]}]
    kinds: list[JSON] = [
        {"key": "zone", "operator": "In", "values": [draw.one("a", "b")]},
        {"key": "zone", "operator": "NotIn", "values": ["a"]},
        {"key": "rank", "operator": "Gt", "values": ["0"]},
        {"key": "rank", "operator": "Lt", "values": ["2"]},
        {"key": "zone", "operator": "Exists"},
        {"key": "missing", "operator": "DoesNotExist"},
        {"key": "missing", "operator": "Exists"},
    ]
    expressions += draw.some(kinds, 0, 2)
    term: JSON = {"matchExpressions": draw.shuffled(expressions)}
    if draw.chance(0.15):
        term["matchFields"] = [{"key": "metadata.name", "operator": "In", "values": [f"{SLOT}-n{draw.number(0, 3)}"]}]
    return {"nodeSelectorTerms": [term]}


def _attributes(draw: Draw, driver: str) -> JSON:
    possible: dict[str, JSON] = {
        "model": {"string": draw.one(*MODELS)},
        "numa": {"int": draw.number(0, 1)},
        "version": {"version": draw.one("1.0.0", "1.2.3", "2.0.0-rc.1")},
        "ready": {"bool": draw.chance(0.7)},
        ROOT: {"string": draw.one("pci0000:00", "pci0000:40")},
    }
    if draw.has("lists", 0.8):
        possible["tags"] = draw.one({"strings": draw.some(("x", "y", "z"))}, {"ints": draw.some((1, 2, 3))})
        if draw.chance(0.1):
            possible["numa"] = {"ints": [0, 1]}
    present = [key for key in possible if draw.chance(0.985 if key != "ready" else 0.4)]
    domain = f"{driver}/" if draw.chance(0.1) else ""
    return {key if "/" in key else domain + key: possible[key] for key in present}


def _capacity(draw: Draw, driver: str) -> JSON:
    possible = {
        "memory": {"value": draw.one("10Gi", "20Gi", "40Gi", "80Gi", "1500M")},
        "cores": {"value": draw.one("2", "4", "8", "1500m")},
        "tokens": {"value": draw.one("10k", "100k", "8Ki")},
    }
    if draw.has("shares", 0.1):
        return {}
    domain = f"{driver}/" if draw.chance(0.1) else ""
    return {domain + key: value for key, value in possible.items() if draw.chance(0.97)}


def _with_policy(draw: Draw, capacity: JSON) -> JSON:
    """Returns a request policy, which fits the capacity in most cases."""
    value = capacity["value"]
    policies: list[Any] = [
        None,
        {"default": value},
        {"default": "1", "validRange": {"min": "1"}},
        {"default": "1", "validRange": {"min": "1", "max": value, "step": draw.one("1", "500m", "250m")}},
        {"default": "500m", "validRange": {"min": draw.one("250m", "500m"), "step": draw.one("250m", "1", "500u")}},
        {"default": "2", "validRange": {"min": "1", "step": "1"}},
    ]
    if value.endswith(("k", "Ki")):
        policies = [
            None,
            *({"default": each, "validRange": {"min": each, "step": each}} for each in ("1k", "1024", "1Ki")),
        ]
    elif value.endswith("Gi"):
        policies = [
            None,
            {"default": "5Gi"},
            {"default": "2Gi", "validValues": ["1Gi", "2Gi", "8Gi"]},
            {"default": "2Gi", "validRange": {"min": "1Gi", "max": "8Gi", "step": "1Gi"}},
            {"default": "1Gi", "validRange": {"min": "1Gi"}},
            {"default": "4Gi", "validRange": {"min": "2Gi", "step": "2Gi"}},
        ]
    policy = draw.one(*policies)
    return capacity if policy is None else {**capacity, "requestPolicy": policy}


def _consumed(draw: Draw, name: str) -> JSON:
    possible = {"memory": {"value": draw.one("10Gi", "20Gi", "40Gi")}, "slices": {"value": draw.one("1", "2", "3")}}
    made: JSON = {"counterSet": name, "counters": {key: possible[key] for key in draw.some(COUNTERS)}}
    if draw.has("groups", 0.8):
        made["compatibilityGroups"] = draw.some(("half", "third", "whole"), 1, 2)
    return made
