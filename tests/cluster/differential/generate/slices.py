"""Random pools of ResourceSlices: for a node, a zone, all nodes or by device; complete, incomplete or obsolete."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import count
from typing import Any

from tests.cluster.differential.case import CASE, JSON, NODES, SLOT
from tests.cluster.differential.generate.devices import counter_set, device, node_choice, zone_selector
from tests.cluster.differential.generate.draw import Draw


@dataclass(frozen=True)
class _Pool:
    driver: str
    name: str
    nodes: JSON
    node: str


def slices(draw: Draw, drivers: list[str]) -> list[JSON]:
    """Returns all slices of a case."""
    made: list[JSON] = []
    for driver in drivers:
        pools = list(_pools(draw, driver))
        for pool in pools:
            made += _slices_of(draw, pool, count(0))
    return draw.shuffled(made) if draw.chance(0.5) else made


def _pools(draw: Draw, driver: str) -> list[_Pool]:
    short = driver.partition(".")[0]
    found: list[_Pool] = []
    for node in draw.some(NODES, 2):
        shared_name = draw.has("foreign-pool-name", 0.6)
        name = node.replace(SLOT, CASE) if shared_name else f"{node.replace(SLOT, CASE)}-{short}"
        found.append(_Pool(driver, name, {"nodeName": node}, node))
    if draw.has("zones"):
        name = f"{CASE}-{draw.one('a', 'z')}-{short}"
        found.append(_Pool(driver, name, {"nodeSelector": zone_selector(draw)}, draw.one(*NODES)))
    if draw.has("all-nodes"):
        found.append(_Pool(driver, f"{CASE}-all-{short}", {"allNodes": True}, draw.one(*NODES)))
    if draw.has("per-device"):
        name = f"{CASE}-per-device-{short}"
        found.append(_Pool(driver, name, {"perDeviceNodeSelection": True}, draw.one(*NODES)))
    return draw.some(found, 1, 4)


def _slices_of(draw: Draw, pool: _Pool, numbers: count[int]) -> list[JSON]:
    generation = draw.number(1, 2) if draw.has("obsolete") else 1
    device_slices = [_devices(draw, pool, part) for part in range(draw.one(1, 1, 2))]
    specs: list[JSON] = [{"devices": devices} for devices in device_slices]
    if draw.has("counters"):
        specs.append({"sharedCounters": [counter_set(draw, "board0"), counter_set(draw, "board1")]})
    if draw.has("invalid-pool", 0.4):
        _make_invalid(draw, specs)
    total = len(specs) + (1 if draw.has("incomplete", 0.25) else 0)
    made = [_slice(pool, spec, next(numbers), generation, total, draw) for spec in specs]
    if draw.has("obsolete", 0.6):
        old = {"devices": _devices(draw, pool, 0)}
        older = max(0, generation + draw.one(-1, -1, 1))
        made.append(_slice(pool, old, next(numbers), older, draw.number(1, 2), draw))
    return made


def _devices(draw: Draw, pool: _Pool, part: int) -> list[JSON]:
    made = []
    for number in range(draw.number(1, 5)):
        each = device(draw, pool.driver, f"dev-{part}-{number}")
        if "perDeviceNodeSelection" in pool.nodes:
            each |= node_choice(draw, draw.one(*NODES))
        elif "nodeName" in pool.nodes and "bindsToNode" in each and draw.chance(0.8):
            del each["bindsToNode"]
        made.append(each)
    return made


def _make_invalid(draw: Draw, specs: list[JSON]) -> None:
    """Adds a device twice, or unknown counters: the server accepts each slice, the allocator refuses the pool."""
    devices = specs[0]["devices"]
    if draw.chance(0.5):
        specs.append({"devices": [dict(devices[0])]})
    else:
        consumed = [{"counterSet": "nowhere", "counters": {"memory": {"value": "1Gi"}}}]
        devices[0]["consumesCounters"] = consumed


def _slice(pool: _Pool, spec: JSON, number: int, generation: int, total: int, draw: Draw) -> JSON:
    name = f"{pool.name}-{draw.one('a', 'b', 'c')}{number}"
    if pool.driver.partition(".")[0] not in name:
        name = f"{name}-{pool.driver.partition('.')[0]}"
    nodes: dict[str, Any] = dict(pool.nodes)
    if "sharedCounters" in spec and "perDeviceNodeSelection" in nodes:
        nodes = draw.one({"perDeviceNodeSelection": True}, {"nodeName": pool.node})
    elif "sharedCounters" in spec and draw.chance(0.1):
        nodes = {"nodeName": draw.one(*NODES)}
    content = {
        "driver": pool.driver,
        "pool": {"name": pool.name, "generation": generation, "resourceSliceCount": total},
        **nodes,
        **spec,
    }
    if draw.has("skipped-operations", 0.6):
        content["skipNodeOperations"] = draw.one(
            ["*"], ["NodePrepareResources", "NodeUnprepareResources"], ["NodePrepareResources"]
        )
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": content,
    }
