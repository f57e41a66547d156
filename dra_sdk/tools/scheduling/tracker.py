"""ResourceSlices with the taints of DeviceTaintRules applied: what the scheduler sees of them.

Source: KEP-5055; k8s.io/dynamic-resource-allocation, resourceslice/tracker; resource.k8s.io DeviceTaintRule.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

from dra_sdk.model import JSON

_TAINT_FIELDS: Final = ("key", "value", "effect", "timeAdded")


class Change(NamedTuple):
    """What became of a slice: added, updated or deleted, with its content before and after."""

    event: Literal["add", "update", "delete"]
    old: JSON | None
    new: JSON | None


def apply_rules(slices: Iterable[JSON], rules: Iterable[JSON], *, need_selector: bool = False) -> list[JSON]:
    """The slices with the taints that the rules add to devices, after those the driver published.

    A rule without `deviceSelector` is about all devices up to 1.36, and since then, with `need_selector`, about none.
    Slices that no rule is about are the same objects; nothing that is passed in is changed.
    """
    known = [each for each in rules if not need_selector or (each.get("spec") or {}).get("deviceSelector") is not None]
    return [_tainted(each, known) for each in slices] if known else list(slices)


def _tainted(each: JSON, rules: Sequence[JSON]) -> JSON:
    spec = each.get("spec") or {}
    found = [(selector.get("device"), taint) for selector, taint in map(_parts, rules) if _about(selector, spec)]
    devices = spec.get("devices") or []
    names = {device.get("name") for device in devices}
    if not any(name is None or name in names for name, _ in found) or not devices:
        return each
    return {**each, "spec": {**spec, "devices": [_device(device, found) for device in devices]}}


def _parts(rule: JSON) -> tuple[Mapping[str, Any], JSON]:
    spec = rule.get("spec") or {}
    taint = spec.get("taint") or {}
    return spec.get("deviceSelector") or {}, {
        name: taint[name] for name in _TAINT_FIELDS if taint.get(name) is not None
    }


def _about(selector: Mapping[str, Any], spec: Mapping[str, Any]) -> bool:
    """Whether devices of a slice can be meant; what the selector leaves out matches everything."""
    driver, pool = selector.get("driver"), selector.get("pool")
    return driver in {None, spec.get("driver")} and pool in {None, (spec.get("pool") or {}).get("name")}


def _device(device: JSON, taints: Sequence[tuple[str | None, JSON]]) -> JSON:
    added = [taint for name, taint in taints if name in {None, device.get("name")}]
    return {**device, "taints": [*(device.get("taints") or []), *added]} if added else device


class Tracker:
    """Follows slices and rules as they change, and tells what that changes in the slices with taints."""

    def __init__(self) -> None:
        self._slices: dict[str, JSON] = {}
        self._rules: dict[str, JSON] = {}
        self._patched: dict[str, JSON] = {}

    @property
    def slices(self) -> list[JSON]:
        """All slices, with the taints of all rules."""
        return list(self._patched.values())

    def put_slice(self, each: JSON) -> list[Change]:
        """A slice is new or was updated."""
        name = _name(each)
        self._slices[name] = each
        old, new = self._patched.get(name), self._patch(each)
        self._patched[name] = new
        return [Change("add" if old is None else "update", old, new)]

    def delete_slice(self, name: str) -> list[Change]:
        """A slice is gone."""
        self._slices.pop(name, None)
        old = self._patched.pop(name, None)
        return [] if old is None else [Change("delete", old, None)]

    def put_rule(self, rule: JSON) -> list[Change]:
        """A rule is new or was updated; slices whose taints stay as they were are not told of."""
        self._rules[_name(rule)] = rule
        return self._again()

    def delete_rule(self, name: str) -> list[Change]:
        """A rule is gone, and its taints with it."""
        self._rules.pop(name, None)
        return self._again()

    def _patch(self, each: JSON) -> JSON:
        return apply_rules([each], self._rules.values())[0]

    def _again(self) -> list[Change]:
        changes = []
        for name, each in self._slices.items():
            old, new = self._patched[name], self._patch(each)
            self._patched[name] = new
            if _taints(old) != _taints(new):
                changes.append(Change("update", old, new))
        return changes


def _name(each: JSON) -> str:
    return str(each["metadata"]["name"])


def _taints(each: JSON) -> list[list[JSON]]:
    return [device.get("taints") or [] for device in each["spec"].get("devices") or []]
