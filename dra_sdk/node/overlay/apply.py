"""The rules of an overlay, and applying them to the devices of a driver: pools go in, other pools come out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, NamedTuple

from dra_sdk.cel import CelError, DeviceView, Selector
from dra_sdk.model.device import AttributeValue, Device, DeviceTaint, ResourcePool
from dra_sdk.texts import counted


@dataclass(frozen=True, slots=True)
class OverlayRule:
    """What to add to which devices.

    where: its place in the file, such as `rules[2]`.
    match: selects devices; None selects all.
    nodes: patterns of node names; empty for all nodes.
    attributes: the attributes to add.
    taints: the taints to add.
    override: whether it replaces what a device already has.
    publish: whether these devices are published. None: the rule does not say.
    """

    where: str
    match: Selector | None
    nodes: tuple[str, ...]
    attributes: Mapping[str, AttributeValue]
    taints: tuple[DeviceTaint, ...]
    override: bool
    publish: bool | None = None

    def concerns(self, node: str) -> bool:
        """Return whether the rule is for a node."""
        return not self.nodes or any(fnmatchcase(node, pattern) for pattern in self.nodes)

    def selects(self, device: DeviceView) -> bool:
        """Return whether the rule is for a device; CelError if its expression has no answer."""
        return self.match is None or self.match.matches(device)


class Overlaid(NamedTuple):
    """The result of applying an overlay.

    pools: the pools, with everything that could be added, and without the devices that are not published.
    problems: one sentence for each thing that could not be added.
    """

    pools: list[ResourcePool]
    problems: list[str]


@dataclass(frozen=True, slots=True)
class Overlay:
    """The rules of one file.

    source: the path of the file, for problems.
    rules: the rules in the order of the file.
    """

    source: str
    rules: tuple[OverlayRule, ...]

    def apply(self, pools: Sequence[ResourcePool], *, driver: str, node: str) -> Overlaid:
        """Apply all rules for a node to the pools that a driver has there.

        Every expression sees a device as its driver described it, without what earlier rules added. Only a rule with
        `override` changes an attribute or a taint that a device already has, from its driver or an earlier rule; any
        other rule that would is a problem, and so is an expression that fails on a device. Other rules are applied all
        the same. A device to which nothing is added stays the same object.
        """
        rules = [rule for rule in self.rules if rule.concerns(node)]
        if not rules:
            return Overlaid(list(pools), [])
        problems = _OverlayProblems(self.source)
        return Overlaid([_pool(pool, rules, driver, problems) for pool in pools], problems.sentences())


@dataclass(slots=True)
class _OverlayProblems:
    """Problems by rule and field, with one sentence for all devices that have the same one."""

    source: str
    by_place: dict[str, tuple[str, str, list[str]]] = field(default_factory=dict)

    def add(self, place: str, device: str, problem: str) -> None:
        self.by_place.setdefault(place, (device, problem, []))[2].append(device)

    def sentences(self) -> list[str]:
        made = []
        for place, (device, problem, devices) in self.by_place.items():
            more = f" (and {counted(len(devices) - 1, 'more device')})" if len(devices) > 1 else ""
            made.append(f"overlay {self.source}: {place}: device {device}{more}: {problem}")
        return made


def _pool(pool: ResourcePool, rules: Sequence[OverlayRule], driver: str, problems: _OverlayProblems) -> ResourcePool:
    devices = [_device(device, pool, rules, driver, problems) for device in pool.devices]
    changed = any(new is not old for new, old in zip(devices, pool.devices, strict=True))
    return replace(pool, devices=[device for device in devices if device is not None]) if changed else pool


def _device(
    device: Device, pool: ResourcePool, rules: Sequence[OverlayRule], driver: str, problems: _OverlayProblems
) -> Device | None:
    """Return the device with everything that rules add; None if it is not published."""
    view = DeviceView.of(device, driver)
    changes = _Changes(device, f"{pool.name}/{device.name}", driver, problems)
    published = True
    for rule in rules:
        try:
            selected = rule.selects(view)
        except CelError as error:
            problems.add(f"{rule.where}.match", changes.name, str(error))
            continue
        if selected:
            changes.add(rule)
            published = published if rule.publish is None else rule.publish
    return changes.device() if published else None


class _Changes:
    """One device, and what rules add to it."""

    def __init__(self, device: Device, name: str, driver: str, problems: _OverlayProblems) -> None:
        self.name = name
        self._device, self._driver, self._problems = device, driver, problems
        self._attributes = dict(device.attributes)
        #: How the device writes each name: it may omit the driver's own domain.
        self._written = {self._full(key): key for key in device.attributes}
        self._taints = {(taint.key, taint.effect): taint for taint in device.taints}
        self._changed = False

    def add(self, rule: OverlayRule) -> None:
        """Add the attributes and taints of a rule."""
        for name, value in rule.attributes.items():
            key = self._written.setdefault(self._full(name), name)
            self._put(self._attributes, key, value, rule, f"attributes[{name}]")
        for taint in rule.taints:
            place = f"taints[{taint.key}:{taint.effect}]"
            self._put(self._taints, (taint.key, taint.effect), taint, rule, place)

    def device(self) -> Device:
        """Return the device with everything that was added."""
        if not self._changed:
            return self._device
        return replace(self._device, attributes=self._attributes, taints=tuple(self._taints.values()))

    def _full(self, name: str) -> str:
        return name if "/" in name else f"{self._driver}/{name}"

    def _put(self, there: dict[Any, Any], key: object, value: object, rule: OverlayRule, place: str) -> None:
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
    """Return whether two values are the same: 1 and true differ, and so do a string and a version."""
    if isinstance(old, DeviceTaint) and isinstance(new, DeviceTaint):
        return old.value == new.value
    if all(isinstance(value, Sequence) and not isinstance(value, str) for value in (old, new)):
        return len(old) == len(new) and all(map(_same, old, new))
    return type(old) is type(new) and bool(old == new)


def _shown(value: AttributeValue | DeviceTaint) -> str:
    return f"value {value.value!r}" if isinstance(value, DeviceTaint) else repr(value)
