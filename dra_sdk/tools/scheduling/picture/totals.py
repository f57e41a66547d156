"""How much hardware of each kind there is, how much of it is free as a whole, and how scattered the rest is."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Final

from dra_sdk.tools.scheduling.picture.published_devices import DeviceTile, PartitionedDevice
from dra_sdk.tools.scheduling.picture.scene import AlignmentFrame, NodeCard, SceneItem

_KIND_ATTRIBUTES: Final = ("productName", "model", "modelName", "type")
_PERCENT: Final = 100


@dataclass(slots=True)
class HardwareTotal:
    """The hardware of one kind: devices that are not partitions, and counter sets with their partitions.

    kind: the model, or what comes closest.
    pieces: how many there are.
    free: how many are free as a whole.
    partly: how many are in use in part, and have something left.
    unavailable: how many are tainted or in an incomplete pool.
    """

    kind: str
    pieces: int = 0
    free: int = 0
    partly: int = 0
    unavailable: int = 0
    _left: Fraction = field(default_factory=Fraction)

    @property
    def used(self) -> int:
        """How many are in use, with nothing left."""
        return self.pieces - self.free - self.partly - self.unavailable

    @property
    def fragmentation(self) -> int:
        """The percentage of what is free that is on hardware which is partly in use; 0 if nothing is free."""
        free = self.free + self._left
        return round(_PERCENT * self._left / free) if free else 0

    def add(self, item: SceneItem) -> None:
        """Count one piece of hardware."""
        left = free_share(item)
        self.pieces += 1
        if is_unavailable(item):
            self.unavailable += 1
        elif not _holders(item):
            self.free += 1
        elif left:
            self.partly += 1
            self._left += left


def hardware_totals(cards: Iterable[NodeCard]) -> list[HardwareTotal]:
    """The totals of all cards by kind, in the order in which the kinds occur."""
    found: dict[str, HardwareTotal] = {}
    for card in cards:
        for item in frame_items(card.frame):
            kind = hardware_kind(item)
            found.setdefault(kind, HardwareTotal(kind)).add(item)
    return list(found.values())


@dataclass(frozen=True, slots=True)
class CardGroup:
    """Nodes with the same number of devices of each kind.

    hardware: the number and the kind, for each kind.
    cards: the nodes.
    """

    hardware: str
    cards: tuple[NodeCard, ...]


def like_nodes(cards: Iterable[NodeCard]) -> list[CardGroup]:
    """The nodes that have devices, by their hardware; the devices that several nodes share are a group of their own."""
    groups: dict[str, list[NodeCard]] = {}
    for card in cards:
        if card.tiles:
            groups.setdefault(_hardware(card) if card.is_node else "devices of several nodes", []).append(card)
    return [CardGroup(hardware, tuple(found)) for hardware, found in groups.items()]


def card_problems(card: NodeCard) -> list[str]:
    """What is wrong with a node's hardware, each once, with the devices that it concerns."""
    found: dict[str, list[str]] = {}
    for item in frame_items(card.frame):
        for problem in _problems(item):
            found.setdefault(problem, []).append(item.name)
    problems = [f"{', '.join(names)}: {problem}" for problem, names in found.items()]
    return problems if card.is_known or not card.tiles else ["there is no such node", *problems]


def frame_items(frame: AlignmentFrame) -> Iterator[SceneItem]:
    """The devices and counter sets of a frame and of the frames inside."""
    yield from frame.items
    for each in frame.frames:
        yield from frame_items(each)


def hardware_kind(item: SceneItem) -> str:
    """The model of a device, or its type, or its driver."""
    tile = whole_device(item) if isinstance(item, PartitionedDevice) else item
    named = {name.rpartition("/")[2]: value for name, value in tile.attributes.items()}
    return str(next((named[each] for each in _KIND_ATTRIBUTES if named.get(each)), tile.id[0]))


def whole_device(item: PartitionedDevice) -> DeviceTile:
    """The device that consumes most of the counter set, which is the whole of it if that is published."""
    return max(item.tiles, key=lambda each: sum(amount.value for amount in each.counters.values()))


def is_unavailable(item: SceneItem) -> bool:
    """Whether a taint or an incomplete pool keeps claims away, from the whole of partitioned hardware."""
    return any(_problems(item))


def free_share(item: SceneItem) -> Fraction:
    """How much of a piece of hardware no claim holds, from 0 to 1: of the counter or capacity that is shortest."""
    if isinstance(item, PartitionedDevice):
        shares = [Fraction(each.left.value) / each.total.value for each in item.bars if each.total.value]
        shares += [Fraction(each.cells.count(None), len(each.cells)) for each in item.strips]
        return min(shares, default=Fraction(0)) if item.possible else Fraction(0)
    if not item.holders:
        return Fraction(1)
    if not item.shared:
        return Fraction(0)
    shares = []
    for name, total in item.capacity.items():
        held = sum((use.consumed[name].value for use in item.uses if name in use.consumed), Fraction(0))
        shares.append(1 - held / total.value if total.value else Fraction(0))
    return max(min(shares, default=Fraction(0)), Fraction(0))


def _hardware(card: NodeCard) -> str:
    kinds = Counter(hardware_kind(each) for each in frame_items(card.frame))
    return ", ".join(f"{count} \N{MULTIPLICATION SIGN} {kind}" for kind, count in sorted(kinds.items()))


def _holders(item: SceneItem) -> bool:
    return any(each.holders for each in (item.tiles if isinstance(item, PartitionedDevice) else (item,)))


def _problems(item: SceneItem) -> list[str]:
    tile = whole_device(item) if isinstance(item, PartitionedDevice) else item
    return [f"taint {each}" for each in tile.taints] + ([tile.note] if tile.note else [])
