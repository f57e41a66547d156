"""Pools as one node sees them: which of their slices count, and whether devices may be allocated from them.

Only the newest generation of a pool counts. A pool whose slices are not all there is incomplete; one with two devices
of a name, or with counters that do not add up, is invalid. Nothing is allocated from either. A pool of which a newer
generation exists, though not for this node, is obsolete: as if it were not there.
Source: k8s.io/dynamic-resource-allocation, structured (1.36, 1.37), GatherPools; resource.k8s.io/v1 ResourcePool.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import nodes
from dra_sdk.tools.scheduling.allocator.allocated import DeviceId
from dra_sdk.tools.scheduling.allocator.devices import Content, CounterId, PoolDevice, nano
from dra_sdk.tools.scheduling.allocator.features import Features
from dra_sdk.tools.scheduling.allocator.slices import PoolId, SliceView


class Candidate:
    """A device of a pool, seen from a node. `here` is False for one that is for other nodes only."""

    __slots__ = ("content", "device", "here", "id", "pool")

    def __init__(self, device: PoolDevice, pool: Pool, *, here: bool) -> None:
        self.device, self.pool, self.here = device, pool, here
        self.id: DeviceId = device.id
        self.content: Content = device.content

    def __repr__(self) -> str:
        return f"Candidate({self.id})"


@dataclass(slots=True, eq=False)
class Pool:
    """A pool, seen from a node.

    `candidates` are the devices to choose from, in the order in which they are tried. `counters` holds what the
    counter sets of the pool have in all (billionths), `elsewhere` the devices of slices that are not for this node,
    which use the same counters; what an allocation takes of them is noted under `ledger`. `incomplete` and `invalid`
    say in a sentence why nothing is allocated from it. With 1.34, of a pool with counters each slice is one of these.
    """

    id: PoolId
    candidates: Sequence[Candidate] = ()
    counters: Mapping[CounterId, int] = field(default_factory=dict)
    elsewhere: Sequence[PoolDevice] = ()
    ledger: tuple[str, ...] = ()
    incomplete: str = ""
    invalid: str = ""
    #: Whether any candidate has binding conditions; such pools are tried last.
    binds: bool = False

    @property
    def name(self) -> str:
        """`driver/pool`."""
        return "/".join(self.id)

    def consumers(self) -> Iterable[PoolDevice]:
        """Every device of the pool that consumes counters, wherever it is."""
        yield from (each.device for each in self.candidates if each.device.counters)
        yield from (each for each in self.elsewhere if each.counters)


class InvalidPool(Exception):  # noqa: N818 (never leaves this module's callers; carries a sentence)
    """Why a pool cannot be used."""


def is_ignored(each: SliceView, features: Features) -> bool:
    """Whether a slice counts as missing: one with compatibility groups does where that feature is off."""
    return features.behaviour.knows_newer_fields and not features.compatibility_groups and each.has_groups


def view(
    relevant: Sequence[SliceView], everything: Sequence[SliceView], node: JSON | None, features: Features
) -> list[Pool]:
    """A pool of which `relevant` slices concern the node and `everything` are all; nothing where it is obsolete.

    Without a node, devices count wherever they are.
    """
    generation = max(each.generation for each in relevant)
    current = [each for each in relevant if each.generation == generation]
    identity, wanted = current[0].pool, current[0].count
    whole: Sequence[SliceView] = current
    if len(current) != wanted:
        if any(each.generation > generation for each in everything):
            return []
        present = [each for each in everything if each.generation == generation]
        whole = [each for each in present if not is_ignored(each, features)]
        if len(whole) != wanted:
            return [Pool(identity, incomplete=_missing(whole, present, wanted))]
    current.sort(key=lambda each: each.name)
    try:
        if not features.partitionable_devices:
            return [_plain(identity, current, node)]
        if features.behaviour.counters_with_devices:
            return list(_apart(identity, current, node))
        ledger = identity if features.behaviour.counters_by_driver else identity[1:]
        return [_built(Pool(identity, ledger=ledger), current, whole, node)]
    except InvalidPool as problem:
        return [Pool(identity, invalid=str(problem))]


def _missing(whole: Sequence[SliceView], present: Sequence[SliceView], wanted: int) -> str:
    found = f"{len(whole)} of {wanted} slices of generation {present[0].generation} are there"
    if len(whole) == len(present):
        return found
    off = "those with compatibilityGroups do not count while the feature DRADeviceCompatibilityGroups is off"
    return f"{found}, {off}"


def _plain(identity: PoolId, current: Sequence[SliceView], node: JSON | None) -> Pool:
    check_names(current)
    return _filled(Pool(identity), current, node)


def _apart(identity: PoolId, current: Sequence[SliceView], node: JSON | None) -> Iterator[Pool]:
    """The slices of a pool, each with counter sets and devices of its own: so it is in 1.34."""
    check_names(current)
    binds = any(device.binding_conditions for each in current for device in each.devices)
    for each in current:
        counters = counters_of([each])
        check_consumption([each], counters)
        found = _filled(Pool(identity, counters=counters, ledger=(*identity, each.name)), [each], node)
        found.binds = binds
        yield found


def _built(pool: Pool, current: Sequence[SliceView], whole: Sequence[SliceView], node: JSON | None) -> Pool:
    with_devices = [each for each in current if not each.has_counter_sets]
    check_names(with_devices)
    pool.counters = counters_of(each for each in whole if each.has_counter_sets)
    check_consumption(with_devices, pool.counters)
    seen = {each.name for each in current}
    others = [each for each in whole if each.name not in seen and not each.has_counter_sets]
    check_consumption(others, pool.counters)
    pool.elsewhere = [device for each in others for device in each.devices]
    return _filled(pool, with_devices, node)


def _filled(pool: Pool, slices: Sequence[SliceView], node: JSON | None) -> Pool:
    pool.candidates = tuple(
        Candidate(device, pool, here=node is None or not each.per_device or nodes.selected(device.json, node))
        for each in slices
        for device in each.devices
    )
    pool.binds = any(each.device.binding_conditions for each in pool.candidates)
    return pool


def check_names(slices: Iterable[SliceView]) -> None:
    """InvalidPool if two devices have the same name."""
    seen: set[str] = set()
    for each in slices:
        for device in each.raw_devices:
            if device["name"] in seen:
                raise InvalidPool(f"duplicate device name {device['name']}")
            seen.add(device["name"])


def counters_of(slices: Iterable[SliceView]) -> dict[CounterId, int]:
    """All counters of these counter sets in billionths; InvalidPool if two sets have the same name."""
    found: dict[CounterId, int] = {}
    sets: set[str] = set()
    for each in slices:
        for counter_set in each.spec.get("sharedCounters") or []:
            name = counter_set["name"]
            if name in sets:
                raise InvalidPool(f"duplicate counter set name {name}")
            sets.add(name)
            for counter, value in (counter_set.get("counters") or {}).items():
                found[name, counter] = nano(value, f"slice {each.name}, counter set {name}, counter {counter}")
    return found


def check_consumption(slices: Iterable[SliceView], counters: Mapping[CounterId, int]) -> None:
    """InvalidPool if a device consumes from a counter that its pool has not."""
    sets = {name for name, _ in counters}
    for each in slices:
        for device in each.raw_devices:
            for consumption in device.get("consumesCounters") or []:
                name = consumption["counterSet"]
                if name not in sets:
                    raise InvalidPool(f"device {device['name']}: counter set {name} not found")
                for counter in consumption.get("counters") or {}:
                    if (name, counter) not in counters:
                        problem = f"counter {counter} not found in counter set {name}"
                        raise InvalidPool(f"device {device['name']}: {problem}")
