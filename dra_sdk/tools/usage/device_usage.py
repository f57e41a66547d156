"""Which claims use which device, from ResourceSlices and claims alone.

Devices of one piece of hardware (a GPU, its partitions, its VFIO function) belong together by their PCI address, or
because they consume the same counter set.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from dra_sdk.hardware import PCI_BUS_ID
from dra_sdk.model.quantity import Quantity
from dra_sdk.node.health.unhealthy_store import DEFAULT_TAINT
from dra_sdk.texts import counted

PoolKey = tuple[str, str]
"""Driver and pool."""
CounterKey = tuple[str, str]
"""Counter set and counter."""
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
UNHEALTHY: Final = f"/{DEFAULT_TAINT}"
"""The end of the key of a taint that the SDK puts on unhealthy devices."""


@dataclass(frozen=True, slots=True)
class Use:
    """A device in the allocation of one claim.

    claim: namespace and name.
    pods: the pods that use the claim.
    admin: whether it is for admin access, which does not hold the device.
    consumed: the consumed capacity by name, for a shared device.
    """

    claim: str
    pods: tuple[str, ...]
    admin: bool
    consumed: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """One published device.

    driver: name of the driver.
    pool: name of the pool.
    node: name of the node; empty for a pool without one.
    spec: the device as in the slice.
    uses: the claims that have it.
    fits: whether the counters that it consumes have enough left.
    hardware: the hardware that it is, or is a part of: a PCI address, a counter set, or its own name.
    is_part: whether it is a part of its hardware.
    """

    driver: str
    pool: str
    node: str
    spec: Mapping[str, Any]
    uses: tuple[Use, ...]
    fits: bool
    hardware: str
    is_part: bool

    @property
    def name(self) -> str:
        """Its name in the pool."""
        return str(self.spec["name"])

    @property
    def place(self) -> str:
        """Its node, or its pool if that has no node."""
        return self.node or self.pool

    @property
    def holders(self) -> tuple[Use, ...]:
        """The uses that hold it."""
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
    def unhealthy(self) -> bool:
        """Whether it has a taint of its driver that keeps pods away."""
        return any(map(self.tells_health, self.taints))

    def tells_health(self, taint: Mapping[str, Any]) -> bool:
        """Return whether a taint says that the device is unhealthy: its key begins with the driver's name."""
        key = str(taint.get("key", ""))
        return key.endswith(UNHEALTHY) or (key.startswith(f"{self.driver}/") and taint.get("effect") in _REPELLING)

    @property
    def consumes_counters(self) -> bool:
        """Whether it is one of several ways to divide its hardware."""
        return bool(self.spec.get("consumesCounters"))

    @property
    def state(self) -> str:
        """`in use`, `shared by N`, `tainted`, `free` or `blocked`."""
        if self.holders:
            exclusive = not self.shared or (len(self.holders) == 1 and self._has_all_of_a_capacity)
            return "in use" if exclusive else f"shared by {len(self.holders)}"
        if any(taint.get("effect") in _REPELLING for taint in self.taints):
            return "tainted"
        return "free" if self.fits else "blocked"

    @property
    def _has_all_of_a_capacity(self) -> bool:
        """Whether its holders have all of one of its capacities, so that no other claim gets a share."""
        totals = {name: self.capacity(name) for name in self.spec.get("capacity") or ()}
        return any(total is not None and self.consumed(name) >= total for name, total in totals.items())

    def attribute(self, name: str) -> Any:
        """Return the value of an attribute, with or without the driver's domain; None if it has none."""
        return _attribute(self.spec, self.driver, name)

    def capacity(self, name: str) -> Quantity | None:
        """Return a capacity, with or without the driver's domain; None if it has none."""
        capacity = self.spec.get("capacity") or {}
        amount = capacity.get(name) or capacity.get(f"{self.driver}/{name}")
        return Quantity(str(amount["value"])) if amount else None

    def consumed(self, name: str) -> Quantity:
        """Return how much of a capacity its holders consume together."""
        amounts = (use.consumed.get(name, use.consumed.get(f"{self.driver}/{name}", 0)) for use in self.holders)
        total = sum((Quantity(str(amount)).value for amount in amounts), Fraction(0))
        return Quantity.of(total, binary=True)


@dataclass(slots=True)
class _Pool:
    generation: int = -1
    node: str = ""
    devices: list[Mapping[str, Any]] = field(default_factory=list)
    counters: dict[CounterKey, Fraction] = field(default_factory=dict)


def device_usage(objects: Iterable[Mapping[str, Any]]) -> list[DeviceUsage]:
    """Return the devices of each pool's latest generation with the claims that have them, ordered as the slices are."""
    listed = list(objects)
    pools = _pools(obj["spec"] for obj in listed if obj.get("kind") == "ResourceSlice")
    uses = _uses([obj for obj in listed if obj.get("kind") == "ResourceClaim"])
    return [device for key, pool in sorted(pools.items()) for device in _devices(key, pool, uses)]


def _pools(specs: Iterable[Mapping[str, Any]]) -> dict[PoolKey, _Pool]:
    pools: dict[PoolKey, _Pool] = {}
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
    """Return the uses by driver, pool and device."""
    uses: dict[tuple[str, str, str], list[Use]] = {}
    for claim in claims:
        status, metadata = claim.get("status") or {}, claim["metadata"]
        pods = tuple(str(user["name"]) for user in status.get("reservedFor") or () if user.get("resource") == "pods")
        name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            use = Use(name, pods, bool(result.get("adminAccess")), result.get("consumedCapacity") or {})
            uses.setdefault((result["driver"], result["pool"], result["device"]), []).append(use)
    return uses


def _devices(key: PoolKey, pool: _Pool, uses: Mapping[tuple[str, str, str], list[Use]]) -> Iterator[DeviceUsage]:
    left, addresses = dict(pool.counters), _addresses(pool.devices, key[0])
    largest: dict[CounterKey, Fraction] = {}
    for spec in pool.devices:
        for counter, amount in _consumed_counters(spec):
            largest[counter] = max(amount, largest.get(counter, amount))
    uses_by_name = {spec["name"]: tuple(uses.get((*key, spec["name"]), ())) for spec in pool.devices}
    for spec in pool.devices:
        if any(not use.admin for use in uses_by_name[spec["name"]]):
            for counter, amount in _consumed_counters(spec):
                left[counter] = left.get(counter, Fraction(0)) - amount
    for spec in pool.devices:
        consumed = dict(_consumed_counters(spec))
        fits = all(amount <= left.get(counter, Fraction(0)) for counter, amount in consumed.items())
        hardware = addresses.get(_hardware_key(spec, key[0]), _hardware_key(spec, key[0]))
        is_part = _is_part(spec, key[0], consumed, largest)
        yield DeviceUsage(*key, pool.node, spec, uses_by_name[spec["name"]], fits, hardware, is_part)


def _addresses(specs: Iterable[Mapping[str, Any]], driver: str) -> dict[str, str]:
    """Return the PCI address of the hardware with each counter set, if a device that consumes from it has one."""
    addresses: dict[str, str] = {}
    for spec in specs:
        address = _attribute(spec, driver, PCI_BUS_ID)
        for consumption in spec.get("consumesCounters") or () if address else ():
            addresses.setdefault(str(consumption["counterSet"]), str(address))
    return addresses


def _hardware_key(spec: Mapping[str, Any], driver: str) -> str:
    """Return what the devices of one piece of hardware share: its address, else the counter set, else the name."""
    if address := _attribute(spec, driver, PCI_BUS_ID):
        return str(address)
    return next((str(use["counterSet"]) for use in spec.get("consumesCounters") or ()), str(spec["name"]))


def _is_part(
    spec: Mapping[str, Any],
    driver: str,
    consumed: Mapping[CounterKey, Fraction],
    largest: Mapping[CounterKey, Fraction],
) -> bool:
    """Return whether a device is a part of its hardware: it names a parent, or others use more of its counter sets."""
    if _attribute(spec, driver, "parentUUID") or _attribute(spec, driver, "parentPciAddr"):
        return True
    sets = {counter_set for counter_set, _ in consumed}
    return any(consumed.get(key, 0) < amount for key, amount in largest.items() if key[0] in sets)


def _attribute(spec: Mapping[str, Any], driver: str, name: str) -> Any:
    attributes = spec.get("attributes") or {}
    attribute = attributes.get(name) or attributes.get(f"{driver}/{name}") or {}
    return next(iter(attribute.values()), None)


def _consumed_counters(spec: Mapping[str, Any]) -> Iterator[tuple[CounterKey, Fraction]]:
    for consumption in spec.get("consumesCounters") or ():
        yield from _amounts(consumption["counterSet"], consumption["counters"])


def _amounts(counter_set: str, counters: Mapping[str, Any]) -> Iterator[tuple[CounterKey, Fraction]]:
    for name, amount in counters.items():
        yield (counter_set, name), Quantity(str(amount["value"])).value


def unknown_devices(objects: Iterable[Mapping[str, Any]], drivers: Collection[str]) -> list[tuple[str, str]]:
    """Return the devices of these drivers that claims hold and no slice has: `driver/pool/device`, and the claim."""
    listed = list(objects)
    known = {(device.driver, device.pool, device.name) for device in device_usage(listed)}
    uses = _uses([obj for obj in listed if obj.get("kind") == "ResourceClaim"])
    unknown = [key for key in uses if key[0] in drivers and key not in known]
    return [("/".join(key), use.claim) for key in unknown for use in uses[key]]


def usage_summary(devices: Sequence[DeviceUsage]) -> str:
    """Return the last line."""
    claims = {use.claim for device in devices for use in device.uses}
    pieces = {(device.driver, device.pool, device.hardware) for device in devices}
    used = {(device.driver, device.pool, device.hardware) for device in devices if device.holders}
    unhealthy = sum(device.unhealthy for device in devices)
    return (
        f"{counted(len(devices), 'device')} on {counted(len(pieces), 'piece')} of hardware, {len(used)} in use; "
        f"{counted(len(claims), 'claim')}; {unhealthy} unhealthy"
    )
