"""How much hardware of each kind there is, how much of it is free as a whole, and how scattered the rest is.

Pieces, their free shares and the fragmentation are those of `dra_sdk.tools.scheduling.cluster.fragmentation`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from dra_sdk.tools.scheduling.cluster.fragmentation import Piece, fragmentation_figure
from dra_sdk.tools.scheduling.cluster.snapshot import grouped
from dra_sdk.tools.scheduling.picture.published_devices import DeviceTile, PartitionedDevice
from dra_sdk.tools.scheduling.picture.scene import NodeCard, SceneItem

_KIND_ATTRIBUTES: Final = ("productName", "model", "modelName", "type")
_PERCENT: Final = 100


@dataclass(slots=True)
class HardwareTotal:
    """The pieces of hardware of one kind.

    kind: the model, or what comes closest.
    pieces: how many there are.
    free: how many are free as a whole, without those that are unavailable.
    partly: how many are in use in part, and have something left.
    unavailable: how many are tainted or in an incomplete pool.
    """

    kind: str
    pieces: int = 0
    free: int = 0
    partly: int = 0
    unavailable: int = 0
    _whole: int = 0
    _shares: Fraction = field(default_factory=Fraction)

    @property
    def used(self) -> int:
        """How many are in use, with nothing left."""
        return self.pieces - self.free - self.partly - self.unavailable

    @property
    def fragmentation(self) -> int:
        """The fragmentation in percent; what is unavailable counts like everything else."""
        return round(_PERCENT * fragmentation_figure(self._whole, self._shares))

    def add(self, piece: Piece, *, available: bool) -> None:
        """Count one piece; taints and incomplete pools make it unavailable."""
        self.pieces += 1
        self._whole += piece.is_whole
        self._shares += piece.free
        if not available:
            self.unavailable += 1
        elif piece.is_whole:
            self.free += 1
        elif piece.free:
            self.partly += 1


def hardware_totals(cards: Iterable[NodeCard], pieces: Iterable[Piece]) -> list[HardwareTotal]:
    """Return the totals by kind of the pieces whose devices are on these cards, in the order of the pieces."""
    tiles = {tile.id: tile for card in cards for tile in card.tiles}
    totals: dict[str, HardwareTotal] = {}
    for piece in pieces:
        ids = ((piece.driver, piece.pool, name) for name in piece.devices)
        if own := [tiles[tile_id] for tile_id in ids if tile_id in tiles]:
            tile = whole_device(own)
            kind = hardware_kind(tile)
            totals.setdefault(kind, HardwareTotal(kind)).add(piece, available=not tile.problems)
    return list(totals.values())


@dataclass(frozen=True, slots=True)
class CardGroup:
    """Nodes with the same number of devices of each kind.

    hardware: the number and the kind, for each kind.
    cards: the nodes.
    """

    hardware: str
    cards: tuple[NodeCard, ...]


def like_nodes(cards: Iterable[NodeCard]) -> list[CardGroup]:
    """Return the nodes with devices, grouped by hardware; devices that several nodes share are their own group."""
    groups = grouped((card for card in cards if card.tiles), _hardware)
    return [CardGroup(hardware, tuple(members)) for hardware, members in groups.items()]


def card_problems(card: NodeCard) -> list[str]:
    """Return what is wrong with a node's hardware, each once, with the devices that it concerns."""
    names_by_problem: dict[str, list[str]] = {}
    for item in card.frame.all_items:
        for problem in _whole_of(item).problems:
            names_by_problem.setdefault(problem, []).append(item.name)
    problems = [f"{', '.join(names)}: {problem}" for problem, names in names_by_problem.items()]
    return problems if card.is_known or not card.tiles else ["there is no such node", *problems]


def hardware_kind(tile: DeviceTile) -> str:
    """Return the model of a device, or its type, or its driver."""
    return str(tile.attribute(*_KIND_ATTRIBUTES) or tile.id.driver)


def whole_device(tiles: Sequence[DeviceTile]) -> DeviceTile:
    """Of the devices of a piece, the one that consumes most of the counters: the whole of it if that is published."""
    return max(tiles, key=lambda tile: sum(amount.value for amount in tile.counters.values()))


def _hardware(card: NodeCard) -> str:
    if not card.is_node:
        return "devices of several nodes"
    kinds = Counter(hardware_kind(_whole_of(item)) for item in card.frame.all_items)
    return ", ".join(f"{count} \N{MULTIPLICATION SIGN} {kind}" for kind, count in sorted(kinds.items()))


def _whole_of(item: SceneItem) -> DeviceTile:
    return whole_device(item.tiles) if isinstance(item, PartitionedDevice) else item
