"""Small valid objects that tests change, and a short form of what `validate` finds."""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.wire.validation import ServerProfile, validate

VERSIONS = ("1.34", "1.35", "1.36", "1.37")


def device(name: str = "gpu-0", **fields: Any) -> JSON:
    return {"name": name, **fields}


def resource_slice(*devices: JSON, **spec: Any) -> JSON:
    fields = {
        "driver": "gpu.example.com",
        "pool": {"name": "node-a", "generation": 1, "resourceSliceCount": 1},
        "nodeName": "node-a",
        "devices": list(devices),
    }
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": "node-a-gpu", "resourceVersion": "1"},
        "spec": {name: value for name, value in (fields | spec).items() if value is not None},
    }


def request(name: str = "gpu", **fields: Any) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": "gpu.example.com", **fields}}


def claim(*requests: JSON, status: JSON | None = None, **devices: Any) -> JSON:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "gpu", "namespace": "default", "resourceVersion": "1"},
        "spec": {"devices": {"requests": list(requests or [request()]), **devices}},
        "status": status or {},
    }


def device_class(**spec: Any) -> JSON:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "DeviceClass",
        "metadata": {"name": "gpu.example.com", "resourceVersion": "1"},
        "spec": spec,
    }


def template(**devices: Any) -> JSON:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "gpu", "namespace": "default", "resourceVersion": "1"},
        "spec": {"spec": {"devices": {"requests": [request()], **devices}}},
    }


def taint_rule(version: str = "v1", **spec: Any) -> JSON:
    return {
        "apiVersion": f"resource.k8s.io/{version}",
        "kind": "DeviceTaintRule",
        "metadata": {"name": "broken", "resourceVersion": "1"},
        "spec": {"taint": {"key": "example.com/broken", "effect": "NoExecute"}, **spec},
    }


def changed(obj: JSON, *path: str | int, to: Any) -> JSON:
    """Return a copy of `obj` with one value set."""
    copy = deepcopy(obj)
    place: Any = copy
    for token in path[:-1]:
        place = place[token]
    place[path[-1]] = to
    return copy


def found(
    obj: JSON, version: str = "1.36", *, gates: dict[str, bool] | None = None, **options: Any
) -> set[tuple[str, str]]:
    """Return field and type of each problem that `validate` finds."""
    problems = validate(obj, profile=ServerProfile.of(version, gates), **options)
    assert all(problem.detail for problem in problems)
    return {(problem.field, str(problem.type)) for problem in problems}
