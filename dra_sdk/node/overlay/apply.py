"""Adding what the rules say to the devices of a driver. Pure: pools go in, other pools come out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from dra_sdk.cel import CelRuntimeError, DeviceView
from dra_sdk.model.device import AttributeValue, Device, DeviceTaint, ResourcePool
from dra_sdk.node.overlay.rules import Rule


class Overlaid(NamedTuple):
    """The pools with everything that could be added, and one sentence for each thing that could not."""

    pools: list[ResourcePool]
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Overlay:
    """The rules of one file, in its order; `source` is how problems name it."""

    source: str
    rules: tuple[Rule, ...]

    def apply(self, pools: Sequence[ResourcePool], *, driver: str, node: str) -> Overlaid:
        """The pools of a driver on a node after all rules about that node.

        Every expression sees a device as the driver described it, whatever earlier rules added. What a device already
        has, from its driver or an earlier rule, changes only by a rule with `override`; otherwise that is a problem,
        and so is an expression that fails on a device. Neither keeps other rules from being applied. Devices to which
        nothing is added are the same objects as before.
        """
        rules = [rule for rule in self.rules if rule.concerns(node)]
        if not rules:
            return Overlaid(list(pools), [])
        problems = _Problems(self.source)
        return Overlaid([_pool(pool, rules, driver, problems) for pool in pools], problems.sentences())


@dataclass(slots=True)
class _Problems:
    """Problems by rule and field: one sentence each, however many devices have it."""

    source: str
    found: dict[str, tuple[str, str, list[str]]] = field(default_factory=dict)

    def add(self, place: str, device: str, problem: str) -> None:
        self.found.setdefault(place, (device, problem, []))[2].append(device)

    def sentences(self) -> list[str]:
        made = []
        for place, (device, problem, devices) in self.found.items():
            more = f" (and {len(devices) - 1} more devices)" if len(devices) > 1 else ""
            made.append(f"overlay {self.source}: {place}: device {device}{more}: {problem}")
        return made


def _pool(pool: ResourcePool, rules: Sequence[Rule], driver: str, problems: _Problems) -> ResourcePool:
    devices = [_device(device, pool, rules, driver, problems) for device in pool.devices]
    changed = any(new is not old for new, old in zip(devices, pool.devices, strict=True))
    return replace(pool, devices=devices) if changed else pool


def _device(device: Device, pool: ResourcePool, rules: Sequence[Rule], driver: str, problems: _Problems) -> Device:
    view = DeviceView.of(device, driver)
    changes = _Changes(device, f"{pool.name}/{device.name}", driver, problems)
    for rule in rules:
        try:
            selected = rule.selects(view)
        except CelRuntimeError as error:
            problems.add(f"{rule.where}.match", changes.name, str(error))
            continue
        if selected:
            changes.add(rule)
    return changes.device()


class _Changes:
    """One device while rules are added to it."""

    def __init__(self, device: Device, name: str, driver: str, problems: _Problems) -> None:
        self.name = name
        self._device, self._driver, self._problems = device, driver, problems
        self._attributes = dict(device.attributes)
        #: How the device spells each name: the driver's own domain may be left out.
        self._spelt = {self._full(key): key for key in device.attributes}
        self._taints = {(each.key, each.effect): each for each in device.taints}
        self._changed = False

    def add(self, rule: Rule) -> None:
        """Everything the rule says."""
        for name, value in rule.attributes.items():
            key = self._spelt.setdefault(self._full(name), name)
            self._put(self._attributes, key, value, rule, f"attributes[{name}]")
        for taint in rule.taints:
            place = f"taints[{taint.key}:{taint.effect}]"
            self._put(self._taints, (taint.key, taint.effect), taint, rule, place)

    def device(self) -> Device:
        """The device with all that was added."""
        if not self._changed:
            return self._device
        return replace(self._device, attributes=self._attributes, taints=tuple(self._taints.values()))

    def _full(self, name: str) -> str:
        return name if "/" in name else f"{self._driver}/{name}"

    def _put(self, there: dict[Any, Any], key: object, value: object, rule: Rule, place: str) -> None:
        if key in there and _same(there[key], value):
            return
        if key in there and not rule.override:
            had = _shown(there[key])
            problem = f"has {had} already; only a rule with override: true may replace it"
            self._problems.add(f"{rule.where}.{place}", self.name, problem)
            return
        there[key] = value
        self._changed = True


def _same(old: Any, new: Any) -> bool:
    """Whether nothing would change: 1 and true differ, and so do a text and a version."""
    if isinstance(old, DeviceTaint) and isinstance(new, DeviceTaint):
        return old.value == new.value
    if (
        isinstance(old, Sequence)
        and isinstance(new, Sequence)
        and not isinstance(old, str)
        and not isinstance(new, str)
    ):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)


def _shown(value: AttributeValue | DeviceTaint) -> str:
    return f"value {value.value!r}" if isinstance(value, DeviceTaint) else repr(value)
