"""Which version of the CDI specification a spec needs.

A runtime refuses a spec that declares an older version than the newest field in it, and one that declares a version
it has not heard of; so the lowest sufficient version reaches the most runtimes. Source: CDI specification 1.1,
table of released versions.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from dra_sdk.wire.cdi.names import split_kind

Spec = Mapping[str, Any]

CURRENT: Final = "1.1.0"
#: Every released version, oldest first; the first two are known and too old to be accepted.
VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", CURRENT)
EARLIEST: Final = "0.3.0"


def minimum_version(spec: Spec) -> str:
    """The lowest version that knows every field used in `spec`."""
    devices = spec.get("devices") or ()
    needed = _needed_for_names(spec, devices)
    if edits := spec.get("containerEdits"):
        needed = max(needed, _needed_for_edits(edits))
    for device in devices:
        if edits := device.get("containerEdits"):
            needed = max(needed, _needed_for_edits(edits))
    return needed


def version_problem(spec: Spec) -> str | None:
    """What is wrong with the version that `spec` declares (an optional leading `v` is allowed), if anything."""
    declared = str(spec.get("cdiVersion", ""))
    if declared.removeprefix("v") not in VERSIONS:
        return f"{declared!r} is no released version of CDI; the newest is {CURRENT}"
    needed = minimum_version(spec)
    if VERSIONS.index(declared.removeprefix("v")) < VERSIONS.index(needed):
        return f"must be at least {needed} for the fields in use, is {declared}"
    return None


def _needed_for_names(spec: Spec, devices: Sequence[Spec]) -> str:
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


def _needed_for_edits(edits: Spec) -> str:
    """The newest field first; versions have one digit per part, so they compare as text."""
    rdt = edits.get("intelRdt")
    if edits.get("netDevices") or (rdt and (rdt.get("schemata") is not None or rdt.get("enableMonitoring"))):
        return "1.1.0"
    if rdt is not None or edits.get("additionalGids"):
        return "0.7.0"
    if (nodes := edits.get("deviceNodes")) and any(node.get("hostPath") for node in nodes):
        return "0.5.0"
    return "0.4.0" if (mounts := edits.get("mounts")) and any(mount.get("type") for mount in mounts) else EARLIEST
