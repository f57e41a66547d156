"""Which claims use which device, from ResourceSlices and claims alone, and the same as rows of a table.

Devices of one piece of hardware (a GPU, its partitions, its VFIO function) belong together by their PCI address.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import groupby
from typing import Any, Final

from dra_sdk.cli.output import counted
from dra_sdk.hardware import PCI_BUS_ID
from dra_sdk.model.quantity import Quantity
from dra_sdk.node.health.unhealthy_store import DEFAULT_TAINT

PoolKey = tuple[str, str]
"""Driver and pool."""
CounterKey = tuple[str, str]
"""Counter set and counter."""
HEADINGS: Final = ("NODE", "DEVICE", "TYPE", "WHAT", "MEMORY", "HEALTH", "STATE", "CLAIM", "PODS")
_OPTIONAL: Final = frozenset({"TYPE", "WHAT", "MEMORY"})
"""Columns for attributes and a capacity that drivers of GPUs and the like publish."""
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_UNHEALTHY: Final = f"/{DEFAULT_TAINT}"
_NONE: Final = "-"
_WHAT: Final = ("profile", "partitionProfile", "productName", "model")
"""The attributes that say what a device is; the first one that exists is shown."""
_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20))
_NO_DECIMALS_FROM: Final = 10


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
    """

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
    def place(self) -> str:
        """Its node, or its pool if that has no node."""
        return self.node or self.pool

    @property
    def hardware(self) -> str:
        """The hardware that it is, or is a part of: a PCI address, or its own name if it has none."""
        return str(self.attribute(PCI_BUS_ID) or self.name)

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
        """Whether a taint says that the device is unhealthy: its key begins with the driver's name."""
        key = str(taint.get("key", ""))
        return key.endswith(_UNHEALTHY) or (key.startswith(f"{self.driver}/") and taint.get("effect") in _REPELLING)

    @property
    def consumes_counters(self) -> bool:
        """Whether it is one of several ways to divide its hardware."""
        return bool(self.spec.get("consumesCounters"))

    @property
    def is_part(self) -> bool:
        """Whether it is a part of its hardware."""
        return bool(self.attribute("parentUUID") or self.attribute("parentPciAddr"))

    @property
    def state(self) -> str:
        """`in use`, `shared by N`, `tainted`, `free` or `blocked`."""
        if self.holders:
            return f"shared by {len(self.holders)}" if self.shared else "in use"
        if any(taint.get("effect") in _REPELLING for taint in self.taints):
            return "tainted"
        return "free" if self.fits else "blocked"

    def attribute(self, name: str) -> Any:
        """The value of an attribute, with or without the driver's domain; None if it has none."""
        attributes = self.spec.get("attributes") or {}
        found = attributes.get(name) or attributes.get(f"{self.driver}/{name}") or {}
        return next(iter(found.values()), None)

    def capacity(self, name: str) -> Quantity | None:
        """A capacity, with or without the driver's domain; None if it has none."""
        capacity = self.spec.get("capacity") or {}
        found = capacity.get(name) or capacity.get(f"{self.driver}/{name}")
        return Quantity(str(found["value"])) if found else None

    def consumed(self, name: str) -> Quantity:
        """How much of a capacity its holders consume together."""
        amounts = (use.consumed.get(name, use.consumed.get(f"{self.driver}/{name}", 0)) for use in self.holders)
        total = sum((Quantity(str(each)).value for each in amounts), Fraction(0))
        return Quantity.of(total, binary=True)


@dataclass(slots=True)
class _Pool:
    generation: int = -1
    node: str = ""
    devices: list[Mapping[str, Any]] = field(default_factory=list)
    counters: dict[CounterKey, Fraction] = field(default_factory=dict)


def device_usage(objects: Iterable[Mapping[str, Any]]) -> list[DeviceUsage]:
    """All devices of the latest generation of each pool with the claims that have them, in the order of the slices."""
    found = list(objects)
    pools = _pools(each["spec"] for each in found if each.get("kind") == "ResourceSlice")
    uses = _uses([each for each in found if each.get("kind") == "ResourceClaim"])
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
    """The uses by driver, pool and device."""
    uses: dict[tuple[str, str, str], list[Use]] = {}
    for claim in claims:
        status, metadata = claim.get("status") or {}, claim["metadata"]
        pods = tuple(str(each["name"]) for each in status.get("reservedFor") or () if each.get("resource") == "pods")
        name = f"{metadata.get('namespace', 'default')}/{metadata['name']}"
        for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
            use = Use(name, pods, bool(result.get("adminAccess")), result.get("consumedCapacity") or {})
            uses.setdefault((result["driver"], result["pool"], result["device"]), []).append(use)
    return uses


def _devices(key: PoolKey, pool: _Pool, uses: Mapping[tuple[str, str, str], list[Use]]) -> Iterator[DeviceUsage]:
    left = dict(pool.counters)
    uses_by_name = {spec["name"]: tuple(uses.get((*key, spec["name"]), ())) for spec in pool.devices}
    for spec in pool.devices:
        if any(not use.admin for use in uses_by_name[spec["name"]]):
            for counter, amount in _consumed_counters(spec):
                left[counter] = left.get(counter, Fraction(0)) - amount
    for spec in pool.devices:
        fits = all(amount <= left.get(counter, Fraction(0)) for counter, amount in _consumed_counters(spec))
        yield DeviceUsage(*key, pool.node, spec, uses_by_name[spec["name"]], fits)


def _consumed_counters(spec: Mapping[str, Any]) -> Iterator[tuple[CounterKey, Fraction]]:
    for each in spec.get("consumesCounters") or ():
        yield from _amounts(each["counterSet"], each["counters"])


def _amounts(counter_set: str, counters: Mapping[str, Any]) -> Iterator[tuple[CounterKey, Fraction]]:
    for name, amount in counters.items():
        yield (counter_set, name), Quantity(str(amount["value"])).value


# -- the table


def usage_rows(devices: Sequence[DeviceUsage], *, all_partitions: bool = False) -> list[list[str]]:
    """A row for each device, and one for each further claim of it.

    Partitions without claims are counted in one row for their hardware, unless `all_partitions` is set.
    """
    found = []
    ordered = sorted(devices, key=lambda each: (each.place, each.driver, each.pool, each.hardware))
    for _, parts in groupby(ordered, key=lambda each: (each.driver, each.pool, each.hardware)):
        found += list(_hardware_rows(list(parts), all_partitions))
    return found


def usage_table(devices: Sequence[DeviceUsage], *, all_partitions: bool = False) -> tuple[list[str], list[list[str]]]:
    """The headings and the rows, without what no device has of TYPE, WHAT and MEMORY."""
    rows = usage_rows(devices, all_partitions=all_partitions)
    kept = [
        column
        for column, heading in enumerate(HEADINGS)
        if heading not in _OPTIONAL or any(row[column] not in {_NONE, ""} for row in rows)
    ]
    return [HEADINGS[column] for column in kept], [[row[column] for column in kept] for row in rows]


def unknown_devices(objects: Iterable[Mapping[str, Any]], drivers: Collection[str]) -> list[tuple[str, str]]:
    """The devices of these drivers that claims hold and no slice has: `driver/pool/device`, and the claim."""
    found = list(objects)
    known = {(each.driver, each.pool, each.name) for each in device_usage(found)}
    uses = _uses([each for each in found if each.get("kind") == "ResourceClaim"])
    unknown = [key for key in uses if key[0] in drivers and key not in known]
    return [("/".join(key), use.claim) for key in unknown for use in uses[key]]


def usage_summary(devices: Sequence[DeviceUsage]) -> str:
    """The last line."""
    claims = {use.claim for device in devices for use in device.uses}
    pieces = {(device.driver, device.pool, device.hardware) for device in devices}
    used = {(device.driver, device.pool, device.hardware) for device in devices if device.holders}
    unhealthy = sum(device.unhealthy for device in devices)
    return (
        f"{counted(len(devices), 'device')} on {counted(len(pieces), 'piece')} of hardware, {len(used)} in use; "
        f"{counted(len(claims), 'claim')}; {unhealthy} unhealthy"
    )


def _hardware_rows(devices: list[DeviceUsage], all_partitions: bool) -> Iterator[list[str]]:
    """The rows of one piece of hardware: whole devices first, then its parts, indented."""
    whole = [each for each in devices if not each.is_part]
    parts = [each for each in devices if each.is_part]
    if not whole and len(parts) > 1:
        first = parts[0]
        yield [first.place, first.hardware, _NONE, str(first.attribute("productName") or _NONE), *[_NONE] * 5]
    for each in whole:
        yield from _device_rows(each, "")
    counted_parts = [
        each for each in parts if each.consumes_counters and not each.uses and not each.taints and not all_partitions
    ]
    indent = "  " if len(devices) > 1 else ""
    for each in parts:
        if each not in counted_parts:
            yield from _device_rows(each, indent)
    if counted_parts:
        states = Counter(each.state for each in counted_parts)
        text = ", ".join(f"{count} {state}" for state, count in sorted(states.items(), reverse=True))
        name = f"{indent}{len(counted_parts)} more"
        yield [counted_parts[0].place, name, *[_NONE] * 4, text, _NONE, _NONE]


def _device_rows(device: DeviceUsage, indent: str) -> Iterator[list[str]]:
    cells = [
        device.place,
        indent + device.name,
        str(device.attribute("type") or _NONE),
        str(next((value for name in _WHAT if (value := device.attribute(name))), _NONE)),
        _memory(device),
        _health(device),
        device.state,
    ]
    yield [*cells, *(_use_cells(device.uses[0]) if device.uses else (_NONE, _NONE))]
    for use in device.uses[1:]:
        yield [""] * len(cells) + list(_use_cells(use))


def _use_cells(use: Use) -> tuple[str, str]:
    return use.claim + (" (admin)" if use.admin else ""), ", ".join(use.pods) or _NONE


def _memory(device: DeviceUsage) -> str:
    total = device.capacity("memory")
    if total is None:
        return _NONE
    return f"{_rounded(device.consumed('memory'))}/{_rounded(total)}" if device.shared else _rounded(total)


def _rounded(amount: Quantity) -> str:
    """In the largest unit of which there is at least one, with one decimal below 10."""
    for unit, size in _UNITS:
        number = float(amount.value / size)
        if number >= 1:
            text = f"{number:.1f}" if number < _NO_DECIMALS_FROM else f"{number:.0f}"
            return text.removesuffix(".0") + unit
    return str(amount)


def _health(device: DeviceUsage) -> str:
    """Unhealthy since when and why, by the driver's taints; then the other taints."""
    first: list[str] = []
    others: list[str] = []
    for taint in device.taints:
        key = str(taint.get("key"))
        value = f"={taint['value']}" if taint.get("value") else ""
        if device.tells_health(taint):
            why = "" if key.endswith(_UNHEALTHY) else f" ({key.rpartition('/')[2]}{value})"
            first.append(f"unhealthy since {taint.get('timeAdded', 'an unknown time')}{why}")
        else:
            others.append(f"{key}{value}:{taint.get('effect')}")
    return ", ".join([*first, *others]) or "ok"
