"""The devices of a snapshot as a picture shows them: the newest generation of each pool, who uses what, and where.

Source: resource.k8s.io/v1 ResourceSliceSpec (node selection, sharedCounters), Device, DeviceRequestAllocationResult.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator import Inventory
from dra_sdk.tools.scheduling.cluster.names import Key, key_of

DeviceId = tuple[str, str, str]
"""Driver, pool and device."""
ANYWHERE = ""
"""The place of devices that are on no single node."""


@dataclass(frozen=True, slots=True)
class Use:
    """A claim's use of a device; `consumed` is its part of each capacity of a shared one."""

    claim: Key
    request: str
    admin: bool = False
    consumed: Mapping[str, Quantity] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Tile:
    """A device: where it is, what it is, and who uses it."""

    id: DeviceId
    place: str
    reach: str
    attributes: Mapping[str, Any]
    capacity: Mapping[str, Quantity]
    shared: bool
    taints: tuple[str, ...]
    counters: Mapping[tuple[str, str], Quantity]
    uses: tuple[Use, ...]
    note: str = ""

    @property
    def name(self) -> str:
        """The device's name."""
        return self.id[2]

    @property
    def holders(self) -> list[Use]:
        """The uses that keep others out, which those of administrators do not."""
        return [each for each in self.uses if not each.admin]


@dataclass(frozen=True, slots=True)
class CounterSet:
    """Counters that the devices of one pool share, by name."""

    driver: str
    pool: str
    name: str
    counters: Mapping[str, Quantity]


@dataclass(frozen=True, slots=True)
class Pools:
    """All devices and counter sets, in the order of the slices."""

    tiles: tuple[Tile, ...]
    sets: tuple[CounterSet, ...]


def pools(inventory: Inventory, claims: Iterable[JSON]) -> Pools:
    """What is published, with the taints of rules, and what the allocated claims use."""
    uses = _uses(claims)
    kept = _newest(each.json for each in inventory.slices)
    notes = {
        (each.driver, each.pool): f"{each.kind} pool: {each.reason}"
        for each in inventory.problems
        if each.kind != "obsolete"
    }
    tiles = [tile for each in kept for tile in _tiles(each["spec"], uses, notes)]
    return Pools(tuple(tiles), tuple(found for each in kept for found in _sets(each["spec"])))


def _uses(claims: Iterable[JSON]) -> dict[DeviceId, list[Use]]:
    found: dict[DeviceId, list[Use]] = {}
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            consumed = {name: Quantity(each) for name, each in (result.get("consumedCapacity") or {}).items()}
            use = Use(key_of(claim), result["request"], bool(result.get("adminAccess")), consumed)
            found.setdefault((result["driver"], result["pool"], result["device"]), []).append(use)
    return found


def _newest(slices: Iterable[JSON]) -> list[JSON]:
    """The slices of the newest generation of each pool."""
    by_pool: dict[tuple[str, str], list[JSON]] = {}
    for each in slices:
        by_pool.setdefault(_pool(each["spec"]), []).append(each)
    newest = {name: max(each["spec"]["pool"]["generation"] for each in group) for name, group in by_pool.items()}
    return [
        each for name, group in by_pool.items() for each in group if each["spec"]["pool"]["generation"] == newest[name]
    ]


def _pool(spec: JSON) -> tuple[str, str]:
    return spec["driver"], spec["pool"]["name"]


def _tiles(spec: JSON, uses: Mapping[DeviceId, list[Use]], notes: Mapping[tuple[str, str], str]) -> Iterator[Tile]:
    for device in spec.get("devices") or ():
        where = device if spec.get("perDeviceNodeSelection") else spec
        name = (*_pool(spec), device["name"])
        yield Tile(
            name,
            where.get("nodeName") or ANYWHERE,
            "" if where.get("nodeName") else "every node" if where.get("allNodes") else _selected(where),
            {key: _scalar(value) for key, value in (device.get("attributes") or {}).items()},
            {key: Quantity(value["value"]) for key, value in (device.get("capacity") or {}).items()},
            bool(device.get("allowMultipleAllocations")),
            tuple(map(_taint, device.get("taints") or ())),
            _counters(device),
            tuple(uses.get(name, ())),
            notes.get(_pool(spec), ""),
        )


def _selected(where: JSON) -> str:
    """A node selector in a few words."""
    terms = ((where.get("nodeSelector") or {}).get("nodeSelectorTerms")) or ()
    kinds = ("matchExpressions", "matchFields")
    rules = [rule for term in terms for each in kinds for rule in term.get(each) or ()]
    parts = [f"{each['key']} {each['operator']} {','.join(each.get('values') or ())}".rstrip() for each in rules]
    return "nodes where " + " or ".join(parts)


def _scalar(value: JSON) -> Any:
    return next(iter(value.values()), None)


def _taint(taint: JSON) -> str:
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def _counters(device: JSON) -> dict[tuple[str, str], Quantity]:
    return {
        (each["counterSet"], name): Quantity(counter["value"])
        for each in device.get("consumesCounters") or ()
        for name, counter in (each.get("counters") or {}).items()
    }


def _sets(spec: JSON) -> Iterator[CounterSet]:
    for each in spec.get("sharedCounters") or ():
        counters = {name: Quantity(counter["value"]) for name, counter in each["counters"].items()}
        yield CounterSet(*_pool(spec), each["name"], counters)
