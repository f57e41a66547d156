"""What a picture of a cluster shows, before it is drawn: nodes, alignment frames, devices, claims, and who waits."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import Features, Inventory
from dra_sdk.tools.scheduling.cluster.names import Key, key_of
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot
from dra_sdk.tools.scheduling.picture.partitions import Board, board
from dra_sdk.tools.scheduling.picture.pools import ANYWHERE, CounterSet, Pools, Tile, pools

_NUMA: Final = ("numaNode", "numaNodeID", "numa")
_ROOT: Final = ("pcieRoot",)
T = TypeVar("T")
Item = Tile | Board


@dataclass(frozen=True, slots=True)
class Frame:
    """Devices that are aligned: on one NUMA node, or below one PCIe root. The outermost frame has no title."""

    title: str
    items: tuple[Item, ...]
    frames: tuple[Frame, ...] = ()


@dataclass(frozen=True, slots=True)
class Card:
    """A node, or the devices on no single node (`name` is then who can reach them)."""

    name: str
    is_node: bool
    frame: Frame
    tiles: tuple[Tile, ...]
    pods: tuple[Key, ...] = ()

    @property
    def in_use(self) -> str:
        """How many devices are in use, see `in_use`."""
        return in_use(self.tiles)


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """A claim that has devices; `color` counts the claims."""

    key: Key
    color: int
    pods: tuple[str, ...]
    devices: tuple[tuple[str, Tile], ...]


@dataclass(frozen=True, slots=True)
class Waiting:
    """A pod or a claim that was not placed, and why."""

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything."""

    cards: tuple[Card, ...]
    claims: tuple[ClaimRow, ...]
    waiting: tuple[Waiting, ...]
    tiles: tuple[Tile, ...]


def in_use(tiles: Sequence[Tile]) -> str:
    """`3 of 8 in use`; partitions are not counted where most of them exclude each other."""
    used = sum(1 for each in tiles if each.holders)
    return f"{used} in use" if any(each.counters for each in tiles) else f"{used} of {len(tiles)} in use"


def scene(snapshot: Snapshot, waiting: Sequence[Waiting] = ()) -> Scene:
    """The scene of a snapshot whose claims are allocated as far as they can be."""
    inventory = Inventory(snapshot.slices, Features.of(snapshot.profile), snapshot.rules)
    found = pools(inventory, snapshot.claims)
    by_place: dict[str, list[Tile]] = {}
    for each in found.tiles:
        by_place.setdefault(each.place, []).append(each)
    nodes = [each["metadata"]["name"] for each in snapshot.nodes]
    cards = [_node(name, by_place.get(name, []), found, snapshot.pods) for name in nodes]
    cards += [_elsewhere(f"{name} (no such node)", by_place[name], found)
              for name in by_place if name not in {*nodes, ANYWHERE}]  # fmt: skip
    for reach, tiles in _grouped(by_place.get(ANYWHERE, []), lambda each: each.reach):
        cards.append(_elsewhere(str(reach), tiles, found))
    return Scene(tuple(cards), _claims(snapshot, found), tuple(waiting), found.tiles)


def _node(name: str, tiles: Sequence[Tile], found: Pools, pods: Iterable[JSON]) -> Card:
    here = tuple(key_of(each) for each in pods if (each.get("spec") or {}).get("nodeName") == name)
    return Card(name, True, _frame(tiles, found.sets), tuple(tiles), here)


def _elsewhere(name: str, tiles: Sequence[Tile], found: Pools) -> Card:
    return Card(name, False, _frame(tiles, found.sets), tuple(tiles))


def _frame(tiles: Sequence[Tile], sets: Sequence[CounterSet]) -> Frame:
    """The devices of one place in frames: NUMA nodes, and PCIe roots within them."""
    items = _items(tiles, sets)
    frames, rest = _framed(items, _NUMA, "NUMA node {}")
    filled = []
    for title, inside in frames:
        below, loose = _framed(inside, _ROOT, "{}")
        filled.append(Frame(title, tuple(loose), tuple(Frame(each, tuple(group)) for each, group in below)))
    below, loose = _framed(rest, _ROOT, "{}")
    return Frame("", tuple(loose), (*filled, *(Frame(each, tuple(group)) for each, group in below)))


def _items(tiles: Sequence[Tile], sets: Sequence[CounterSet]) -> list[Item]:
    """Boards, each with the devices that take from its counters, and the devices that take from none."""
    homes = {id(tile): _home(tile, sets) for tile in tiles}
    items: list[Item] = []
    seen = set()
    for tile in tiles:
        home = homes[id(tile)]
        if home is None:
            items.append(tile)
        elif (home.driver, home.pool, home.name) not in seen:
            seen.add((home.driver, home.pool, home.name))
            items.append(board(home, [each for each in tiles if homes[id(each)] is home]))
    return items


def _home(tile: Tile, sets: Iterable[CounterSet]) -> CounterSet | None:
    names = {each for each, _ in tile.counters}
    return next((each for each in sets if each.name in names and (each.driver, each.pool) == tile.id[:2]), None)


def _framed(items: Sequence[Item], names: Sequence[str], title: str) -> tuple[list[tuple[str, list[Item]]], list[Item]]:
    """Items by the value of an attribute, in order of the values, and those that have none or several."""
    groups = _grouped(items, lambda each: _aligned(each, names))
    named = [each for each in groups if each[0] is not None]
    framed = sorted(named, key=lambda each: _natural(each[0]))
    rest = [each for value, group in groups if value is None for each in group]
    return [(title.format(value), group) for value, group in framed], rest


def _aligned(item: Item, names: Sequence[str]) -> Any:
    """The one value that all devices of an item have, else None."""
    tiles = item.tiles if isinstance(item, Board) else (item,)
    values = {_value(each, names) for each in tiles}
    return values.pop() if len(values) == 1 else None


def _value(tile: Tile, names: Sequence[str]) -> str | None:
    for name, value in tile.attributes.items():
        if name.rpartition("/")[2] in names and isinstance(value, str | int) and value not in {"", -1}:
            return str(value)
    return None


def _natural(value: str) -> tuple[int, str]:
    """Numbers in their own order, before everything else as text."""
    return (int(value), "") if value.isdecimal() else (sys.maxsize, value)


def _grouped(items: Iterable[T], key: Callable[[T], Any]) -> list[tuple[Any, list[T]]]:
    groups: dict[Any, list[T]] = {}
    for each in items:
        groups.setdefault(key(each), []).append(each)
    return list(groups.items())


def _claims(snapshot: Snapshot, found: Pools) -> tuple[ClaimRow, ...]:
    devices: dict[Key, list[tuple[str, Tile]]] = {}
    for tile in found.tiles:
        for use in tile.uses:
            devices.setdefault(use.claim, []).append((use.request, tile))
    rows = ((each, key_of(each)) for each in snapshot.claims if key_of(each) in devices)
    return tuple(ClaimRow(key, at, _users(claim), tuple(devices[key])) for at, (claim, key) in enumerate(rows))


def _users(claim: JSON) -> tuple[str, ...]:
    return tuple(each["name"] for each in (claim.get("status") or {}).get("reservedFor") or ())
