"""What is free in the pools of a driver, as Kubernetes answers a ResourcePoolStatusRequest (KEP-5677).

Pure. The numbers are those of the release: 1.36 counts each allocation, 1.37 each device once, and looks at taints,
partitions and shares. Source: KEP-5677; the controller resourcepoolstatusrequest of Kubernetes 1.36 and 1.37.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.validation.decoding import DEFAULT_LIMIT

INCOMPLETE: Final = "PoolIncomplete:"
"""How 1.37 begins what it says of a pool whose slices are not all there."""
_FIRST_WITH_VIEWS: Final = 37
_REPELLING: Final = frozenset({"NoSchedule", "NoExecute"})
_LONGEST: Final = 256  # bytes of what is wrong with a pool
_MOST: Final = 32  # types of partitions, and capacities
_Counters = dict[tuple[str, str], Fraction]  # what is left, by counter set and counter


@dataclass(frozen=True)
class PoolObjects:
    """What decides what is free.

    slices: the ResourceSlices.
    claims: the ResourceClaims.
    rules: the DeviceTaintRules.
    """

    slices: Sequence[JSON]
    claims: Sequence[JSON]
    rules: Sequence[JSON] = ()


def pool_status(spec: Mapping[str, Any], objects: PoolObjects, profile: ServerProfile, now: str) -> JSON:
    """Return the status that answers a request; `spec` is the request's, `now` the time of the condition (RFC 3339)."""
    pools = sorted(_pools(spec, objects, profile), key=lambda pool: (pool["driver"], pool["poolName"]))
    shown = pools[: spec.get("limit") or DEFAULT_LIMIT]
    wrong = sum("validationError" in pool for pool in shown)
    message = f"Calculated status for {len(shown)} pools" + (f" ({wrong} incomplete)" if wrong else "")
    condition = {"type": "Complete", "status": "True", "reason": "CalculationComplete"}
    status: JSON = {"poolCount": len(pools)}
    if shown:
        status["pools"] = shown
    status["conditions"] = [{**condition, "message": message, "lastTransitionTime": now}]
    return status


def is_incomplete(status: JSON) -> bool:
    """Return whether slices of a pool are missing, so that the controller waits before it answers."""
    return any("totalDevices" not in pool for pool in status.get("pools", ()))


@dataclass
class _Allocated:
    """What claims hold of one pool.

    devices: the name of each allocated device, once for each allocation that counts.
    consumed: what shares take together, by capacity.
    """

    devices: list[str] = field(default_factory=list)
    consumed: dict[str, Quantity] = field(default_factory=dict)


def _pools(spec: Mapping[str, Any], objects: PoolObjects, profile: ServerProfile) -> Iterator[JSON]:
    driver, name = spec["driver"], spec.get("poolName")
    slices = [slice_["spec"] for slice_ in objects.slices if slice_["spec"]["driver"] == driver]
    by_pool: dict[str, list[JSON]] = {}
    for spec_ in slices:
        if not name or spec_["pool"]["name"] == name:
            by_pool.setdefault(spec_["pool"]["name"], []).append(spec_)
    allocated = _allocated(driver, objects.claims, profile)
    rules = objects.rules if profile.enabled("DRADeviceTaintRules") else ()
    for pool, specs in by_pool.items():
        generation = max(_generation(spec_) for spec_ in specs)
        newest = [spec_ for spec_ in specs if _generation(spec_) == generation]
        status: JSON = {"driver": driver, "poolName": pool, "generation": generation}
        nodes = {spec_.get("nodeName") or "" for spec_ in newest}
        if len(nodes) == 1 and nodes != {""}:
            status["nodeName"] = nodes.pop()
        expected = newest[0]["pool"].get("resourceSliceCount", 0)
        if len(newest) < expected:
            prefix = f"{INCOMPLETE} " if profile.minor >= _FIRST_WITH_VIEWS else ""
            observed = f"observed {len(newest)}/{expected} slices at generation {generation}"
            yield {**status, "validationError": _cut(f"{prefix}pool {driver}/{pool} is incomplete: {observed}")}
            continue
        devices = [device for spec_ in newest for device in spec_.get("devices", ())]
        held = allocated.get(pool, _Allocated())
        taken = len(held.devices)
        unavailable = 0
        if profile.minor >= _FIRST_WITH_VIEWS:
            unavailable = sum(_repels(device, pool, driver, rules) for device in devices)
        status |= {
            "resourceSliceCount": len(newest),
            "totalDevices": len(devices),
            "allocatedDevices": taken,
            "availableDevices": max(0, len(devices) - taken - unavailable),
            "unavailableDevices": unavailable,
        }
        if profile.minor >= _FIRST_WITH_VIEWS:
            status |= _views(_PoolView(driver, pool, newest, held), spec.get("defaultPartitionTypeAttribute") or "")
        yield status


def _generation(spec: JSON) -> int:
    return int(spec["pool"].get("generation", 0))


def _allocated(driver: str, claims: Iterable[JSON], profile: ServerProfile) -> dict[str, _Allocated]:
    pools: dict[str, _Allocated] = {}
    counts_devices = profile.minor >= _FIRST_WITH_VIEWS
    for claim in claims:
        allocation = (claim.get("status") or {}).get("allocation") or {}
        for result in (allocation.get("devices") or {}).get("results") or ():
            if result["driver"] != driver or (counts_devices and result.get("adminAccess")):
                continue
            pool = pools.setdefault(result["pool"], _Allocated())
            if not counts_devices or result["device"] not in pool.devices:
                pool.devices.append(result["device"])
            for name, amount in (result.get("consumedCapacity") or {}).items():
                pool.consumed[name] = _sum(pool.consumed.get(name), Quantity(amount))
    return pools


def _repels(device: JSON, pool: str, driver: str, rules: Sequence[JSON]) -> bool:
    """Return whether a taint of the device or of an administrator keeps new claims away, tolerated or not."""
    if any(taint.get("effect") in _REPELLING for taint in device.get("taints", ())):
        return True
    wanted = {"driver": driver, "pool": pool, "device": device["name"]}
    for rule in rules:
        selector = rule["spec"].get("deviceSelector")
        selects = selector is not None and all(selector.get(key) in {None, value} for key, value in wanted.items())
        if selects and rule["spec"]["taint"].get("effect") in _REPELLING:
            return True
    return False


class _ViewError(Exception):
    """A pool has no such view; the message says why."""


@dataclass(frozen=True)
class _PoolView:
    """One pool whose slices are all there, and what claims hold of it."""

    driver: str
    name: str
    specs: Sequence[JSON]
    held: _Allocated

    def __str__(self) -> str:
        return f"pool {self.driver}/{self.name}"

    @property
    def counter_sets(self) -> list[JSON]:
        return [counters for spec in self.specs for counters in spec.get("sharedCounters", ())]


def _views(pool: _PoolView, default_attribute: str) -> JSON:
    """Return the summaries of partitions and shares, and the first thing that is wrong with them."""
    views: JSON = {}
    wrong = ""
    try:
        partitions = _partitions(pool, default_attribute)
    except _ViewError as error:
        partitions, wrong = [], str(error)
    try:
        if shares := _shares(pool):
            views["shareableSummary"] = shares
    except _ViewError as error:
        wrong = wrong or str(error)
    if wrong:
        return {**views, "validationError": _cut(wrong)}
    return {**views, **({"partitionSummary": partitions} if partitions else {})}


def _partitions(pool: _PoolView, default_attribute: str) -> list[JSON]:
    """Return how many partitions there are of each type, and how many more fit into what the counters have left."""
    grouped = list(_grouped(pool, default_attribute))
    if grouped and not pool.counter_sets:
        raise _ViewError(
            f"PartitionTypeMissing: {pool} declares partitionTypeAttribute but publishes no sharedCounters"
        )
    groups: dict[tuple[str, str], list[JSON]] = {}
    for attribute, device in grouped:
        if device.get("consumesCounters"):
            kind = _partition_type(pool, attribute, device)
            alike = groups.setdefault((attribute, kind), [device])
            if _cost(device) != _cost(alike[0]):
                raise _ViewError(
                    f'PartitionCostMismatch: devices of partition type "{kind}" in {pool} consume different counters'
                )
            if device is not alike[0]:
                alike.append(device)
    if len(groups) > _MOST:
        raise _ViewError(
            f"PartitionSummaryOverCap: {pool} has {len(groups)} partition types, exceeding the maximum of {_MOST}"
        )
    left, taken = _left(pool), frozenset(pool.held.devices)
    return [
        {
            "attribute": attribute,
            "type": kind,
            "total": len(devices),
            "allocatable": _fitting([device for device in devices if device["name"] not in taken], left),
        }
        for (attribute, kind), devices in sorted(groups.items())
    ]


def _grouped(pool: _PoolView, default_attribute: str) -> Iterator[tuple[str, JSON]]:
    """Yield each device that has an attribute by which its pool is grouped, after that attribute.

    A slice says so itself; what the request says is for pools of which no slice does.
    """
    declares = any(spec.get("partitionTypeAttribute") for spec in pool.specs)
    for spec in pool.specs:
        if attribute := spec.get("partitionTypeAttribute") or ("" if declares else default_attribute):
            yield from ((attribute, device) for device in spec.get("devices", ()))


def _partition_type(pool: _PoolView, attribute: str, device: JSON) -> str:
    attributes = device.get("attributes", {})
    value = attributes.get(attribute) or attributes.get(attribute.removeprefix(f"{pool.driver}/")) or {}
    if "string" not in value:
        raise _ViewError(
            f'PartitionTypeMissing: device "{device["name"]}" in {pool} does not carry partition type attribute '
            f'"{attribute}"'
        )
    return str(value["string"])


def _cost(device: JSON) -> _Counters:
    return {
        (consumed["counterSet"], name): Quantity(counter["value"]).value
        for consumed in device.get("consumesCounters", ())
        for name, counter in consumed["counters"].items()
    }


def _left(pool: _PoolView) -> _Counters:
    """Return what is left of each counter. A device takes once, however many claims have it."""
    left = {
        (counters["name"], name): Quantity(counter["value"]).value
        for counters in pool.counter_sets
        for name, counter in counters["counters"].items()
    }
    for spec in pool.specs:
        for device in spec.get("devices", ()):
            if device["name"] in pool.held.devices:
                _take(_cost(device), left)
    return left


def _take(cost: _Counters, left: _Counters) -> None:
    for counter in cost.keys() & left.keys():
        left[counter] -= cost[counter]


def _fitting(devices: Iterable[JSON], left: _Counters) -> int:
    """Return how many of the devices fit one after the other."""
    left, count = dict(left), 0
    for device in devices:
        cost = _cost(device)
        if all(counter in left and left[counter] >= amount for counter, amount in cost.items()):
            _take(cost, left)
            count += 1
    return count


def _shares(pool: _PoolView) -> JSON:
    """Return what is free of the devices that several claims may have; nothing if there are none."""
    shared = [
        device for spec in pool.specs for device in spec.get("devices", ()) if device.get("allowMultipleAllocations")
    ]
    if not shared:
        return {}
    total: dict[str, Quantity] = {}
    for device in shared:
        for name, capacity in device.get("capacity", {}).items():
            total[name] = _sum(total.get(name), Quantity(capacity["value"]))
    if len(total) > _MOST:
        raise _ViewError(
            f"ShareableSummaryOverCap: {pool} has {len(total)} shareable capacity keys, "
            f"exceeding the maximum of {_MOST}"
        )
    used = sum(device["name"] in pool.held.devices for device in shared)
    summary: JSON = {"fullyAvailableDevices": len(shared) - used, "partiallyAvailableDevices": used}
    if total:
        summary["capacity"] = [_share(name, total[name], pool.held.consumed.get(name)) for name in sorted(total)]
    return summary


def _share(name: str, total: Quantity, consumed: Quantity | None) -> JSON:
    taken = consumed or Quantity(0)
    left = _like(total, max(Fraction(0), total.value - taken.value))
    return {"name": name, "total": str(total), "consumed": str(taken), "available": str(left)}


def _sum(former: Quantity | None, amount: Quantity) -> Quantity:
    """Add, in the notation of the first amount that is not zero, as Go's Quantity does."""
    if former is None or not former.value:
        return amount
    return _like(former, former.value + amount.value)


def _like(amount: Quantity, value: Fraction) -> Quantity:
    made = Quantity.of(value, binary=amount.binary)
    made.exponent = amount.exponent
    return made


def _cut(text: str) -> str:
    return text.encode()[:_LONGEST].decode(errors="ignore")
