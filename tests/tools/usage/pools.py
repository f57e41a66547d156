"""Drawn pools with partitions, shares and taints, claims that hold some of their devices, and requests about them."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any, Final

from dra_sdk.model import JSON

DRIVERS: Final = 24
_VIEWS: Final = 37
_EFFECTS: Final = ("NoSchedule", "NoExecute", "None")


@dataclass
class DrawnCluster:
    """slices, claims and rules of a cluster, and the specs of requests.

    unanswered: how many requests are about a pool whose slices are not all there.
    """

    slices: list[JSON] = field(default_factory=list)
    claims: list[JSON] = field(default_factory=list)
    rules: list[JSON] = field(default_factory=list)
    requests: list[JSON] = field(default_factory=list)
    unanswered: int = 0


def draw_cluster(chance: random.Random, minor: int) -> DrawnCluster:
    """Draw the pools of all drivers."""
    drawn = DrawnCluster()
    for number in range(DRIVERS):
        _draw_driver(chance, drawn, f"d{number}.example.com", minor)
    return drawn


def _draw_driver(chance: random.Random, drawn: DrawnCluster, driver: str, minor: int) -> None:
    pools = [f"pool-{number}" for number in range(chance.randint(1, 4))]
    incomplete = chance.random() < 0.15
    for pool in pools:
        kind = chance.choice(["plain", "partitions", "shares"])
        slices = chance.randint(1, 2)
        declares = chance.random() < 0.6
        names: list[str] = []
        for index in range(slices):
            spec: JSON = {
                "driver": driver,
                "pool": {
                    "name": pool,
                    "generation": 2,
                    "resourceSliceCount": slices + (incomplete and pool == "pool-0"),
                },
                "nodeName": "node-a" if chance.random() < 0.8 else "node-b",
            }
            devices = [_device(chance, f"dev-{index}-{number}", kind, minor) for number in range(chance.randint(1, 6))]
            if kind == "partitions" and minor >= _VIEWS and declares:
                spec["partitionTypeAttribute"] = f"{driver}/profile"
            names += [device["name"] for device in devices]
            drawn.slices.append(_slice(f"{driver}-{pool}-{index}", {**spec, "devices": devices}))
        if kind == "partitions":
            counters = {
                "memory": {"value": f"{chance.randint(8, 60)}Gi"},
                "slots": {"value": str(chance.randint(1, 9))},
            }
            pool_spec = {"name": pool, "generation": 2, "resourceSliceCount": slices + 1}
            for entry in drawn.slices[-slices:]:
                entry["spec"]["pool"]["resourceSliceCount"] += 1
            pool_spec["resourceSliceCount"] = drawn.slices[-1]["spec"]["pool"]["resourceSliceCount"]
            shared = {"driver": driver, "pool": pool_spec, "nodeName": "node-a"}
            shared["sharedCounters"] = [{"name": "gpu", "counters": counters}]
            drawn.slices.append(_slice(f"{driver}-{pool}-counters", shared))
        if chance.random() < 0.3:  # left over from before
            old = {"driver": driver, "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1}}
            old |= {"nodeName": "node-a", "devices": [{"name": "old"}]}
            drawn.slices.append(_slice(f"{driver}-{pool}-old", old))
        _draw_claims(chance, drawn, driver, pool, names, kind)
        if chance.random() < 0.3:
            selector = {"driver": driver, "pool": pool, "device": chance.choice(names)}
            kept = {key: value for key, value in selector.items() if chance.random() < 0.8 or key == "driver"}
            drawn.rules.append(_rule(chance, f"{driver}-{pool}", kept, minor))
    asked: list[JSON] = [{"driver": driver}, {"driver": driver, "limit": chance.randint(1, 3)}]
    asked += [{"driver": driver, "poolName": chance.choice([*pools, "nowhere"])}]
    if minor >= _VIEWS:
        asked += [{"driver": driver, "defaultPartitionTypeAttribute": f"{driver}/profile"}]
    for spec in asked:
        drawn.requests.append(spec)
        covers = spec.get("poolName", "pool-0") == "pool-0"
        drawn.unanswered += incomplete and covers


def _device(chance: random.Random, name: str, kind: str, minor: int) -> JSON:
    device: JSON = {"name": name}
    if chance.random() < 0.2:
        effects = _EFFECTS if minor > 34 else _EFFECTS[:2]
        device["taints"] = [{"key": "example.com/hot", "effect": chance.choice(effects)}]
    if kind == "partitions":
        profile = chance.choice(["small", "large"])
        amount = {"small": "4Gi", "large": "16Gi"}[profile]
        device["attributes"] = {"profile": {"string": profile}}
        counters = {"memory": {"value": amount}, "slots": {"value": "1"}}
        if profile == "large" and chance.random() < 0.05:  # of one type only: the first that is found is reported
            counters["slots"] = {"value": "2"}
        device["consumesCounters"] = [{"counterSet": "gpu", "counters": counters}]
    if kind == "shares":
        device["allowMultipleAllocations"] = chance.random() < 0.8
        device["capacity"] = {
            "memory": {"value": chance.choice(["16Gi", "8G", "500M"])},
            "watt": {"value": chance.choice(["300", "0.5", "1e3"])},
        }
    return device


def _slice(name: str, spec: JSON) -> JSON:
    return {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSlice", "metadata": {"name": name}, "spec": spec}


def _draw_claims(
    chance: random.Random, drawn: DrawnCluster, driver: str, pool: str, names: list[str], kind: str
) -> None:
    for number in range(chance.randint(0, 3)):
        results: list[JSON] = []
        for device in chance.sample([*names, "unknown"], k=min(chance.randint(1, 3), len(names))):
            result: JSON = {"request": "r", "driver": driver, "pool": pool, "device": device}
            if chance.random() < 0.2:
                result["adminAccess"] = True
            elif kind == "shares" and chance.random() < 0.7:
                result["shareID"] = f"00000000-0000-4000-8000-{len(drawn.claims):06d}{len(results):06d}"
                result["consumedCapacity"] = {"memory": chance.choice(["1Gi", "300M"]), "watt": "100"}
            results.append(result)
        allocation: JSON = {"devices": {"results": results}}
        request = {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All"}}
        drawn.claims.append(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": f"{driver}-{pool}-{number}", "namespace": "default"},
                "spec": {"devices": {"requests": [request]}},
                "status": {"allocation": allocation},
            }
        )


def _rule(chance: random.Random, name: str, selector: dict[str, Any], minor: int) -> JSON:
    version = "v1" if minor >= _VIEWS else "v1beta2"
    taint = {"key": "example.com/broken", "effect": chance.choice(_EFFECTS)}
    spec = {"deviceSelector": selector, "taint": taint}
    metadata = {"name": name}
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": metadata,
        "spec": spec,
    }
