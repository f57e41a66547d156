"""What a picture of a cluster shows: nodes, devices in their alignment frames, claims, and what was not placed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, Final, TypeVar

from dra_sdk.hardware.naming import natural_order
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator import Inventory, SchedulerFeatures
from dra_sdk.tools.scheduling.cluster.claim_controller import claim_consumers
from dra_sdk.tools.scheduling.cluster.fragmentation import Piece, hardware_pieces
from dra_sdk.tools.scheduling.cluster.snapshot import ObjectKey, Snapshot, object_key
from dra_sdk.tools.scheduling.picture.published_devices import (
    NO_SINGLE_NODE,
    CounterSet,
    DeviceId,
    DeviceTile,
    PartitionedDevice,
    PublishedDevices,
    partitioned_device,
    published_devices,
)

_NUMA_ATTRIBUTES: Final = ("numaNode", "numaNodeID", "numa")
_PCIE_ROOT_ATTRIBUTES: Final = ("pcieRoot",)
_Item = TypeVar("_Item")
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

    @property
    def in_use(self) -> str:
        """How many devices are in use, see `in_use`."""
        return in_use(self.tiles)


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
    by_node: dict[str, list[DeviceTile]] = {}
    for tile in published.tiles:
        by_node.setdefault(tile.node, []).append(tile)
    nodes = [node["metadata"]["name"] for node in snapshot.nodes]
    known = {*nodes, NO_SINGLE_NODE}
    sets = {(counters.driver, counters.pool, counters.name): counters for counters in published.counter_sets}
    pods = dict(_grouped(snapshot.pods, lambda pod: (pod.get("spec") or {}).get("nodeName")))
    cards = [_card(name, by_node.get(name, []), sets, tuple(map(object_key, pods.get(name, ())))) for name in nodes]
    cards += [
        replace(_card(f"{name} (no such node)", by_node[name], sets), is_node=False, is_known=False)
        for name in by_node
        if name not in known
    ]
    for name, tiles in _grouped(by_node.get(NO_SINGLE_NODE, []), lambda tile: tile.accessible_from):
        cards.append(replace(_card(str(name), tiles, sets), is_node=False))
    return Scene(
        tuple(cards),
        _claim_rows(snapshot, published),
        tuple(not_placed),
        published.tiles,
        driver_pictures,
        tuple(hardware_pieces(snapshot)),
    )


def _card(
    name: str, tiles: Sequence[DeviceTile], sets: Mapping[DeviceId, CounterSet], pods: tuple[ObjectKey, ...] = ()
) -> NodeCard:
    return NodeCard(name, True, _alignment_frame(tiles, sets), tuple(tiles), pods)


def _alignment_frame(tiles: Sequence[DeviceTile], sets: Mapping[DeviceId, CounterSet]) -> AlignmentFrame:
    """Return the devices of a node in frames: NUMA nodes, and PCIe roots inside them."""
    items = _scene_items(tiles, sets)
    frames, rest = _split_by_attribute(items, _NUMA_ATTRIBUTES, "NUMA node {}")
    filled = []
    for title, inside in frames:
        below, loose = _split_by_attribute(inside, _PCIE_ROOT_ATTRIBUTES, "{}")
        filled.append(
            AlignmentFrame(title, tuple(loose), tuple(AlignmentFrame(root, tuple(group)) for root, group in below))
        )
    below, loose = _split_by_attribute(rest, _PCIE_ROOT_ATTRIBUTES, "{}")
    return AlignmentFrame("", tuple(loose), (*filled, *(AlignmentFrame(root, tuple(group)) for root, group in below)))


def _scene_items(tiles: Sequence[DeviceTile], sets: Mapping[DeviceId, CounterSet]) -> list[SceneItem]:
    """Return counter sets, each with the devices that consume from it, and the other devices, in their order."""
    consuming: dict[DeviceId, list[DeviceTile]] = {}
    order: list[DeviceTile | DeviceId] = []
    for tile in tiles:
        names = ((*tile.id[:2], name) for name, _ in tile.counters)
        key = next((name for name in names if name in sets), None)
        if key is None:
            order.append(tile)
        elif key in consuming:
            consuming[key].append(tile)
        else:
            consuming[key] = [tile]
            order.append(key)
    return [item if isinstance(item, DeviceTile) else partitioned_device(sets[item], consuming[item]) for item in order]


def _split_by_attribute(
    items: Sequence[SceneItem], names: Sequence[str], title: str
) -> tuple[list[tuple[str, list[SceneItem]]], list[SceneItem]]:
    """Return items by the value of an attribute, sorted by value, and those without one common value."""
    groups = _grouped(items, lambda item: _common_value(item, names))
    named = [group for group in groups if group[0] is not None]
    framed = sorted(named, key=lambda group: natural_order(group[0]))
    rest = [item for value, group in groups if value is None for item in group]
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


def _grouped(items: Iterable[_Item], key: Callable[[_Item], Any]) -> list[tuple[Any, list[_Item]]]:
    groups: dict[Any, list[_Item]] = {}
    for item in items:
        groups.setdefault(key(item), []).append(item)
    return list(groups.items())


def _claim_rows(snapshot: Snapshot, published: PublishedDevices) -> tuple[ClaimRow, ...]:
    devices: dict[ObjectKey, list[tuple[str, DeviceTile]]] = {}
    for tile in published.tiles:
        for use in tile.uses:
            devices.setdefault(use.claim, []).append((use.request, tile))
    rows = ((claim, object_key(claim)) for claim in snapshot.claims if object_key(claim) in devices)
    return tuple(ClaimRow(key, at, _consumer_names(claim), tuple(devices[key])) for at, (claim, key) in enumerate(rows))


def _consumer_names(claim: JSON) -> tuple[str, ...]:
    return tuple(consumer["name"] for consumer in claim_consumers(claim))
