"""The rules that a CDI spec must keep to be loaded: shape, versions, names, edits.

They are those of the Go library (tags.cncf.io/container-device-interface 1.1), which every container runtime loads
specs with; the JSON schema of CDI is weaker. A broken rule is a `CdiSpecError` that names the field.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from dra_sdk.errors import DraError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from dra_sdk.simulator.resources import JsonObject

_UINT32 = range(2**32)
_INT64 = range(-(2**63), 2**63)
_EDITS: dict[str, Any] = {
    "env": [str],
    "deviceNodes": [
        {
            "path": str,
            "hostPath": str,
            "type": str,
            "major": _INT64,
            "minor": _INT64,
            "fileMode": _UINT32,
            "permissions": str,
            "uid": _UINT32,
            "gid": _UINT32,
        }
    ],
    "netDevices": [{"hostInterfaceName": str, "name": str}],
    "hooks": [{"hookName": str, "path": str, "args": [str], "env": [str], "timeout": _INT64}],
    "mounts": [{"hostPath": str, "containerPath": str, "options": [str], "type": str}],
    "intelRdt": {
        "closID": str,
        "l3CacheSchema": str,
        "memBwSchema": str,
        "schemata": [str],
        "enableMonitoring": bool,
    },
    "additionalGids": [_UINT32],
}
_SPEC: dict[str, Any] = {
    "cdiVersion": str,
    "kind": str,
    "annotations": {"*": str},
    "devices": [{"name": str, "annotations": {"*": str}, "containerEdits": _EDITS}],
    "containerEdits": _EDITS,
}

VERSIONS = ("0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", "1.1.0")
"""The versions a runtime of today loads, oldest first."""
HOOK_NAMES = frozenset({"prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"})
_VENDOR_OR_CLASS = re.compile(r"[A-Za-z]([A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_ANNOTATION_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?")
_ANNOTATION_PREFIX = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_ANNOTATIONS_BYTES = 256 * 1024
_PREFIX_LENGTH = 253
_CLOS_LENGTH = 4096


class CdiSpecError(DraError):
    """A CDI spec breaks a rule. `field` is where, such as `devices[0].containerEdits.env[1]`."""

    def __init__(self, field: str, why: str) -> None:
        super().__init__(f"{field}: {why}" if field else why)
        self.field = field
        self.why = why


def check(spec: Any) -> None:
    """Raises `CdiSpecError` for the first rule that a decoded spec breaks."""
    _check_shape(spec, _SPEC, "")
    if not spec.get("devices"):
        raise CdiSpecError("devices", "a spec needs at least one device")
    _check_version(spec)
    vendor, _, kind = spec.get("kind", "").partition("/")
    for what, name in (("vendor", vendor), ("class", kind)):
        if not _VENDOR_OR_CLASS.fullmatch(name):
            raise CdiSpecError("kind", f"{name!r} is not a {what} name, in {spec.get('kind', '')!r}")
    _check_annotations(spec.get("annotations") or {}, "annotations")
    check_edits(spec.get("containerEdits") or {}, "containerEdits")
    seen: set[str] = set()
    for index, device in enumerate(spec["devices"]):
        check_device(device, f"devices[{index}]")
        if device["name"] in seen:
            raise CdiSpecError(f"devices[{index}].name", f"{device['name']!r} is there twice")
        seen.add(device["name"])


def check_device(device: JsonObject, where: str = "device") -> None:
    """The rules of one device of a spec."""
    name = device.get("name", "")
    if not _DEVICE.fullmatch(name):
        raise CdiSpecError(f"{where}.name", f"{name!r} is not a device name")
    _check_annotations(device.get("annotations") or {}, f"{where}.annotations")
    edits = device.get("containerEdits") or {}
    if not any(edits.values()) and edits.get("intelRdt") is None:
        raise CdiSpecError(f"{where}.containerEdits", "a device needs at least one edit")
    check_edits(edits, f"{where}.containerEdits")


def check_edits(edits: JsonObject, where: str = "containerEdits") -> None:
    """The rules of container edits."""
    for path, rule in _edit_rules(edits, where):
        if rule:
            raise CdiSpecError(path, rule)


def is_qualified_name(name: str) -> bool:
    """Whether `name` has the form `vendor/class=device`, as `cdi_device_ids` must."""
    kind, equals, device = name.partition("=")
    vendor, slash, klass = kind.partition("/")
    return bool(
        equals
        and slash
        and _VENDOR_OR_CLASS.fullmatch(vendor)
        and _VENDOR_OR_CLASS.fullmatch(klass)
        and _DEVICE.fullmatch(device)
    )


def minimum_version(spec: JsonObject) -> str:
    """The oldest CDI version that has everything that the spec uses."""
    edits = [spec.get("containerEdits") or {}]
    edits += [device.get("containerEdits") or {} for device in spec.get("devices") or []]
    devices = spec.get("devices") or []
    annotated = bool(spec.get("annotations")) or any(device.get("annotations") for device in devices)
    digits = any(device.get("name", "")[:1].isdigit() for device in devices)
    rdts = [edit["intelRdt"] for edit in edits if edit.get("intelRdt") is not None]
    used = {
        "1.1.0": any(edit.get("netDevices") for edit in edits)
        or any(rdt.get("schemata") or rdt.get("enableMonitoring") for rdt in rdts),
        "0.7.0": bool(rdts) or any(edit.get("additionalGids") for edit in edits),
        "0.6.0": annotated or "." in spec.get("kind", "").partition("/")[2],
        "0.5.0": digits or any(node.get("hostPath") for edit in edits for node in edit.get("deviceNodes") or []),
        "0.4.0": any(mount.get("type") for edit in edits for mount in edit.get("mounts") or []),
    }
    return next((version for version, needed in used.items() if needed), VERSIONS[0])


def _check_version(spec: JsonObject) -> None:
    declared = spec.get("cdiVersion", "")
    plain = declared.removeprefix("v")
    if plain not in VERSIONS:
        raise CdiSpecError("cdiVersion", f"{declared!r} is none of {', '.join(VERSIONS)}")
    needed = minimum_version(spec)
    if VERSIONS.index(plain) < VERSIONS.index(needed):
        raise CdiSpecError("cdiVersion", f"{declared!r} is too old for what the spec uses, which needs {needed}")


def _check_shape(value: Any, shape: Any, where: str) -> None:
    if value is None and where:
        return
    if isinstance(shape, dict):
        _check_object(value, shape, where)
    elif isinstance(shape, list):
        if not isinstance(value, list):
            raise CdiSpecError(where, f"must be a list, not {value!r}")
        for index, item in enumerate(value):
            if item is None:
                raise CdiSpecError(f"{where}[{index}]", "must not be null")
            _check_shape(item, shape[0], f"{where}[{index}]")
    elif isinstance(shape, range):
        if isinstance(value, bool) or not isinstance(value, int) or value not in shape:
            raise CdiSpecError(where, f"must be a number from {shape[0]} to {shape[-1]}, not {value!r}")
    elif not isinstance(value, shape):
        raise CdiSpecError(where, f"must be a {shape.__name__}, not {value!r}")


def _check_object(value: Any, shape: dict[str, Any], where: str) -> None:
    if not isinstance(value, dict):
        raise CdiSpecError(where, f"must be an object, not {value!r}")
    for key, inner in value.items():
        path = f"{where}.{key}" if where else str(key)
        if key not in shape and "*" not in shape:
            raise CdiSpecError(path, "no such field")
        _check_shape(inner, shape.get(key, shape.get("*")), path)


def _check_annotations(annotations: dict[str, str], where: str) -> None:
    for key in annotations:
        prefix, slash, name = key.rpartition("/")
        if not _ANNOTATION_NAME.fullmatch(name) or (
            slash and not (_ANNOTATION_PREFIX.fullmatch(prefix.lower()) and len(prefix) <= _PREFIX_LENGTH)
        ):
            raise CdiSpecError(where, f"{key!r} is not an annotation key")
    if sum(len(key.encode()) + len(value.encode()) for key, value in annotations.items()) > _ANNOTATIONS_BYTES:
        raise CdiSpecError(where, f"annotations are over {_ANNOTATIONS_BYTES} bytes")


def _edit_rules(edits: JsonObject, where: str) -> Iterator[tuple[str, str]]:
    yield from _env_rules(edits.get("env") or [], f"{where}.env")
    for index, node in enumerate(edits.get("deviceNodes") or []):
        yield from _node_rules(node, f"{where}.deviceNodes[{index}]")
    for index, hook in enumerate(edits.get("hooks") or []):
        at, name = f"{where}.hooks[{index}]", hook.get("hookName", "")
        yield f"{at}.hookName", "" if name in HOOK_NAMES else f"{name!r} is none of {', '.join(sorted(HOOK_NAMES))}"
        yield f"{at}.path", "" if hook.get("path") else "must not be empty"
        yield from _env_rules(hook.get("env") or [], f"{at}.env")
    for index, mount in enumerate(edits.get("mounts") or []):
        for key in ("hostPath", "containerPath"):
            yield f"{where}.mounts[{index}].{key}", "" if mount.get(key) else "must not be empty"
    closid = (edits.get("intelRdt") or {}).get("closID", "")
    wrong = closid != "/" and (closid in {".", ".."} or "/" in closid or "\n" in closid or len(closid) >= _CLOS_LENGTH)
    yield f"{where}.intelRdt.closID", f"{closid[:40]!r} is not a file name" if wrong else ""
    yield from _net_rules(edits.get("netDevices") or [], f"{where}.netDevices")


def _env_rules(env: list[str], where: str) -> Iterator[tuple[str, str]]:
    for index, variable in enumerate(env):
        yield f"{where}[{index}]", "" if variable.find("=") > 0 else f"{variable!r} is not NAME=VALUE"


def _node_rules(node: JsonObject, where: str) -> Iterator[tuple[str, str]]:
    kind, permissions = node.get("type", ""), node.get("permissions", "")
    yield f"{where}.path", "" if node.get("path") else "must not be empty"
    yield f"{where}.type", "" if kind in {"", "b", "c", "u", "p"} else f"{kind!r} is none of b, c, u, p"
    known = permissions == "none" or not permissions.strip("rwm")
    yield f"{where}.permissions", "" if known else f"{permissions!r} is neither letters of rwm nor 'none'"


def _net_rules(devices: list[JsonObject], where: str) -> Iterator[tuple[str, str]]:
    for key in ("hostInterfaceName", "name"):
        seen: set[str] = set()
        for index, device in enumerate(devices):
            value = device.get(key, "")
            why = "must not be empty" if not value else f"{value!r} is there twice" if value in seen else ""
            yield f"{where}[{index}].{key}", why
            seen.add(value)
