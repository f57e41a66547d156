"""What a picture of a cluster shows: nodes, devices in their alignment frames, claims, and what was not placed."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final

from dra_sdk.hardware.naming import natural_order
from dra_sdk.tools.scheduling.allocator import Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_consumers
from dra_sdk.tools.scheduling.cluster.fragmentation import Piece, hardware_pieces
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot, grouped, object_key
from dra_sdk.tools.scheduling.picture.published_devices import (
    NO_SINGLE_NODE,
    DeviceTile,
    PartitionedDevice,
    PoolCounterSet,
    PublishedDevices,
    partitioned_device,
    published_devices,
)

_ALIGNMENTS: Final = ((("numaNode", "numaNodeID", "numa"), "NUMA node {}"), (("pcieRoot",), "{}"))
"""The attributes by which devices are aligned, and the titles of the frames; the first attribute is the outer one."""
_CounterSetKey = tuple[str, str, str]
"""Driver, pool and counter set."""
SceneItem = DeviceTile | PartitionedDevice


@dataclass(frozen=True, slots=True)
class AlignmentFrame:
    """Devices that are aligned: on one NUMA node, or below one PCIe root.

    title: the NUMA node or PCIe root; empty for the outermost frame.
    items: the devices, and counter sets with their devices.
    frames: the frames inside.
    """

    title: str
    items: tuple[SceneItem, ...]
    frames: tuple[AlignmentFrame, ...] = ()

    @property
    def all_items(self) -> list[SceneItem]:
        """The devices and counter sets of this frame and of the frames inside."""
        return [*self.items, *(item for frame in self.frames for item in frame.all_items)]


@dataclass(frozen=True, slots=True)
class NodeCard:
    """A node, or the devices that several nodes can use.

    name: the name of the node, or which nodes can use the devices.
    is_node: whether it is a node.
    frame: its devices.
    tiles: its devices, in a flat list.
    pods: the pods on the node.
    is_known: False if slices name a node that is not in the snapshot.
    """

    name: str
    is_node: bool
    frame: AlignmentFrame
    tiles: tuple[DeviceTile, ...]
    pods: tuple[ObjectKey, ...] = ()
    is_known: bool = True


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """An allocated claim.

    key: namespace and name.
    color: its number among the claims.
    pods: the names of its consumers.
    devices: its requests and devices.
    """

    key: ObjectKey
    color: int
    pods: tuple[str, ...]
    devices: tuple[tuple[str, DeviceTile], ...]


@dataclass(frozen=True, slots=True)
class NotPlaced:
    """A pod or a claim that was not placed.

    subject: `pod NAME` or `claim NAME`.
    reason: why.
    """

    subject: str
    reason: str


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything that the picture shows.

    cards: the nodes.
    claims: the allocated claims.
    not_placed: the pods and claims that were not placed.
    tiles: all devices.
    driver_pictures: the lines that drivers draw of a node (`dra_top`), by the node's name.
    pieces: the pieces of hardware, and how much of each is free.
    """

    cards: tuple[NodeCard, ...]
    claims: tuple[ClaimRow, ...]
    not_placed: tuple[NotPlaced, ...]
    tiles: tuple[DeviceTile, ...]
    driver_pictures: Mapping[str, Sequence[str]] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()


def in_use(tiles: Sequence[DeviceTile]) -> str:
    """Return `3 of 8 in use`; with partitions among them `3 in use`, since most partitions exclude each other."""
    used = sum(1 for tile in tiles if tile.holders)
    return f"{used} in use" if any(tile.counters for tile in tiles) else f"{used} of {len(tiles)} in use"


def build_scene(
    snapshot: Snapshot,
    not_placed: Sequence[NotPlaced] = (),
    driver_pictures: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> Scene:
    """Return the scene of a snapshot that is already scheduled, with what drivers draw of nodes, by the node's name."""
    inventory = Inventory(snapshot.slices, SchedulerFeatures.of(snapshot.profile), snapshot.rules)
    published = published_devices(inventory, snapshot.claims)
    by_node = grouped(published.tiles, lambda tile: tile.node)
    nodes = [node["metadata"]["name"] for node in snapshot.nodes]
    known = {*nodes, NO_SINGLE_NODE}
    sets = {(counters.driver, counters.pool, counters.name): counters for counters in published.counter_sets}
    pods = grouped(snapshot.pods, lambda pod: (pod.get("spec") or {}).get("nodeName"))
    cards = [_card(name, by_node.get(name, []), sets, tuple(map(object_key, pods.get(name, ())))) for name in nodes]
    cards += [
        replace(_card(f"{name} (no such node)", by_node[name], sets), is_node=False, is_known=False)
        for name in by_node
        if name not in known
    ]
    for name, tiles in grouped(by_node.get(NO_SINGLE_NODE, []), lambda tile: tile.accessible_from).items():
        cards.append(replace(_card(name, tiles, sets), is_node=False))
    return Scene(
        tuple(cards),
        _claim_rows(snapshot, published),
        tuple(not_placed),
        published.tiles,
        driver_pictures,
        tuple(hardware_pieces(snapshot)),
    )


def _card(
    name: str,
    tiles: Sequence[DeviceTile],
    sets: Mapping[_CounterSetKey, PoolCounterSet],
    pods: tuple[ObjectKey, ...] = (),
) -> NodeCard:
    return NodeCard(name, True, _alignment_frame("", _scene_items(tiles, sets), _ALIGNMENTS), tuple(tiles), pods)


def _alignment_frame(
    title: str, items: Sequence[SceneItem], alignments: Sequence[tuple[Sequence[str], str]]
) -> AlignmentFrame:
    """Return devices in frames for these alignments, the frames for later ones also inside those for earlier ones."""
    frames: list[AlignmentFrame] = []
    for index, (names, name) in enumerate(alignments, 1):
        groups, items = _split_by_attribute(items, names, name)
        frames += [_alignment_frame(value, group, alignments[index:]) for value, group in groups]
    return AlignmentFrame(title, tuple(items), tuple(frames))


def _scene_items(tiles: Sequence[DeviceTile], sets: Mapping[_CounterSetKey, PoolCounterSet]) -> list[SceneItem]:
    """Return counter sets, each with the devices that consume from it, and the other devices, in their order."""
    groups = grouped(tiles, lambda tile: _counter_set_of(tile, sets) or id(tile))
    return [group[0] if isinstance(key, int) else partitioned_device(sets[key], group) for key, group in groups.items()]


def _counter_set_of(tile: DeviceTile, sets: Collection[_CounterSetKey]) -> _CounterSetKey | None:
    keys = ((*tile.pool, name) for name, _ in tile.counters)
    return next((key for key in keys if key in sets), None)


def _split_by_attribute(
    items: Sequence[SceneItem], names: Sequence[str], title: str
) -> tuple[list[tuple[str, list[SceneItem]]], list[SceneItem]]:
    """Return items by the value of an attribute, sorted by value, and those without one common value."""
    groups = grouped(items, lambda item: _common_value(item, names))
    rest = groups.pop(None, [])
    framed = sorted(groups.items(), key=lambda group: natural_order(group[0]))
    return [(title.format(value), group) for value, group in framed], rest


def _common_value(item: SceneItem, names: Sequence[str]) -> Any:
    """Return the value that all devices of an item have, else None."""
    tiles = item.tiles if isinstance(item, PartitionedDevice) else (item,)
    values = {_attribute_of(tile, names) for tile in tiles}
    return values.pop() if len(values) == 1 else None


def _attribute_of(tile: DeviceTile, names: Sequence[str]) -> str | None:
    for name, value in tile.attributes.items():
        if name.rpartition("/")[2] in names and isinstance(value, str | int) and value not in {"", -1}:
            return str(value)
    return None


def _claim_rows(snapshot: Snapshot, published: PublishedDevices) -> tuple[ClaimRow, ...]:
    devices: dict[ObjectKey, list[tuple[str, DeviceTile]]] = {}
    for tile in published.tiles:
        for use in tile.uses:
            devices.setdefault(use.claim, []).append((use.request, tile))
    rows = ((claim, object_key(claim)) for claim in snapshot.claims if object_key(claim) in devices)
    return tuple(
        ClaimRow(key, color, tuple(consumer["name"] for consumer in claim_consumers(claim)), tuple(devices[key]))
        for color, (claim, key) in enumerate(rows)
    )
