"""Devices without surprises: every attribute a single value, and nothing that makes no sense."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from dra_sdk.cel.values import Semver
from dra_sdk.tools.scheduling.allocator.amounts import amount

_SCALARS: Final[Mapping[str, type]] = {"string": str, "int": int, "bool": bool}


def is_plain(device: Mapping[str, Any]) -> bool:
    """Whether all attributes and capacities are single values that make sense."""
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    return all(map(_is_scalar, attributes.values())) and all(map(_is_amount, capacity.values()))


def _is_scalar(value: Mapping[str, Any]) -> bool:
    if len(value) != 1:
        return False
    ((kind, scalar),) = value.items()
    return type(scalar) is _SCALARS.get(kind) or (kind == "version" and _is_version(scalar))


@lru_cache(maxsize=1024)
def _is_version(text: Any) -> bool:
    try:
        Semver(text)
    except (TypeError, ValueError):
        return False
    return True


def _is_amount(value: Mapping[str, Any]) -> bool:
    try:
        amount(value.get("value"))
    except ValueError:
        return False
    return True
