"""The rules that a runtime applies to a CDI spec when it loads it.

Functions take JSON of the right shape (`dra_sdk.wire.cdi.shape`) and yield one sentence per broken rule, which
starts with the field. Source: CDI specification 1.1 and the checks of its reference library. One difference is
deliberate: annotation keys and their total size are checked as the library documents it, though it does not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from dra_sdk.wire.cdi.names import device_problem, kind_problem
from dra_sdk.wire.cdi.versions import version_problem

Object = Mapping[str, Any]

HOOK_NAMES: Final = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NODE_TYPES: Final = ("", "b", "c", "u", "p")
MAX_ANNOTATIONS: Final = 256 * 1024
MAX_CLOS_ID: Final = 4095

_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_KEY = re.compile(r"[a-z0-9](?:[-a-z0-9_.]{0,61}[a-z0-9])?")
_MAX_PREFIX: Final = 253


def spec_problems(spec: Object) -> Iterator[str]:
    """All that is wrong with a spec."""
    if problem := version_problem(spec):
        yield f"cdiVersion: {problem}"
    yield from content_problems(spec)


def content_problems(spec: Object) -> Iterator[str]:
    """All that is wrong with a spec but its version, which whoever makes one computes from the rest."""
    if problem := kind_problem(spec.get("kind", "")):
        yield f"kind: {problem}"
    if annotations := spec.get("annotations"):
        yield from _annotations(annotations, "annotations")
    if edits := spec.get("containerEdits"):
        yield from edits_problems(edits)
    devices = spec.get("devices") or ()
    if not devices:
        yield "devices: must have at least one device"
    seen: set[str] = set()
    for device in devices:
        name = device.get("name", "")
        if name in seen:
            yield f"device {name}: defined twice"
        seen.add(name)
        for problem in device_problems(device):
            yield f"device {name}: {problem}"


def device_problems(device: Object) -> Iterator[str]:
    """All that is wrong with one device of a spec; its edits must change something."""
    if problem := device_problem(device.get("name", "")):
        yield f"name: {problem}"
    if annotations := device.get("annotations"):
        yield from _annotations(annotations, "annotations")
    edits = device.get("containerEdits") or {}
    if not any(edits.values()) and "intelRdt" not in edits:
        yield "containerEdits: must not be empty"
    yield from edits_problems(edits)


def edits_problems(edits: Object) -> Iterator[str]:
    """All that is wrong with container edits."""
    yield from _env(edits.get("env") or (), "env")
    for field, check in _ITEM_CHECKS:
        if items := edits.get(field):
            yield from (f"{field}[{index}].{problem}" for index, item in enumerate(items) for problem in check(item))
    if devices := edits.get("netDevices"):
        yield from _twice(devices, "hostInterfaceName")
        yield from _twice(devices, "name")
    if rdt := edits.get("intelRdt"):
        yield from _intel_rdt(rdt)


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _env(env: Iterable[str], path: str) -> Iterator[str]:
    for index, variable in enumerate(env):
        if variable.find("=") < 1:
            yield f"{path}[{index}]: must be NAME=VALUE, is {variable!r}"


def _given(item: Object, *fields: str) -> Iterator[str]:
    for field in fields:
        if not item.get(field):
            yield f"{field}: must not be empty"


def _device_node(node: Object) -> Iterator[str]:
    yield from _given(node, "path")
    if node.get("type", "") not in NODE_TYPES:
        yield f"type: must be b, c, u or p, is {node['type']!r}"
    permissions = node.get("permissions", "")
    if permissions != "none" and set(permissions) - set("rwm"):
        yield f"permissions: must be some of r, w and m, or 'none', is {permissions!r}"


def _mount(mount: Object) -> Iterator[str]:
    yield from _given(mount, "hostPath", "containerPath")


def _net_device(device: Object) -> Iterator[str]:
    yield from _given(device, "hostInterfaceName", "name")


def _intel_rdt(rdt: Object) -> Iterator[str]:
    clos_id = rdt.get("closID", "")
    if clos_id != "/" and (clos_id in {".", ".."} or set("/\n") & set(clos_id) or _bytes(clos_id) > MAX_CLOS_ID):
        yield f"intelRdt.closID: must be a file name of at most {MAX_CLOS_ID} bytes, or '/', is {clos_id[:40]!r}"


def _hook(hook: Object) -> Iterator[str]:
    if hook.get("hookName") not in HOOK_NAMES:
        yield f"hookName: must be one of {', '.join(HOOK_NAMES)}, is {hook.get('hookName', '')!r}"
    yield from _given(hook, "path")
    yield from _env(hook.get("env") or (), "env")


def _twice(devices: Iterable[Object], field: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, device in enumerate(devices):
        name = device.get(field, "")
        if name and name in seen:
            yield f"netDevices[{index}].{field}: {name!r} is used twice"
        seen.add(name)


def _annotations(annotations: Mapping[str, str], path: str) -> Iterator[str]:
    for key in annotations:
        prefix, slash, name = key.lower().rpartition("/")
        if not _KEY.fullmatch(name) or (slash and (len(prefix) > _MAX_PREFIX or not _PREFIX.fullmatch(prefix))):
            yield f"{path}: key {key!r} must be a name of at most 63 characters, or domain/name"
    size = sum(_bytes(key) + _bytes(value) for key, value in annotations.items())
    if size > MAX_ANNOTATIONS:
        yield f"{path}: must have at most {MAX_ANNOTATIONS} bytes in all, have {size}"


_ITEM_CHECKS: Final[tuple[tuple[str, Callable[[Object], Iterator[str]]], ...]] = (
    ("deviceNodes", _device_node),
    ("hooks", _hook),
    ("mounts", _mount),
    ("netDevices", _net_device),
)
