"""Names in CDI: kinds (`vendor/class`), devices, qualified devices (`vendor/class=device`) and spec files.

Source: Container Device Interface specification 1.1, sections "Kind" and "CDI Devices". The allowed characters and the
file names are those of the library that container runtimes use.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import NamedTuple

from dra_sdk.errors import InvalidObjectError

_SEGMENT = re.compile(r"[A-Za-z](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?")
_DEVICE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9_.:-]*[A-Za-z0-9])?")
_SEGMENT_RULE = (
    "must start with a letter, end with a letter or digit, and contain only letters, digits, '_', '-' and '.'"
)
_DEVICE_RULE = "must start and end with a letter or digit, and contain only letters, digits, '_', '-', '.' and ':'"


class QualifiedName(NamedTuple):
    """The three parts of `vendor/class=device`."""

    vendor: str
    class_: str
    device: str


def split_kind(kind: str) -> tuple[str, str]:
    """Split a kind into vendor and class, unchecked. The vendor is empty if `kind` does not have two parts."""
    vendor, _, class_ = kind.partition("/")
    return (vendor, class_) if vendor and class_ else ("", kind)


def split_device(text: str) -> QualifiedName:
    """Split a qualified device name, unchecked. Vendor and class are empty if it is not qualified."""
    kind, _, device = text.partition("=")
    vendor, class_ = split_kind(kind)
    if text.startswith("/") or not (vendor and class_ and device):
        return QualifiedName("", "", text)
    return QualifiedName(vendor, class_, device)


def qualified_name(kind: str, device: str) -> str:
    """Return the name by which kubelet and runtime know a device: `vendor/class=device`."""
    return f"{kind}={device}"


def parse_qualified_name(text: str) -> QualifiedName:
    """Split a qualified device name. InvalidObjectError names the part and the rule that it breaks."""
    parts = split_device(text)
    if not parts.vendor:
        problem: str | None = "must be vendor/class=name"
    else:
        problem = kind_problem(f"{parts.vendor}/{parts.class_}") or device_problem(parts.device)
    if problem:
        raise InvalidObjectError(f"CDI device name {text!r}", [problem])
    return parts


@lru_cache(maxsize=16)  # a driver has one kind and asks for each claim
def kind_problem(kind: str) -> str | None:
    """Return the problem of a kind, None without one."""
    vendor, class_ = split_kind(kind)
    if not vendor:
        return f"kind {kind!r} must be vendor/class"
    for label, part in (("vendor", vendor), ("class", class_)):
        if not _SEGMENT.fullmatch(part):
            return f"{label} {part!r} of the kind {_SEGMENT_RULE}"
    return None


def device_problem(name: object) -> str | None:
    """Return the problem of a device name, None without one."""
    return None if isinstance(name, str) and _DEVICE.fullmatch(name) else f"device name {name!r} {_DEVICE_RULE}"
