"""Taints of devices and the tolerations of requests.

Source: KEP-5055; resource.k8s.io/v1 DeviceTaint, DeviceToleration.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

#: Effects that keep a device from being allocated; `None` and effects of the future do not.
PREVENTING: Final = frozenset({"NoSchedule", "NoExecute"})


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Whether a toleration covers a taint, whatever the taint's effect does.

    What the toleration leaves out (effect, key) covers everything. Operator `Exists` covers every value, `Equal`, the
    default, the same value; an operator of the future covers nothing.
    """
    effect, key, operator = toleration.get("effect"), toleration.get("key"), toleration.get("operator")
    if effect and effect != taint.get("effect"):
        return False
    if key and key != taint.get("key"):
        return False
    if operator == "Exists":
        return True
    same = (toleration.get("value") or "") == (taint.get("value") or "")
    return same and operator in {None, "", "Equal"}


def untolerated(
    taints: Iterable[Mapping[str, Any]], tolerations: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """The taints that keep a device with them from a request with these tolerations."""
    return [
        taint
        for taint in taints
        if taint.get("effect") in PREVENTING and not any(tolerates(each, taint) for each in tolerations)
    ]
