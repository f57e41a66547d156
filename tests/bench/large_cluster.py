"""The inputs of `tests.bench.size`: many nodes like one of a driver's fixture, and pods as a busy GPU cluster has them.

Everything is the same in every run. The GPUs of each node have UUIDs of their own, as in a real cluster, so nodes are
of one shape without being equal.
"""

from __future__ import annotations

import json
import os
import re
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Final, TextIO
from unittest.mock import patch

import yaml

from dra_sdk.cli.driver_input import discovered_slices, opened_driver
from dra_sdk.wire.profile import ServerProfile

JSON = dict[str, Any]

DRIVER: Final = "gpu"
FIXTURE: Final = "h100x8"
SETTINGS: Final = {"DRA_GPU_DYNAMIC_MIG": "true"}
"""Every possible MIG device is published: 208 devices for eight GPUs."""
MODEL_NODE: Final = "gpu-00000"
GPUS: Final = 8
_GPU: Final = "gpu.nvidia.com"
_MIG: Final = "mig.nvidia.com"
_ADMIN: Final = "monitoring"
_UUID: Final = re.compile('(GPU-|uid[": ]+)([0-9a-f-]{36})')
_ATTRIBUTES: Final = f'device.attributes["{_GPU}"]'
_CAPACITY: Final = f'device.capacity["{_GPU}"]'
SHARES: Final = {
    "one": 24,
    "extended": 8,
    "pair": 6,
    "all-gpus": 4,
    "mig-1g": 18,
    "mig-2g": 12,
    "mig-3g": 8,
    "by-memory": 6,
    "choice": 6,
    "cpu": 8,
}
"""Of 100 pods, how many there are of each kind; each node has a pod of a DaemonSet in addition."""


# -- objects


def node_names(count: int) -> list[str]:
    """The names of the nodes; the first is MODEL_NODE."""
    return [f"gpu-{number:05}" for number in range(count)]


def node(name: str) -> JSON:
    """A server with eight GPUs."""
    labels = {"kubernetes.io/hostname": name, "node.kubernetes.io/instance-type": "h100x8"}
    taints = [{"key": "nvidia.com/gpu", "effect": "NoSchedule"}]
    allocatable = {"cpu": "192", "memory": "2000Gi", "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {"taints": taints},
        "status": {"allocatable": allocatable},
    }


def devices() -> list[JSON]:
    """The ResourceSlices of MODEL_NODE, as its driver publishes them."""
    with patch.dict(os.environ, SETTINGS), opened_driver(DRIVER, FIXTURE, [MODEL_NODE]) as driver:
        source = next(discovered_slices(driver, ServerProfile.of("1.36")))
    return [_published(each.value, index) for index, each in enumerate(source.documents)]


def texts_of_devices(text: str, names: Iterable[str]) -> Iterator[str]:
    """For each node, the text of the slices of MODEL_NODE with the node's name, and UUIDs of its own."""
    for name in names:
        own = text.replace(MODEL_NODE, name)
        yield _UUID.sub(lambda found, name=name: found[1] + _own_uuid(found[2], name), own)


def _published(obj: JSON, index: int) -> JSON:
    """A slice with the name and the identity that a server gives it."""
    name = f"{index:05}-{_GPU}-{MODEL_NODE}"
    uid = str(uuid.uuid5(uuid.NAMESPACE_OID, name))
    return obj | {"metadata": {"name": name, "uid": uid, "resourceVersion": "1", "generation": 1}}


def _own_uuid(shared: str, name: str) -> str:
    return str(uuid.uuid5(uuid.NAMESPACE_OID, f"{name} {shared}"))


def common_objects() -> Iterator[JSON]:
    """Classes, claim templates, the namespace with admin access, and the DaemonSet."""
    driver = f'device.driver == "{_GPU}"'
    for name, kind, more in ((_GPU, "gpu", {"extendedResourceName": "nvidia.com/gpu"}), (_MIG, "mig", {})):
        spec = {"selectors": [_selector(f'{driver} && {_ATTRIBUTES}.type == "{kind}"')]}
        yield _resource("DeviceClass", {"name": name}, spec | more)
    for name, devices in _templates().items():
        yield _resource("ResourceClaimTemplate", {"name": name}, {"spec": {"devices": devices}})
    labels = {"resource.kubernetes.io/admin-access": "true"}
    yield {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": _ADMIN, "labels": labels}}
    template = {"metadata": {"labels": {"app": "exporter"}}, "spec": _pod_spec("100m")}
    yield {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": {"name": "exporter", "namespace": _ADMIN},
        "spec": {"selector": {"matchLabels": {"app": "exporter"}}, "template": template},
    }


def _templates() -> dict[str, JSON]:
    """What the pods of each kind that has claims ask for."""
    profile = f"{_ATTRIBUTES}.profile"
    alternatives = [
        {"name": "part", **_exactly(_MIG, f'{profile} == "4g.40gb"')},
        {"name": "whole", **_exactly(_GPU)},
    ]
    same = {"requests": ["gpu"], "matchAttribute": f"{_GPU}/productName"}
    large = f'{_ATTRIBUTES}.architecture == "Hopper" && {_CAPACITY}.memory.compareTo(quantity("30Gi")) >= 0'
    return {
        "one": _request(_exactly(_GPU)),
        "pair": _request(_exactly(_GPU, count=2)) | {"constraints": [same]},
        "all-gpus": _request(_exactly(_GPU, count=GPUS)),
        "mig-1g": _request(_exactly(_MIG, f'{profile} == "1g.10gb"')),
        "mig-2g": _request(_exactly(_MIG, f'{profile} == "2g.20gb"')),
        "mig-3g": _request(_exactly(_MIG, f'{profile} in ["3g.40gb", "4g.40gb"]')),
        "by-memory": _request(_exactly(_MIG, large)),
        "choice": {"requests": [{"name": "gpu", "firstAvailable": alternatives}]},
    }


def pods(count: int) -> Iterator[JSON]:
    """The pods, in the order in which they wait: kinds are mixed by their shares."""
    due = dict.fromkeys(SHARES, 0.0)
    for number in range(count):
        for kind, share in SHARES.items():
            due[kind] += share / 100
        kind = max(due, key=lambda each: due[each])
        due[kind] -= 1
        yield _pod(kind, number)


def _pod(kind: str, number: int) -> JSON:
    spec = _pod_spec("2")
    if kind == "extended":
        resources = spec["containers"][0]["resources"]
        resources["requests"] = {"nvidia.com/gpu": "1", **resources["requests"]}
        resources["limits"] = {"nvidia.com/gpu": "1"}
    elif kind != "cpu":
        spec["resourceClaims"] = [{"name": "gpu", "resourceClaimTemplateName": kind}]
        spec["containers"][0]["resources"]["claims"] = [{"name": "gpu"}]
    name = f"{kind}-{number:05}"
    metadata = {"name": name, "namespace": "default", "labels": {"app": kind}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def _pod_spec(cpu: str) -> JSON:
    resources = {"requests": {"cpu": cpu, "memory": "4Gi"}}
    container = {"name": "main", "image": "registry.example/app:1", "resources": resources}
    return {"containers": [container], "tolerations": [{"key": "nvidia.com/gpu", "operator": "Exists"}]}


def _request(request: JSON) -> JSON:
    return {"requests": [{"name": "gpu", "exactly": request}]}


def _exactly(device_class: str, *expressions: str, count: int = 1) -> JSON:
    found: JSON = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return found | ({"selectors": [_selector(each) for each in expressions]} if expressions else {})


def _selector(expression: str) -> JSON:
    return {"cel": {"expression": expression}}


def _resource(kind: str, metadata: JSON, spec: JSON) -> JSON:
    namespace = {"namespace": "default"} if kind == "ResourceClaimTemplate" else {}
    return {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": metadata | namespace, "spec": spec}


# -- files


def write_workloads(path: Path, count: int) -> None:
    """A YAML file for nodes that a driver's fixture has: the model node, and everything that is not a device."""
    path.write_text(yaml.safe_dump_all([node(MODEL_NODE), *common_objects(), *pods(count)], sort_keys=False))


def write_json(path: Path, nodes: int, count: int) -> None:
    """A JSON List without spaces, as `kubectl get --raw` and `jq -c` write one."""
    with path.open("w") as file:
        file.write('{"apiVersion":"v1","kind":"List","items":[')
        _write_objects(file, _json_text, nodes, count)
        file.seek(file.tell() - 1)  # the last comma
        file.write("]}")


def write_yaml(path: Path, nodes: int, count: int) -> None:
    """A YAML List, as `kubectl get -o yaml` writes one."""
    with path.open("w") as file:
        file.write("apiVersion: v1\nkind: List\nitems:\n")
        _write_objects(file, _yaml_text, nodes, count)


def _write_objects(file: TextIO, write: Callable[[Iterable[JSON]], str], nodes: int, count: int) -> None:
    names = node_names(nodes)
    file.write(write(map(node, names)))
    file.writelines(texts_of_devices(write(devices()), names))
    file.write(write([*common_objects(), *pods(count)]))


def _json_text(objects: Iterable[JSON]) -> str:
    return "".join(f"{json.dumps(each, separators=(',', ':'))}," for each in objects)


def _yaml_text(objects: Iterable[JSON]) -> str:
    return yaml.dump(list(objects), Dumper=_Dumper, sort_keys=True)


class _Dumper(getattr(yaml, "CSafeDumper", yaml.SafeDumper)):  # type: ignore[misc]
    """Writes each object in full, also where two are one object in memory."""

    def ignore_aliases(self, data: object) -> bool:
        """Always."""
        return True
