"""Objects of older versions of resource.k8s.io as objects of v1.

v1beta1 differs from v1 in two places: a request has its fields without `exactly`, and a device has its fields in
`basic`. v1beta2 differs in nothing but its name. The alpha versions describe other objects, so they are refused.
Source: apis/resource/v1beta1, conversion.go; the lifecycle of the types in api/resource.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.wire.validation.decoding import GROUP, KINDS
from dra_sdk.wire.validation.problems import Problem, ProblemType, show

V1: Final = f"{GROUP}/v1"
_BETA1: Final = f"{GROUP}/v1beta1"
_CONVERTED: Final = {_BETA1, f"{GROUP}/v1beta2"}
_RULE: Final = "DeviceTaintRule"
"""The kind that a server has in other versions than the other kinds, so its version matters and stays."""
_SHARED: Final = {"name", "firstAvailable"}
"""The fields of a request that are at the same place in v1beta1 and v1."""
_WAY_OUT: Final = {
    f"{GROUP}/v1alpha2": (
        "Kubernetes 1.26 to 1.30 had it, with ResourceClass and parameters in objects of a driver; in v1, a claim has "
        "requests with a DeviceClass, and parameters are in config.opaque: take the manifests of a release of the "
        "driver that supports v1"
    ),
    f"{GROUP}/v1alpha3": (
        "Kubernetes 1.31 to 1.33 had it; to write it as v1, put the fields of each request under exactly and those of "
        "each device beside its name, and write each capacity as {value: …}"
    ),
}


def older_version(obj: Any) -> str:
    """Return the version of an object that is read as v1, such as `resource.k8s.io/v1beta1`; else empty text."""
    if not isinstance(obj, dict) or str(obj.get("kind")) not in KINDS or obj["kind"] == _RULE:
        return ""
    version = str(obj.get("apiVersion") or "")
    return version if version in _CONVERTED else ""


def to_v1(obj: Any) -> Any:
    """Return the object as one of v1; unchanged if it is of v1, of another group or of a version that is not read."""
    version = older_version(obj)
    if not version:
        return obj
    converted = {**obj, "apiVersion": V1}
    if version == _BETA1 and isinstance(obj.get("spec"), dict):
        converted["spec"] = _spec(str(obj["kind"]), obj["spec"])
    return converted


def reading_problem(obj: Any) -> Problem | None:
    """Return why this is not read: it is no object, or one of an alpha version, with what to do; None otherwise."""
    if not isinstance(obj, dict):
        hint = "; write several objects as documents or as items of a List" if isinstance(obj, list) else ""
        return Problem("", ProblemType.TYPE_INVALID, f"must be an object, is {show(obj)}{hint}")
    version = str(obj.get("apiVersion") or "")
    if version not in _WAY_OUT or obj.get("kind") == _RULE:
        return None
    return Problem("apiVersion", ProblemType.NOT_SUPPORTED, f"{version} cannot be read: {_WAY_OUT[version]}")


def original_path(version: str, path: Sequence[str | int]) -> list[str | int]:
    """Return the path of a field of v1 in the object of an older version, for the line in its file."""
    if version != _BETA1:
        return list(path)
    original: list[str | int] = []
    for part in path:
        if part == "exactly" and original[-2:-1] == ["requests"]:
            continue
        if original[-2:-1] == ["devices"] and isinstance(original[-1], int) and part != "name":
            original.append("basic")
        original.append(part)
    return original


def _spec(kind: str, spec: JSON) -> JSON:
    if kind == "ResourceClaimTemplate":
        return {**spec, "spec": _spec("ResourceClaim", spec["spec"])} if isinstance(spec.get("spec"), dict) else spec
    devices = spec.get("devices")
    if kind == "ResourceSlice" and isinstance(devices, list):
        return {**spec, "devices": [_device(device) for device in devices]}
    if kind == "ResourceClaim" and isinstance(devices, dict) and isinstance(devices.get("requests"), list):
        return {**spec, "devices": {**devices, "requests": [_request(request) for request in devices["requests"]]}}
    return spec


def _device(device: Any) -> Any:
    if not isinstance(device, dict) or not isinstance(device.get("basic"), dict):
        return device
    return {**{key: value for key, value in device.items() if key != "basic"}, **device["basic"]}


def _request(request: Any) -> Any:
    if not isinstance(request, dict):
        return request
    moved = {key: value for key, value in request.items() if key not in _SHARED}
    kept = {key: value for key, value in request.items() if key in _SHARED}
    return {**kept, "exactly": moved} if moved else kept
