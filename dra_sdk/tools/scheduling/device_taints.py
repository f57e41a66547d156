"""Taints of devices: which ones DeviceTaintRules add, and which ones a request tolerates.

Source: KEP-5055; resource.k8s.io DeviceTaint, DeviceToleration, DeviceTaintRule; k8s.io/dynamic-resource-allocation,
packages resourceclaim (tolerations) and resourceslice/tracker.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dra_sdk.model import JSON

PREVENTING_EFFECTS: Final = frozenset({"NoSchedule", "NoExecute"})
"""Effects that keep a device from being allocated. The effect `None` and effects of later releases do not."""
_TAINT_FIELDS: Final = ("key", "value", "effect", "timeAdded")


def tolerates(toleration: Mapping[str, Any], taint: Mapping[str, Any]) -> bool:
    """Return whether a toleration matches a taint, even if the effect of the taint prevents nothing.

    A missing effect or key matches all. Operator `Exists` matches every value; `Equal`, the default, matches the same
    value; an unknown operator matches nothing.
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


def untolerated_taints(
    taints: Iterable[Mapping[str, Any]], tolerations: Sequence[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the taints that keep a device from a request with these tolerations."""
    return [
        taint
        for taint in taints
        if taint.get("effect") in PREVENTING_EFFECTS
        and not any(tolerates(toleration, taint) for toleration in tolerations)
    ]


def taint_text(taint: Mapping[str, Any]) -> str:
    """Return `key=value:effect`."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def apply_taint_rules(slices: Iterable[JSON], rules: Iterable[JSON], *, require_selector: bool = False) -> list[JSON]:
    """Return the slices with the taints that rules add to their devices, after those that the driver published.

    A rule without `deviceSelector` selects all devices up to 1.36. Since 1.37 it selects none: pass `require_selector`.
    A slice that no rule selects is returned as the same object. The arguments are not changed.
    """
    known = [
        rule for rule in rules if not require_selector or (rule.get("spec") or {}).get("deviceSelector") is not None
    ]
    return [_with_rule_taints(raw_slice, known) for raw_slice in slices] if known else list(slices)


def _with_rule_taints(raw_slice: JSON, rules: Sequence[JSON]) -> JSON:
    spec = raw_slice.get("spec") or {}
    taints = [
        (selector.get("device"), taint)
        for selector, taint in map(_selector_and_taint, rules)
        if _may_select(selector, spec)
    ]
    devices = spec.get("devices") or []
    names = {device.get("name") for device in devices}
    if not any(name is None or name in names for name, _ in taints) or not devices:
        return raw_slice
    return {**raw_slice, "spec": {**spec, "devices": [_with_taints(device, taints) for device in devices]}}


def _selector_and_taint(rule: JSON) -> tuple[Mapping[str, Any], JSON]:
    spec = rule.get("spec") or {}
    taint = spec.get("taint") or {}
    return spec.get("deviceSelector") or {}, {
        name: taint[name] for name in _TAINT_FIELDS if taint.get(name) is not None
    }


def _may_select(selector: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Return whether a rule may select devices of a slice; what its selector leaves out selects everything."""
    driver, pool = selector.get("driver"), selector.get("pool")
    return driver in {None, spec.get("driver")} and pool in {None, (spec.get("pool") or {}).get("name")}


def _with_taints(device: JSON, taints: Sequence[tuple[str | None, JSON]]) -> JSON:
    added = [taint for name, taint in taints if name in {None, device.get("name")}]
    return {**device, "taints": [*(device.get("taints") or []), *added]} if added else device
