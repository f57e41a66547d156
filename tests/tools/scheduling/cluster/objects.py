"""Small API objects for tests of whole clusters."""

from __future__ import annotations

from typing import Any

from dra_sdk.tools.scheduling.cluster import Snapshot
from dra_sdk.tools.scheduling.cluster.core_v1 import Pod
from dra_sdk.tools.scheduling.cluster.snapshot import bare_node

JSON = dict[str, Any]
DRIVER = "gpu.example.com"
API = "resource.k8s.io/v1"


def obj(kind: str, name: str, spec: JSON | None = None, namespace: str = "", **metadata: Any) -> JSON:
    version = "v1" if kind in {"Pod", "Node"} else API
    where = {"namespace": namespace} if namespace else {}
    made: JSON = {"apiVersion": version, "kind": kind, "metadata": {"name": name, "uid": f"{name}-uid", **where}}
    made["metadata"] |= metadata
    return made if spec is None else made | {"spec": spec}


def node(name: str, *, labels: JSON | None = None, allocatable: JSON | None = None, **spec: Any) -> JSON:
    made = bare_node(name) | {"spec": spec}
    made["metadata"]["labels"] |= labels or {}
    return made if allocatable is None else made | {"status": {"allocatable": allocatable}}


def gpus(where: str, *names: str, pool: str = "", count: int = 1, generation: int = 1, **changes: Any) -> JSON:
    """A slice of node `where` with GPUs of these names; `changes` are other fields of the spec."""
    devices = [{"name": name, "attributes": {"model": {"string": "a100"}}} for name in names]
    pool_ref = {"name": pool or where, "generation": generation, "resourceSliceCount": count}
    spec = {"driver": DRIVER, "pool": pool_ref, "nodeName": where, "devices": devices} | changes
    name = f"{pool or where}-{generation}-{'-'.join(names) or 'counters'}"
    return obj("ResourceSlice", name, {key: value for key, value in spec.items() if value is not None})


def device_class(name: str = "gpu", **spec: Any) -> JSON:
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    return obj("DeviceClass", name, {"selectors": selectors, **spec})


def request(name: str = "gpu", class_name: str = "gpu", expression: str = "", **more: Any) -> JSON:
    exactly = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": 1, **more}
    if expression:
        exactly["selectors"] = [{"cel": {"expression": expression}}]
    return {"name": name, "exactly": exactly}


def claim(name: str, *requests: JSON, namespace: str = "default", **devices: Any) -> JSON:
    spec = {"devices": {"requests": list(requests or (request(),)), **devices}}
    return obj("ResourceClaim", name, spec, namespace)


def template(name: str, *requests: JSON, namespace: str = "default", **metadata: Any) -> JSON:
    inner: JSON = {"spec": {"devices": {"requests": list(requests or (request(),))}}}
    return obj("ResourceClaimTemplate", name, inner | ({"metadata": metadata} if metadata else {}), namespace)


def pod(name: str, *, claims: Any = (), templates: Any = (), namespace: str = "default", **spec: Any) -> JSON:
    """A pod that uses claims, and claims from templates, each under its own name."""
    entries = [{"name": name, "resourceClaimName": name} for name in claims]
    entries += [{"name": name, "resourceClaimTemplateName": name} for name in templates]
    return obj("Pod", name, {"containers": [{"name": "main"}], "resourceClaims": entries, **spec}, namespace)


def pod_requesting(name: str, **requests: Any) -> JSON:
    """A pod with one container that requests these resources; `_` stands for `/`, `__` for `.`."""
    amounts = {key.replace("__", ".").replace("_", "/"): str(amount) for key, amount in requests.items()}
    return pod(name, containers=[{"name": "main", "resources": {"requests": amounts}}])


def parsed(obj: JSON) -> Pod:
    return Pod.model_validate(obj)


def cluster(*objects: JSON, **more: Any) -> Snapshot:
    """A snapshot of these objects and class `gpu`."""
    return Snapshot(**more).with_objects([device_class(), *objects])


def allocated(made: JSON, *devices: str, on: str = "node-a", pods: Any = (), **extra: Any) -> JSON:
    """The claim with these devices of the pool of node `on`, reserved for these pods."""
    results = [{"request": "gpu", "driver": DRIVER, "pool": on, "device": device, **extra} for device in devices]
    term = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}
    allocation = {"devices": {"results": results}, "nodeSelector": {"nodeSelectorTerms": [term]}}
    status: JSON = {"allocation": allocation}
    if pods:
        status["reservedFor"] = [{"resource": "pods", "name": name, "uid": f"{name}-uid"} for name in pods]
    return made | {"status": status}


def devices_of(outcome: Any) -> dict[str, list[str]]:
    """The devices of each claim, both by name."""
    return {
        claim_outcome.claim[1]: [f"{result['pool']}/{result['device']}" for result in claim_outcome.results]
        for claim_outcome in outcome.claims
    }


def nodes_of(outcome: Any) -> dict[str, str | None]:
    """The node of each pod."""
    return {placement.pod[1]: placement.node for placement in outcome.pods}
