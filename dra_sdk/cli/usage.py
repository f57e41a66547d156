"""Who uses which device, and what is left: from ResourceSlices, claims and pods alone. Pure.

Devices of one piece of hardware (a GPU, its partitions, its VFIO sibling) stand together, known by their PCI address.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from dra_sdk.hardware import PCI_BUS_ID
from dra_sdk.model.quantity import Quantity

Place = tuple[str, str]
"""Driver and pool."""

_BARRING: Final = frozenset({"NoSchedule", "NoExecute"})


@dataclass(frozen=True, slots=True)
class Use:
    """One claim that has the device; `consumed` is how much of it, where it is shared."""

    claim: str
    pods: tuple[str, ...]
    admin: bool
    consumed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """One published device. `fits` says whether the counters that it takes from are not used up by others."""

    driver: str
    pool: str
    node: str
    spec: Mapping[str, Any]
    uses: tuple[Use, ...]
    fits: bool

    @property
    def name(self) -> str:
        """Its name in the pool."""
        return str(self.spec["name"])

    @property
    def hardware(self) -> str:
        """What it is a part of, or is: a PCI address where it has one, else its name."""
        return str(self.attribute(PCI_BUS_ID) or self.name)

    @property
    def users(self) -> tuple[Use, ...]:
        """The claims that hold it; who only looks is not one."""
        return tuple(use for use in self.uses if not use.admin)

    @property
    def shared(self) -> bool:
        """Whether several claims may have it."""
        return bool(self.spec.get("allowMultipleAllocations"))

    @property
    def taints(self) -> Sequence[Mapping[str, Any]]:
        """Its taints."""
        return self.spec.get("taints") or ()

    @property
    def partition(self) -> bool:
        """Whether it exists only as a possibility until somebody has it: it takes from counters."""
        return bool(self.spec.get("consumesCounters"))

    @property
    def state(self) -> str:
        """In one or a few words."""
        if self.users:
            return f"shared by {len(self.users)}" if self.shared else "in use"
        if any(taint.get("effect") in _BARRING for taint in self.taints):
            return "tainted"
        return "free" if self.fits else "blocked"

    def attribute(self, name: str) -> Any:
        """An attribute's value by its name, the driver's domain left out or not; None where it has none."""
        attributes = self.spec.get("attributes") or {}
        found = attributes.get(name) or attributes.get(f"{self.driver}/{name}") or {}
        return next(iter(found.values()), None)

    def capacity(self, name: str) -> Quantity | None:
        """A capacity by its name."""
        capacity = self.spec.get("capacity") or {}
        found = capacity.get(name) or capacity.get(f"{self.driver}/{name}")
        return Quantity(str(found["value"])) if found else None

    def consumed(self, name: str) -> Quantity:
        """How much of a capacity the claims that share it have together."""
        amounts = (use.consumed.get(name, use.consumed.get(f"{self.driver}/{name}", 0)) for use in self.users)
        total = sum((Quantity(str(each)).value for each in amounts), Fraction(0))
        return Quantity.of(total, binary=True)


@dataclass(slots=True)
class _Pool:
    generation: int = -1
    node: str = ""
    devices: list[Mapping[str, Any]] = field(default_factory=list)
    counters: dict[tuple[str, str], Fraction] = field(default_factory=dict)


def usage(objects: Iterable[Mapping[str, Any]]) -> list[DeviceUsage]:
    """All devices of the newest generation of each pool, with their users, in the order of the slices."""
    found = list(objects)
    pools = _pools(each["spec"] for each in found if each.get("kind") == "ResourceSlice")
    uses = _uses([each for each in found if each.get("kind") == "ResourceClaim"])
    return [device for place, pool in sorted(pools.items()) for device in _devices(place, pool, uses)]


def _pools(specs: Iterable[Mapping[str, Any]]) -> dict[Place, _Pool]:
    pools: dict[Place, _Pool] = {}
    for spec in specs:
        name, generation = spec["pool"]["name"], int(spec["pool"].get("generation", 0))
        pool = pools.setdefault((spec["driver"], name), _Pool())
        if generation < pool.generation:
            continue
        if generation > pool.generation:
            pools[spec["driver"], name] = pool = _Pool(generation)
        pool.node = pool.node or str(spec.get("nodeName") or "")
        pool.devices += spec.get("devices") or ()
        for counters in spec.get("sharedCounters") or ():
            pool.counters |= dict(_amounts(counters["name"], counters["counters"]))
    return pools


def _uses(claims: Iterable[Mapping[str, Any]]) -> dict[tuple[str, str, str], list[Use]]:
    uses: dict[tuple[str, str, str], list[Use]] = {}
    for claim in claims:
        status, metadata = claim.get("status") or {}, claim["metadata"]
        pods = tuple(str(each["name"]) for each in status.get("reservedFor") or () if each.get("resource") == "pods")
        name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            use = Use(name, pods, bool(result.get("adminAccess")), result.get("consumedCapacity") or {})
            uses.setdefault((result["driver"], result["pool"], result["device"]), []).append(use)
    return uses


def _devices(place: Place, pool: _Pool, uses: Mapping[tuple[str, str, str], list[Use]]) -> Iterator[DeviceUsage]:
    left = dict(pool.counters)
    held = {spec["name"]: tuple(uses.get((*place, spec["name"]), ())) for spec in pool.devices}
    for spec in pool.devices:
        if any(not use.admin for use in held[spec["name"]]):
            for counter, amount in _taken(spec):
                left[counter] = left.get(counter, Fraction(0)) - amount
    for spec in pool.devices:
        fits = all(amount <= left.get(counter, Fraction(0)) for counter, amount in _taken(spec))
        yield DeviceUsage(*place, pool.node, spec, held[spec["name"]], fits)


def _taken(spec: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Fraction]]:
    for each in spec.get("consumesCounters") or ():
        yield from _amounts(each["counterSet"], each["counters"])


def _amounts(counter_set: str, counters: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], Fraction]]:
    for name, amount in counters.items():
        yield (counter_set, name), Quantity(str(amount["value"])).value
