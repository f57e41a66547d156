"""Counter sets as bars: what of a device that can be cut up is used, by whom, and what could still be cut from it.

Source: KEP-4815 partitionable devices. Counters of value 1 that are numbered, such as `memory-slice-0` to
`memory-slice-7`, are places: together they make one strip of cells.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.cluster.names import Key
from dra_sdk.tools.scheduling.picture.pools import CounterSet, Tile

_NUMBERED = re.compile(r"(.+?)-?(\d+)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Bar:
    """An amount, and the claims that hold parts of it."""

    name: str
    total: Quantity
    parts: tuple[tuple[Key, Quantity], ...]

    @property
    def left(self) -> Quantity:
        """What nobody holds."""
        return Quantity.of(self.total.value - self._used, binary=str(self.total).endswith("i"))

    @property
    def _used(self) -> Fraction:
        return sum((each.value for _, each in self.parts), Fraction(0))

    def share(self, amount: Quantity) -> float:
        """An amount as a percentage of the whole."""
        return min(100.0, float(100 * amount.value / self.total.value)) if self.total.value else 0.0


@dataclass(frozen=True, slots=True)
class Strip:
    """Numbered places, each with the claim that holds it or None."""

    name: str
    cells: tuple[Key | None, ...]


@dataclass(frozen=True, slots=True)
class Board:
    """A counter set with the devices cut from it: those in use, and how many of each kind could still be had."""

    set: CounterSet
    used: tuple[Tile, ...]
    strips: tuple[Strip, ...]
    bars: tuple[Bar, ...]
    possible: tuple[tuple[str, int], ...]
    tiles: tuple[Tile, ...]

    @property
    def name(self) -> str:
        """The name of the counter set."""
        return self.set.name


def board(counters: CounterSet, tiles: Sequence[Tile]) -> Board:
    """The board of a counter set; `tiles` are all devices that take from it."""
    used = tuple(each for each in tiles if each.uses)
    bars = [_bar(counters.name, name, total, used) for name, total in counters.counters.items()]
    strips, rest = _strips(bars)
    left = {(counters.name, each.name): each.left.value for each in bars}
    free = (each for each in tiles if not each.uses and not each.taints and _fits(each, left))
    possible = Counter(kind(each) for each in free)
    return Board(counters, used, strips, rest, tuple(possible.items()), tuple(tiles))


def kind(tile: Tile) -> str:
    """What a partition is called beside others of its size."""
    named = {name.rpartition("/")[2]: value for name, value in tile.attributes.items()}
    found = next((named[each] for each in ("profile", "partitionProfile", "type") if named.get(each)), None)
    return str(found) if found is not None else re.sub(r"[-_]?\d+$", "", tile.name)


def _bar(counter_set: str, name: str, total: Quantity, used: Iterable[Tile]) -> Bar:
    parts = [(each.holders[0].claim, each.counters.get((counter_set, name))) for each in used if each.holders]
    return Bar(name, total, tuple((claim, amount) for claim, amount in parts if amount is not None and amount.value))


def _fits(tile: Tile, left: Mapping[tuple[str, str], Fraction]) -> bool:
    return all(left.get(each, amount.value) >= amount.value for each, amount in tile.counters.items())


def _strips(bars: Sequence[Bar]) -> tuple[tuple[Strip, ...], tuple[Bar, ...]]:
    """Numbered counters of value 1 as strips, and the bars that are left."""
    numbered: dict[str, list[tuple[int, Bar]]] = {}
    for each in bars:
        if each.total == 1 and (match := _NUMBERED.fullmatch(each.name)):
            numbered.setdefault(match[1], []).append((int(match[2]), each))
    groups = {name: sorted(found, key=lambda each: each[0]) for name, found in numbered.items() if len(found) > 1}
    placed = {bar.name for found in groups.values() for _, bar in found}
    strips = (
        Strip(f"{name}-{found[0][0]}…{found[-1][0]}", tuple(bar.parts[0][0] if bar.parts else None for _, bar in found))
        for name, found in groups.items()
    )
    return tuple(strips), tuple(each for each in bars if each.name not in placed)
