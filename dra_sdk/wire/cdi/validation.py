"""The rules that a runtime applies to a CDI spec when it loads it, and the version that a spec must declare.

The functions take JSON that fits `dra_sdk.wire.cdi.schema`, and yield one sentence for each broken rule. It begins with
the field. Source: CDI specification 1.1, its table of released versions, and the checks of its reference library. One
difference is deliberate: annotation keys and their total size are checked as the library documents it, although it does
not check them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.wire.cdi.names import device_problem, kind_problem, split_kind

CURRENT: Final = "1.1.0"
#: Every released version, oldest first. The first two are known, but too old to be accepted.
VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", CURRENT)
EARLIEST: Final = "0.3.0"
HOOK_NAMES: Final = ("prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop")
NODE_TYPES: Final = ("", "b", "c", "u", "p")
MAX_ANNOTATIONS: Final = 256 * 1024
MAX_CLOS_ID: Final = 4095

_PREFIX = re.compile(r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?(?:\.[a-z0-9](?:[-a-z0-9]*[a-z0-9])?)*")
_KEY = re.compile(r"[a-z0-9](?:[-a-z0-9_.]{0,61}[a-z0-9])?")
_MAX_PREFIX: Final = 253


def spec_problems(spec: JSON) -> Iterator[str]:
    """Yield every problem of a spec."""
    if problem := version_problem(spec):
        yield f"cdiVersion: {problem}"
    yield from content_problems(spec)


def content_problems(spec: JSON) -> Iterator[str]:
    """Yield every problem of a spec except those of its version, which a writer computes from the rest."""
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


def device_problems(device: JSON) -> Iterator[str]:
    """Yield every problem of one device of a spec. Its edits must change something."""
    if problem := device_problem(device.get("name", "")):
        yield f"name: {problem}"
    if annotations := device.get("annotations"):
        yield from _annotations(annotations, "annotations")
    edits = device.get("containerEdits") or {}
    if not any(edits.values()) and "intelRdt" not in edits:
        yield "containerEdits: must not be empty"
    yield from edits_problems(edits)


def edits_problems(edits: JSON) -> Iterator[str]:
    """Yield every problem of container edits."""
    yield from _env(edits.get("env") or (), "env")
    for field, check in _ITEM_CHECKS:
        if items := edits.get(field):
            yield from (f"{field}[{index}].{problem}" for index, item in enumerate(items) for problem in check(item))
    if devices := edits.get("netDevices"):
        yield from _unique(devices, "hostInterfaceName")
        yield from _unique(devices, "name")
    if rdt := edits.get("intelRdt"):
        yield from _intel_rdt(rdt)


def _bytes(text: str) -> int:
    return len(text.encode(errors="surrogatepass"))


def _env(env: Iterable[str], path: str) -> Iterator[str]:
    for index, variable in enumerate(env):
        if variable.find("=") < 1:
            yield f"{path}[{index}]: must be NAME=VALUE, is {variable!r}"


def _not_empty(item: JSON, *fields: str) -> Iterator[str]:
    for field in fields:
        if not item.get(field):
            yield f"{field}: must not be empty"


def _device_node(node: JSON) -> Iterator[str]:
    yield from _not_empty(node, "path")
    if node.get("type", "") not in NODE_TYPES:
        yield f"type: must be b, c, u or p, is {node['type']!r}"
    permissions = node.get("permissions", "")
    if permissions != "none" and set(permissions) - set("rwm"):
        yield f"permissions: must be some of r, w and m, or 'none', is {permissions!r}"


def _mount(mount: JSON) -> Iterator[str]:
    yield from _not_empty(mount, "hostPath", "containerPath")


def _net_device(device: JSON) -> Iterator[str]:
    yield from _not_empty(device, "hostInterfaceName", "name")


def _intel_rdt(rdt: JSON) -> Iterator[str]:
    clos_id = rdt.get("closID", "")
    if clos_id != "/" and (clos_id in {".", ".."} or set("/\n") & set(clos_id) or _bytes(clos_id) > MAX_CLOS_ID):
        yield f"intelRdt.closID: must be a file name of at most {MAX_CLOS_ID} bytes, or '/', is {clos_id[:40]!r}"


def _hook(hook: JSON) -> Iterator[str]:
    if hook.get("hookName") not in HOOK_NAMES:
        yield f"hookName: must be one of {', '.join(HOOK_NAMES)}, is {hook.get('hookName', '')!r}"
    yield from _not_empty(hook, "path")
    yield from _env(hook.get("env") or (), "env")


def _unique(devices: Iterable[JSON], field: str) -> Iterator[str]:
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


_ITEM_CHECKS: Final[tuple[tuple[str, Callable[[JSON], Iterator[str]]], ...]] = (
    ("deviceNodes", _device_node),
    ("hooks", _hook),
    ("mounts", _mount),
    ("netDevices", _net_device),
)


def minimum_version(spec: JSON) -> str:
    """Return the lowest version that knows every field used in `spec`.

    A runtime refuses a spec that declares an older version than its newest field, or a version that the runtime does
    not know. So the lowest possible version works with the most runtimes.
    """
    devices = spec.get("devices") or ()
    needed = _needed_for_names(spec, devices)
    if edits := spec.get("containerEdits"):
        needed = max(needed, _needed_for_edits(edits))
    for device in devices:
        if edits := device.get("containerEdits"):
            needed = max(needed, _needed_for_edits(edits))
    return needed


def version_problem(spec: JSON) -> str | None:
    """Return the problem of the version that `spec` declares, None without one. A leading `v` is allowed."""
    declared = str(spec.get("cdiVersion", ""))
    if declared.removeprefix("v") not in VERSIONS:
        return f"{declared!r} is not a released version of CDI, the newest is {CURRENT}"
    needed = minimum_version(spec)
    if VERSIONS.index(declared.removeprefix("v")) < VERSIONS.index(needed):
        return f"must be at least {needed} for the fields in use, is {declared}"
    return None


def _needed_for_names(spec: JSON, devices: Sequence[JSON]) -> str:
    vendor, class_ = split_kind(spec.get("kind", ""))
    if spec.get("annotations") or (vendor and "." in class_):
        return "0.6.0"
    needed = EARLIEST
    for device in devices:
        if device.get("annotations"):
            return "0.6.0"
        if device.get("name", "")[:1].isdecimal():
            needed = "0.5.0"
    return needed


def _needed_for_edits(edits: JSON) -> str:
    # Newest field first. Each part of a version has one digit, so versions compare as text.
    rdt = edits.get("intelRdt")
    if edits.get("netDevices") or (rdt and (rdt.get("schemata") is not None or rdt.get("enableMonitoring"))):
        return "1.1.0"
    if rdt is not None or edits.get("additionalGids"):
        return "0.7.0"
    if (nodes := edits.get("deviceNodes")) and any(node.get("hostPath") for node in nodes):
        return "0.5.0"
    return "0.4.0" if (mounts := edits.get("mounts")) and any(mount.get("type") for mount in mounts) else EARLIEST
