"""Small clusters for tests of explanations and pictures: nodes with partitionable GPUs, NICs and NUMA nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, bare_node

JSON = dict[str, Any]
API = "resource.k8s.io/v1"
GPU, NIC = "gpu.nvidia.com", "nic.example.com"
NUMA, ROOT = "resource.kubernetes.io/numaNode", "resource.kubernetes.io/pcieRoot"


#: MIG profiles of an A100: slots, memory in Mi, possible first slots.
PROFILES = {
    "1g.5gb": (1, 4864, range(7)),
    "2g.10gb": (2, 9856, (0, 2, 4)),
    "3g.20gb": (4, 19968, (0, 4)),
    "4g.20gb": (4, 19968, (0,)),
    "7g.40gb": (8, 40192, (0,)),
}


def obj(kind: str, name: str, *, version: str = API, namespace: str | None = None, **more: Any) -> JSON:
    metadata: JSON = {"name": name, "uid": f"uid-{kind}-{namespace}-{name}"}
    if namespace:
        metadata["namespace"] = namespace
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def values(attributes: Mapping[str, Any]) -> JSON:
    kinds: dict[type, str] = {bool: "bool", int: "int", str: "string", list: "strings"}
    return {name: {kinds[type(value)]: value} for name, value in attributes.items()}


def device(
    name: str, attributes: Mapping[str, Any] | None = None, capacity: Mapping[str, str] | None = None, **more: Any
) -> JSON:
    made: JSON = {"name": name}
    if attributes:
        made["attributes"] = values(attributes)
    if capacity:
        made["capacity"] = {key: {"value": value} for key, value in capacity.items()}
    return made | more


def pool_slice(
    node: str, driver: str, devices: Sequence[JSON] = (), *, part: str = "0", count: int = 1, **more: Any
) -> JSON:
    node_selection = {} if {"allNodes", "nodeSelector", "perDeviceNodeSelection"} & set(more) else {"nodeName": node}
    pool = {"name": node, "generation": 1, "resourceSliceCount": count}
    spec = {"driver": driver, "pool": pool, **node_selection, **more}
    if devices:
        spec["devices"] = list(devices)
    return obj("ResourceSlice", f"{node}-{driver.partition('.')[0]}-{part}", spec=spec)


def gpus(node: str, count: int = 2, memory: str = "40Gi", model: str = "A100", **more: Any) -> JSON:
    """One slice of whole GPUs, half of them on each NUMA node, each below a PCIe root of its own."""
    made = [
        device(
            f"gpu-{index}",
            {"type": "gpu", "productName": model, NUMA: 2 * index // count, ROOT: f"pci0000:{index:02x}"},
            {"memory": memory},
            **more,
        )
        for index in range(count)
    ]
    return pool_slice(node, GPU, made)


def nics(node: str, count: int = 2, *, numa: bool = True, **more: Any) -> JSON:
    """One slice of NICs, one below each PCIe root."""
    made = []
    for index in range(count):
        alignment: JSON = {NUMA: 2 * index // count} if numa else {}
        made.append(device(f"nic-{index}", {"rdma": True, ROOT: f"pci0000:{index:02x}", **alignment}, **more))
    return pool_slice(node, NIC, made)


def mig(node: str, count: int = 1) -> list[JSON]:
    """Partitionable GPUs: a slice of counter sets and a slice of partitions."""
    sets, parts = [], []
    for index in range(count):
        name = f"gpu-{index}-counter-set"
        counters = {"memory": {"value": "40192Mi"}, "multiprocessors": {"value": "98"}, "copy-engines": {"value": "7"}}
        slots: JSON = {f"memory-slice-{slot}": {"value": "1"} for slot in range(8)}
        sets.append({"name": name, "counters": {**counters, **slots}})
        parts += [
            _part(index, profile, start, count) for profile, (_, _, starts) in PROFILES.items() for start in starts
        ]
    return [
        pool_slice(node, GPU, part="counters", count=2, sharedCounters=sets),
        pool_slice(node, GPU, parts, part="devices", count=2),
    ]


def _part(gpu: int, profile: str, start: int, count: int) -> JSON:
    slots, memory, _ = PROFILES[profile]
    share = min(7, slots)
    counters: JSON = {"memory": {"value": f"{memory}Mi"}, "multiprocessors": {"value": str(14 * share)}}
    counters |= {"copy-engines": {"value": str(share)}}
    counters |= {f"memory-slice-{slot}": {"value": "1"} for slot in range(start, start + slots)}
    return device(
        f"gpu-{gpu}-mig-{profile.replace('.', '-')}-{start}",
        {"type": "mig", "profile": profile, NUMA: 2 * gpu // count, ROOT: f"pci0000:{gpu:02x}"},
        {"memory": f"{memory}Mi"},
        consumesCounters=[{"counterSet": f"gpu-{gpu}-counter-set", "counters": counters}],
    )


def device_class(name: str, *selectors: str) -> JSON:
    return obj(
        "DeviceClass", name, spec={"selectors": [{"cel": {"expression": expression}} for expression in selectors]}
    )


def exactly(name: str, cls: str, *selectors: str, count: int = 1, **more: Any) -> JSON:
    request: JSON = {"deviceClassName": cls, "allocationMode": "ExactCount", "count": count}
    if more.get("allocationMode") == "All":
        del request["count"]
    if selectors:
        request["selectors"] = [{"cel": {"expression": expression}} for expression in selectors]
    return {"name": name, "exactly": request | more}


def claim(name: str, *requests: JSON, namespace: str = "default", constraints: Iterable[JSON] = ()) -> JSON:
    devices: JSON = {"requests": list(requests)}
    if constraints := list(constraints):
        devices["constraints"] = constraints
    return obj("ResourceClaim", name, namespace=namespace, spec={"devices": devices})


def with_devices(made: JSON, *results: tuple[str, str, str, str], node: str = "", pod: str = "", **more: Any) -> JSON:
    """The claim with this allocation; a result is (request, driver, pool, device)."""
    keys = ("request", "driver", "pool", "device")
    allocation: JSON = {"devices": {"results": [dict(zip(keys, fields, strict=True)) | more for fields in results]}}
    if node:
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}]
        allocation["nodeSelector"] = {"nodeSelectorTerms": terms}
    status: JSON = {"allocation": allocation}
    if pod:
        status["reservedFor"] = [{"resource": "pods", "name": pod, "uid": f"uid-Pod-{pod}"}]
    return made | {"status": status}


def pod(name: str, *claims: str, node: str = "", namespace: str = "default") -> JSON:
    spec: JSON = {
        "resourceClaims": [{"name": name, "resourceClaimName": name} for name in claims],
        "containers": [{"name": "main", "image": "x", "resources": {"claims": [{"name": name} for name in claims]}}],
    }
    if node:
        spec["nodeName"] = node
    return obj("Pod", name, version="v1", namespace=namespace, spec=spec)


_OF_DRIVER = 'device.driver == "gpu.nvidia.com"'


CLASSES = (
    device_class("gpu.nvidia.com", _OF_DRIVER, 'device.attributes["gpu.nvidia.com"].type == "gpu"'),
    device_class("mig.nvidia.com", f'{_OF_DRIVER} && device.attributes["gpu.nvidia.com"].type == "mig"'),
    device_class("nic.example.com", 'device.driver == "nic.example.com"'),
)


def cluster(*objects: JSON | Sequence[JSON], nodes: Sequence[str] = ()) -> Snapshot:
    """A snapshot of these objects, with the nodes that they name."""
    flat = [one for group in objects for one in (group if isinstance(group, (list, tuple)) else [group])]
    made = Snapshot(classes=CLASSES, nodes=tuple(map(bare_node, nodes))).with_objects(flat)
    return made.with_missing_nodes()[0]
