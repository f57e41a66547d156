"""The devices of a snapshot as a picture shows them, and the counter sets that partitions share.

Of each pool the newest generation is shown. Numbered counters of value 1, such as `memory-slice-0` to `memory-slice-7`,
are slots: together they make one strip of cells.
Source: resource.k8s.io/v1 ResourceSliceSpec, Device, DeviceRequestAllocationResult; KEP-4815 (partitionable devices).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from itertools import chain
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator import DeviceId, Inventory
from dra_sdk.tools.scheduling.allocator.devices import PoolId
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_results
from dra_sdk.tools.scheduling.cluster.fragmentation import slot_groups
from dra_sdk.tools.scheduling.cluster.snapshot import (
    ObjectKey,
    device_entries,
    newest_generation,
    object_key,
    slices_by_pool,
)
from dra_sdk.tools.scheduling.device_taints import taint_text

NO_SINGLE_NODE = ""
"""The node of devices that several nodes can use."""


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """The use of a device by a claim.

    claim: the claim.
    request: the request that the device is for.
    admin: whether it is for admin access.
    consumed: what it consumes of each capacity of a shared device.
    """

    claim: ObjectKey
    request: str
    admin: bool = False
    consumed: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DeviceTile:
    """A device.

    id: its driver, pool and name.
    node: the node that it is on; empty if several nodes can use it.
    accessible_from: which nodes can use it, as text; empty if it is on a node.
    attributes: its attributes.
    capacity: its capacity.
    shared: whether several claims can use it at a time.
    taints: its taints, as text.
    counters: what it consumes of each counter.
    uses: the claims that use it.
    note: what is wrong with its pool; empty if nothing is.
    """

    id: DeviceId
    node: str
    accessible_from: str
    attributes: Mapping[str, Any]
    capacity: Mapping[str, Quantity]
    shared: bool
    taints: tuple[str, ...]
    counters: Mapping[tuple[str, str], Quantity]
    uses: tuple[DeviceUse, ...]
    note: str = ""

    @property
    def name(self) -> str:
        """The device's name."""
        return self.id[2]

    @property
    def pool(self) -> PoolId:
        """Driver and pool."""
        return self.id[:2]

    @property
    def problems(self) -> list[str]:
        """Its taints, and what is wrong with its pool: what keeps claims away although no claim holds it."""
        return [f"taint {taint}" for taint in self.taints] + ([self.note] if self.note else [])

    def attribute(self, *names: str) -> Any:
        """Return the first of these attributes, by names without domain, that has a value; None if none has."""
        named = {name.rpartition("/")[2]: value for name, value in self.attributes.items()}
        return next((named[name] for name in names if named.get(name)), None)

    @property
    def holders(self) -> list[DeviceUse]:
        """The uses without admin access, which exclude other claims."""
        return [use for use in self.uses if not use.admin]


@dataclass(frozen=True, slots=True)
class PoolCounterSet:
    """Counters that the devices of a pool share.

    driver: the driver of the pool.
    pool: the name of the pool.
    name: the name of the counter set.
    counters: the total of each counter.
    """

    driver: str
    pool: str
    name: str
    counters: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class PublishedDevices:
    """All devices and counter sets, in the order of the slices.

    tiles: the devices.
    counter_sets: the counter sets.
    """

    tiles: tuple[DeviceTile, ...]
    counter_sets: tuple[PoolCounterSet, ...]


def published_devices(inventory: Inventory, claims: Iterable[JSON]) -> PublishedDevices:
    """Return what is published, with the taints of rules, and what allocated claims use."""
    uses = _uses_by_device(claims)
    pools = slices_by_pool(pool_slice.json for pool_slice in inventory.slices)
    current = [raw_slice for slices in pools.values() for raw_slice in newest_generation(slices)]
    notes = {
        (problem.driver, problem.pool): f"{problem.kind} pool: {problem.reason}"
        for problem in inventory.problems
        if problem.kind != "obsolete"
    }
    tiles = [tile for raw_slice in current for tile in _device_tiles(raw_slice, uses, notes)]
    counter_sets = chain.from_iterable(_counter_sets(raw_slice["spec"]) for raw_slice in current)
    return PublishedDevices(tuple(tiles), tuple(counter_sets))


def _uses_by_device(claims: Iterable[JSON]) -> dict[DeviceId, list[DeviceUse]]:
    uses: dict[DeviceId, list[DeviceUse]] = {}
    for claim in claims:
        for result in claim_results(claim):
            consumed = {name: Quantity(amount) for name, amount in (result.get("consumedCapacity") or {}).items()}
            use = DeviceUse(object_key(claim), result["request"], bool(result.get("adminAccess")), consumed)
            uses.setdefault(DeviceId.of(result), []).append(use)
    return uses


def _device_tiles(
    raw_slice: JSON, uses: Mapping[DeviceId, list[DeviceUse]], notes: Mapping[PoolId, str]
) -> Iterator[DeviceTile]:
    """Yield the devices of a slice."""
    spec = raw_slice["spec"]
    for device_id, device in device_entries(raw_slice):
        selection = device if spec.get("perDeviceNodeSelection") else spec
        yield DeviceTile(
            device_id,
            selection.get("nodeName") or NO_SINGLE_NODE,
            _accessible_from(selection),
            {key: next(iter(value.values()), None) for key, value in (device.get("attributes") or {}).items()},
            {key: Quantity(value["value"]) for key, value in (device.get("capacity") or {}).items()},
            bool(device.get("allowMultipleAllocations")),
            tuple(map(taint_text, device.get("taints") or ())),
            _consumed_counters(device),
            tuple(uses.get(device_id, ())),
            notes.get(device_id[:2], ""),
        )


def _accessible_from(selection: JSON) -> str:
    """Return which nodes can use a device, as text."""
    if selection.get("nodeName"):
        return ""
    if selection.get("allNodes"):
        return "every node"
    terms = ((selection.get("nodeSelector") or {}).get("nodeSelectorTerms")) or ()
    kinds = ("matchExpressions", "matchFields")
    requirements = [rule for term in terms for kind in kinds for rule in term.get(kind) or ()]
    parts = [f"{rule['key']} {rule['operator']} {','.join(rule.get('values') or ())}".rstrip() for rule in requirements]
    return "nodes where " + " or ".join(parts)


def _consumed_counters(device: JSON) -> dict[tuple[str, str], Quantity]:
    return {
        (consumption["counterSet"], name): Quantity(counter["value"])
        for consumption in device.get("consumesCounters") or ()
        for name, counter in (consumption.get("counters") or {}).items()
    }


def _counter_sets(spec: JSON) -> Iterator[PoolCounterSet]:
    """Yield the counter sets of a slice."""
    for counter_set in spec.get("sharedCounters") or ():
        counters = {name: Quantity(counter["value"]) for name, counter in counter_set["counters"].items()}
        yield PoolCounterSet(spec["driver"], spec["pool"]["name"], counter_set["name"], counters)


@dataclass(frozen=True, slots=True)
class AmountBar:
    """An amount, and the parts of it that claims hold.

    name: the name of the counter or capacity.
    total: the amount.
    parts: what each claim holds of it.
    """

    name: str
    total: Quantity
    parts: tuple[tuple[ObjectKey, Quantity], ...]

    @property
    def left(self) -> Quantity:
        """What no claim holds."""
        used = sum((part.value for _, part in self.parts), Fraction(0))
        return Quantity.of(self.total.value - used, binary=str(self.total).endswith("i"))

    def share(self, amount: Quantity) -> float:
        """Return an amount as a percentage of the total."""
        return min(100.0, float(100 * amount.value / self.total.value)) if self.total.value else 0.0


@dataclass(frozen=True, slots=True)
class SlotStrip:
    """Numbered slots of a device.

    name: their common name.
    cells: the claim that holds each slot, or None.
    """

    name: str
    cells: tuple[ObjectKey | None, ...]

    @property
    def used(self) -> int:
        """How many slots claims hold."""
        return sum(cell is not None for cell in self.cells)


@dataclass(frozen=True, slots=True)
class PartitionedDevice:
    """A counter set, which usually stands for a physical device, with the partitions that share it.

    counter_set: the counter set.
    used: the devices in use.
    strips: its numbered slots.
    bars: its other counters.
    possible: how many more devices of each kind could be allocated.
    tiles: all its partitions.
    """

    counter_set: PoolCounterSet
    used: tuple[DeviceTile, ...]
    strips: tuple[SlotStrip, ...]
    bars: tuple[AmountBar, ...]
    possible: tuple[tuple[str, int], ...]
    tiles: tuple[DeviceTile, ...]

    @property
    def pool(self) -> PoolId:
        """Driver and pool."""
        return self.counter_set.driver, self.counter_set.pool

    @property
    def name(self) -> str:
        """The name of the counter set, without the word that says that it is one."""
        return self.counter_set.name.removesuffix("-counter-set")


def partitioned_device(counters: PoolCounterSet, tiles: Sequence[DeviceTile]) -> PartitionedDevice:
    """Return a counter set with its devices; `tiles` are all devices that consume from it."""
    used = tuple(tile for tile in tiles if tile.uses)
    bars = [_amount_bar(counters.name, name, total, used) for name, total in counters.counters.items()]
    strips, rest = _split_strips(bars)
    order = {claim: at for strip in reversed(strips) for at, claim in reversed(list(enumerate(strip.cells)))}
    last = len(order)
    rest = tuple(
        replace(bar, parts=tuple(sorted(bar.parts, key=lambda part: order.get(part[0], last)))) for bar in rest
    )
    left = {(counters.name, bar.name): bar.left.value for bar in bars}
    free = (tile for tile in tiles if not tile.uses and not tile.taints and _fits_counters(tile, left))
    possible = Counter(partition_kind(tile) for tile in free)
    return PartitionedDevice(counters, used, strips, rest, tuple(possible.items()), tuple(tiles))


def partition_kind(tile: DeviceTile) -> str:
    """Return the name of a partition's size or profile."""
    return str(tile.attribute("profile", "partitionProfile", "type") or re.sub(r"[-_]?\d+$", "", tile.name))


def _amount_bar(counter_set: str, name: str, total: Quantity, used: Iterable[DeviceTile]) -> AmountBar:
    parts = [(tile.holders[0].claim, tile.counters.get((counter_set, name))) for tile in used if tile.holders]
    return AmountBar(
        name, total, tuple((claim, amount) for claim, amount in parts if amount is not None and amount.value)
    )


def _fits_counters(tile: DeviceTile, left: Mapping[tuple[str, str], Fraction]) -> bool:
    return all(left.get(counter, amount.value) >= amount.value for counter, amount in tile.counters.items())


def _split_strips(bars: Sequence[AmountBar]) -> tuple[tuple[SlotStrip, ...], tuple[AmountBar, ...]]:
    """Return numbered counters of value 1 as strips, and the other bars."""
    named = {bar.name: bar for bar in bars}
    groups = slot_groups({name: bar.total.value for name, bar in named.items()})
    placed = {name for slots in groups.values() for _, name in slots}
    strips = (
        SlotStrip(
            f"{common}-{slots[0][0]}…{slots[-1][0]}",
            tuple(named[name].parts[0][0] if named[name].parts else None for _, name in slots),
        )
        for common, slots in groups.items()
    )
    return tuple(strips), tuple(bar for bar in bars if bar.name not in placed)
