"""Clusters to allocate in: nodes with ten GPUs each, and claims for them with CEL selectors.

Objects are as the API server stores them, with defaults filled in.
"""

from __future__ import annotations

import random
from typing import Any, Final

JSON = dict[str, Any]

DRIVER: Final = "gpu.bench.example"
CLASS: Final = "gpu"
PER_NODE: Final = 10
_MODELS: Final = ("a100", "h100", "l40", "t4")
_ATTRIBUTES: Final = f'device.attributes["{DRIVER}"]'
_MEMORY: Final = f'device.capacity["{DRIVER}"].memory'

#: Few distinct expressions, because the scheduler keeps only ten compiled ones.
SELECTORS: Final = (
    f'{_ATTRIBUTES}.model == "a100" && {_MEMORY}.compareTo(quantity("80Gi")) >= 0',
    f'{_ATTRIBUTES}.model == "h100"',
    f'{_ATTRIBUTES}.model in ["l40", "t4"] && {_ATTRIBUTES}.numa == 1',
    f'{_MEMORY}.isGreaterThan(quantity("24Gi"))',
    f'{_ATTRIBUTES}.driverVersion.isGreaterThan(semver("1.2.0"))',
)


def world(nodes: int, claims: int, seed: int = 1) -> JSON:
    """A cluster of so many nodes, each with PER_NODE devices in one slice, and so many claims."""
    draw = random.Random(seed)
    return {
        "nodes": [_node(index) for index in range(nodes)],
        "slices": [_slice(index, draw) for index in range(nodes)],
        "classes": [_class()],
        "claims": [_claim(index, draw) for index in range(claims)],
    }


def _name(index: int) -> str:
    return f"node-{index:05}"


def _node(index: int) -> JSON:
    metadata = {"name": _name(index), "labels": {"kubernetes.io/hostname": _name(index)}}
    return {"apiVersion": "v1", "kind": "Node", "metadata": metadata}


def _slice(index: int, draw: random.Random) -> JSON:
    """One node's pool: a node has one model, but its devices differ in NUMA node, PCIe root and UUID."""
    model = draw.choice(_MODELS)
    memory = draw.choice(("40Gi", "80Gi") if model in {"a100", "h100"} else ("16Gi", "24Gi", "48Gi"))
    version = draw.choice(("1.0.0", "1.2.3", "2.0.0"))
    devices = [
        {
            "name": f"gpu-{number}",
            "attributes": {
                "uuid": {"string": f"GPU-{draw.getrandbits(64):016x}"},
                "model": {"string": model},
                "numa": {"int": number * 2 // PER_NODE},
                "driverVersion": {"version": version},
                "resource.kubernetes.io/pcieRoot": {"string": f"pci0000:{number // 2:02x}"},
            },
            "capacity": {"memory": {"value": memory}, "cores": {"value": "100"}},
        }
        for number in range(PER_NODE)
    ]
    spec = {
        "driver": DRIVER,
        "nodeName": _name(index),
        "pool": {"name": _name(index), "generation": 1, "resourceSliceCount": 1},
        "devices": devices,
    }
    return _object("ResourceSlice", f"{_name(index)}-gpu", spec)


def _class() -> JSON:
    return _object("DeviceClass", CLASS, {"selectors": [_selector(f'device.driver == "{DRIVER}"')]})


def _claim(index: int, draw: random.Random) -> JSON:
    kind = draw.choices(("one", "pair", "choice"), (70, 20, 10))[0]
    devices: JSON
    if kind == "one":
        devices = {"requests": [{"name": "gpu", "exactly": _request(draw.choice(SELECTORS), 1)}]}
    elif kind == "pair":
        pcie = {"requests": ["gpu"], "matchAttribute": "resource.kubernetes.io/pcieRoot"}
        devices = {"requests": [{"name": "gpu", "exactly": _request(SELECTORS[3], 2)}], "constraints": [pcie]}
    else:
        big, small = _request(SELECTORS[0], 1), _request(SELECTORS[2], 2)
        alternatives = [{"name": "big", **big}, {"name": "small", **small}]
        devices = {"requests": [{"name": "gpu", "firstAvailable": alternatives}]}
    return _object("ResourceClaim", f"claim-{index:05}", {"devices": devices}, namespace="bench")


def _request(expression: str, count: int) -> JSON:
    selectors = [_selector(expression)]
    return {"deviceClassName": CLASS, "selectors": selectors, "allocationMode": "ExactCount", "count": count}


def _selector(expression: str) -> JSON:
    return {"cel": {"expression": expression}}


def _object(kind: str, name: str, spec: JSON, **metadata: str) -> JSON:
    meta = {"name": name, "uid": f"{kind}-{name}", **metadata}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": meta, "spec": spec}
