"""Which version of the CDI specification a spec needs.

A runtime refuses a spec that declares an older version than the newest field in it, and one that declares a version
it has not heard of; so the lowest sufficient version reaches the most runtimes. Source: CDI specification 1.1,
table of released versions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from dra_sdk.wire.cdi.names import split_kind

Spec = Mapping[str, Any]

CURRENT: Final = "1.1.0"
#: Every released version, oldest first; the first two are known and too old to be accepted.
VERSIONS: Final = ("0.1.0", "0.2.0", "0.3.0", "0.4.0", "0.5.0", "0.6.0", "0.7.0", "0.8.0", "1.0.0", CURRENT)
EARLIEST: Final = "0.3.0"


def minimum_version(spec: Spec) -> str:
    """The lowest version that knows every field used in `spec`."""
    return next((version for version, needed in _NEEDED_FOR if needed(spec)), EARLIEST)


def version_problem(spec: Spec) -> str | None:
    """What is wrong with the version that `spec` declares (an optional leading `v` is allowed), if anything."""
    declared = str(spec.get("cdiVersion", ""))
    if declared.removeprefix("v") not in VERSIONS:
        return f"{declared!r} is no released version of CDI; the newest is {CURRENT}"
    needed = minimum_version(spec)
    if VERSIONS.index(declared.removeprefix("v")) < VERSIONS.index(needed):
        return f"must be at least {needed} for the fields in use, is {declared}"
    return None


def _all_edits(spec: Spec) -> Iterator[Mapping[str, Any]]:
    yield spec.get("containerEdits") or {}
    for device in spec.get("devices") or ():
        yield device.get("containerEdits") or {}


def _uses_1_1(spec: Spec) -> bool:
    for edits in _all_edits(spec):
        rdt = edits.get("intelRdt") or {}
        if edits.get("netDevices") or rdt.get("schemata") is not None or rdt.get("enableMonitoring"):
            return True
    return False


def _uses_0_7(spec: Spec) -> bool:
    return any(edits.get("intelRdt") is not None or edits.get("additionalGids") for edits in _all_edits(spec))


def _uses_0_6(spec: Spec) -> bool:
    vendor, class_ = split_kind(spec.get("kind", ""))
    annotated = spec.get("annotations") or any(device.get("annotations") for device in spec.get("devices") or ())
    return bool(annotated) or bool(vendor and "." in class_)


def _uses_0_5(spec: Spec) -> bool:
    if any(device.get("name", "")[:1].isdecimal() for device in spec.get("devices") or ()):
        return True
    return any(node.get("hostPath") for edits in _all_edits(spec) for node in edits.get("deviceNodes") or ())


def _uses_0_4(spec: Spec) -> bool:
    return any(mount.get("type") for edits in _all_edits(spec) for mount in edits.get("mounts") or ())


_NEEDED_FOR: Final[tuple[tuple[str, Callable[[Spec], bool]], ...]] = (
    ("1.1.0", _uses_1_1),
    ("0.7.0", _uses_0_7),
    ("0.6.0", _uses_0_6),
    ("0.5.0", _uses_0_5),
    ("0.4.0", _uses_0_4),
)
