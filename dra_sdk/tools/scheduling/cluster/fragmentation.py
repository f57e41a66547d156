"""Fragmentation: how much of what is free is not in whole pieces of hardware.

A piece is what a counter set stands for, such as a GPU with its partitions; without counter sets, the devices of a pool
with one PCI address or UUID, or a single device. Its free share is that of its scarcest counter, or that of its
devices. Numbered counters of value 1, such as `memory-slice-0` to `memory-slice-7`, are slots and count together as one
counter: a partition that takes one of eight leaves seven. With F for the sum of the free shares and W for the number of
pieces of which nothing is used, the fragmentation is 1 - W / F: 0 if all that is free is whole, 1 if no piece is whole
although something is free.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator.allocated_state import held_devices
from dra_sdk.tools.scheduling.allocator.devices import PoolId
from dra_sdk.tools.scheduling.cluster.losses import hardware_marks
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, grouped, newest_generation, slices_by_pool

_NUMBERED: Final = re.compile(r"(.+?)-?(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Piece:
    """A piece of hardware, and how much of it is free.

    driver: the driver.
    pool: the pool.
    devices: the names of its devices, in the order of the slices.
    free: its free share, from 0 to 1.
    is_whole: whether nothing of it is used.
    """

    driver: str
    pool: str
    devices: tuple[str, ...]
    free: Fraction
    is_whole: bool


@dataclass(frozen=True, slots=True)
class Fragmentation:
    """How the free hardware of a driver or a pool is split up.

    driver: the driver.
    pool: the pool; empty for all pools of the driver.
    pieces: how many pieces of hardware there are.
    whole: of how many of them nothing is used.
    free: the sum of the free shares of all pieces.
    """

    driver: str
    pool: str
    pieces: int
    whole: int
    free: Fraction

    @property
    def figure(self) -> Fraction:
        """The fragmentation, from 0 to 1; 0 if nothing is free."""
        return fragmentation_figure(self.whole, self.free)

    def to_json(self) -> JSON:
        """Return it as JSON; the figures are rounded to a thousandth."""
        fields: JSON = {"driver": self.driver, **({"pool": self.pool} if self.pool else {})}
        rounded = {"free": round(float(self.free), 3), "fragmentation": round(float(self.figure), 3)}
        return fields | {"pieces": self.pieces, "whole": self.whole} | rounded


def fragmentation_figure(whole: int, free: Fraction) -> Fraction:
    """Return the fragmentation, from 0 to 1, of pieces with these free shares in all, `whole` of them not in use."""
    return 1 - whole / free if free else Fraction(0)


def hardware_pieces(snapshot: Snapshot) -> list[Piece]:
    """Return the pieces of all pools, by driver, pool and order of the slices."""
    return [
        Piece(driver, pool, tuple(devices), shares.get(name, Fraction(1)), name not in shares)
        for driver, pool, layout, shares in _pools(snapshot)
        for name, devices in layout.pieces.items()
    ]


def slot_groups(counters: Mapping[str, Fraction]) -> dict[str, list[tuple[int, str]]]:
    """Return the numbered counters of value 1: for each common name with more than one, numbers and names in order."""
    groups: dict[str, list[tuple[int, str]]] = {}
    for name, total in counters.items():
        if total == 1 and (match := _NUMBERED.fullmatch(name)):
            groups.setdefault(match[1], []).append((int(match[2]), name))
    return {common: sorted(slots) for common, slots in groups.items() if len(slots) > 1}


def pool_fragmentation(snapshot: Snapshot) -> list[Fragmentation]:
    """Return the fragmentation of each pool with devices, by driver and name."""
    fragmentations = []
    for driver, pool, layout, shares in _pools(snapshot):
        pieces = len(layout.pieces)
        whole = pieces - len(shares)
        fragmentations.append(Fragmentation(driver, pool, pieces, whole, whole + sum(shares.values(), Fraction(0))))
    return fragmentations


def driver_fragmentation(pools: Iterable[Fragmentation]) -> list[Fragmentation]:
    """Return the fragmentation of each driver, over all its pools."""
    return [
        Fragmentation(
            driver,
            "",
            sum(pool.pieces for pool in own),
            sum(pool.whole for pool in own),
            sum((pool.free for pool in own), Fraction(0)),
        )
        for driver, own in grouped(pools, lambda pool: pool.driver).items()
    ]


def _pools(snapshot: Snapshot) -> Iterator[tuple[str, str, _Layout, dict[str, Fraction]]]:
    """Yield the pools with devices: driver, name, layout, and the free share of each piece that is partly used."""
    used = _used_devices(snapshot.claims)
    layouts: dict[tuple[int, ...], _Layout] = {}
    for (driver, name), slices in sorted(slices_by_pool(snapshot.slices).items()):
        specs = [raw_slice["spec"] for raw_slice in newest_generation(slices)]
        # Slices of nodes of one shape may share their devices, which are then looked at once.
        key = tuple(id(part) for spec in specs for part in (spec.get("devices"), spec.get("sharedCounters")))
        layout = layouts.get(key) or layouts.setdefault(key, _Layout.of(specs))
        if layout.pieces:
            yield driver, name, layout, layout.free_shares(used.get((driver, name), {}))


@dataclass(slots=True)
class _Layout:
    """The pieces of a pool: the devices by name, the devices of each piece, and the counters of counter sets."""

    devices: dict[str, JSON] = field(default_factory=dict)
    pieces: dict[str, list[str]] = field(default_factory=dict)
    pieces_of: dict[str, list[str]] = field(default_factory=dict)
    counters: dict[str, dict[str, Fraction]] = field(default_factory=dict)

    @classmethod
    def of(cls, specs: Iterable[JSON]) -> _Layout:
        layout = cls()
        for spec in specs:
            for counter_set in spec.get("sharedCounters") or ():
                layout.counters[counter_set["name"]] = _amounts(counter_set["counters"])
            for device in spec.get("devices") or ():
                layout._add(device)
        return layout

    def _add(self, device: JSON) -> None:
        name = str(device["name"])
        sets = [str(consumption["counterSet"]) for consumption in device.get("consumesCounters") or ()]
        mark = next(hardware_marks(device), None)
        self.devices[name] = device
        self.pieces_of[name] = sets or [f"{mark[0]} {mark[1]}" if mark else f"device {name}"]
        for piece in self.pieces_of[name]:
            self.pieces.setdefault(piece, []).append(name)

    def free_shares(self, used: Mapping[str, Mapping[str, Fraction]]) -> dict[str, Fraction]:
        """Return the free share of each piece of which something is used."""
        touched = {piece for name in used for piece in self.pieces_of.get(name, ())}
        return {piece: self._free_share(piece, used) for piece in touched}

    def _free_share(self, piece: str, used: Mapping[str, Mapping[str, Fraction]]) -> Fraction:
        names = self.pieces[piece]
        total = self.counters.get(piece)
        if total:
            left = dict(total)
            for name in (piece_device for piece_device in names if piece_device in used):
                for entry in self.devices[name]["consumesCounters"]:
                    if entry["counterSet"] == piece:
                        for counter, amount in _amounts(entry["counters"]).items():
                            left[counter] = left.get(counter, Fraction(0)) - amount
            return max(Fraction(0), min(_counter_shares(total, left), default=Fraction(0)))
        free = sum((_device_share(self.devices[name], used.get(name)) for name in names), Fraction(0))
        return free / len(names)


def _counter_shares(total: Mapping[str, Fraction], left: Mapping[str, Fraction]) -> Iterator[Fraction]:
    """Yield what is left of each counter, and of each group of slots, as a share of the total."""
    groups = [[name for _, name in numbered] for numbered in slot_groups(total).values()]
    slots = {name for names in groups for name in names}
    for names in [*groups, *([name] for name in total if name not in slots)]:
        if amount := sum((total[name] for name in names), Fraction(0)):
            yield sum((left[name] for name in names), Fraction(0)) / amount


def _device_share(device: JSON, consumed: Mapping[str, Fraction] | None) -> Fraction:
    """Return the free share of a device: of a shared one that of its scarcest capacity, else all or nothing."""
    if consumed is None:
        return Fraction(1)
    capacity = {key: Quantity(amount["value"]).value for key, amount in (device.get("capacity") or {}).items()}
    if not device.get("allowMultipleAllocations") or not capacity:
        return Fraction(0)
    shares = [1 - consumed.get(key, Fraction(0)) / total for key, total in capacity.items() if total > 0]
    return max(Fraction(0), min(shares, default=Fraction(0)))


def _used_devices(claims: Iterable[JSON]) -> dict[PoolId, dict[str, dict[str, Fraction]]]:
    """Return what claims consume of each device in use, except by admin access."""
    used: dict[PoolId, dict[str, dict[str, Fraction]]] = {}
    for claim in claims:
        for device, result in held_devices(claim):
            consumed = used.setdefault((device.driver, device.pool), {}).setdefault(device.device, {})
            for key, amount in (result.get("consumedCapacity") or {}).items():
                consumed[key] = consumed.get(key, Fraction(0)) + Quantity(amount).value
    return used


def _amounts(counters: Mapping[str, JSON]) -> dict[str, Fraction]:
    return {name: Quantity(counter["value"]).value for name, counter in counters.items()}
