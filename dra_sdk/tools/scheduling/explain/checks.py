"""What a device must meet besides the selectors: tolerated taints, being free, enough capacity and counters left."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.scheduling.allocator import SKIPS_OPERATIONS, AllocationError, DeviceId
from dra_sdk.tools.scheduling.allocator.amounts import UNIT
from dra_sdk.tools.scheduling.allocator.constraints import attribute_of, value_of
from dra_sdk.tools.scheduling.allocator.counters import Counters
from dra_sdk.tools.scheduling.allocator.devices import CounterId
from dra_sdk.tools.scheduling.allocator.groups import Groups
from dra_sdk.tools.scheduling.allocator.nodes import declares
from dra_sdk.tools.scheduling.allocator.pools import Candidate, Pool
from dra_sdk.tools.scheduling.allocator.requests import Request
from dra_sdk.tools.scheduling.cluster.names import key_of, shown
from dra_sdk.tools.scheduling.explain.funnel import Reason, Test
from dra_sdk.tools.scheduling.explain.setting import Setting, in_short
from dra_sdk.tools.scheduling.tolerations import untolerated

_TAKERS: Final = 3


def untainted(request: Request) -> Test:
    """Its taints are tolerated."""

    def test(candidate: Candidate) -> Sequence[Reason]:
        found = untolerated(candidate.device.taints, request.tolerations)
        return [Reason(f"with taint {taint_text(each)}, which is not tolerated") for each in found]

    return test


def taint_text(taint: Mapping[str, Any]) -> str:
    """`key=value:effect`."""
    value = f"={taint['value']}" if taint.get("value") else ""
    return f"{taint['key']}{value}:{taint['effect']}"


def free(setting: Setting, node: str) -> Test:
    """No claim holds it, or only shares of it."""
    exclusive = setting.allocated.exclusive(sharing=setting.features.consumable_capacity)

    def test(candidate: Candidate) -> Sequence[Reason]:
        if candidate.id not in exclusive:
            return ()
        return (Reason("in use", f"{device_text(candidate.id, node)} by {users(setting, candidate)}"),)

    return test


def device_text(device: DeviceId, node: str) -> str:
    """A device in a few words."""
    return device.device if device.pool == node else f"{device.pool}/{device.device}"


def users(setting: Setting, candidate: Candidate) -> str:
    """Who holds a device."""
    return ", ".join(shown(key_of(each)) for each in setting.users.get(candidate.id, ())) or "nobody known"


def capacity(setting: Setting, request: Request, *, ever: bool = False) -> Test:
    """What is left of each capacity is enough, or with `ever` what there is while nobody else has any."""

    def test(candidate: Candidate) -> Sequence[Reason]:
        try:
            needed = request.demand.of(candidate.content)
        except AllocationError as error:
            return (Reason(f"of which that much cannot be asked: {in_short(error)}"),)
        if needed is None:
            return (_unavailable(request, candidate),)
        used = {} if ever else setting.allocated.capacity.get(candidate.id, {})
        short = [each for each in needed if used.get(each.name, 0) + each.amount.nano > each.available]
        return [
            Reason(
                f"short of capacity {each.name}: {each.amount.text} needed",
                f"{_left(each.available, used.get(each.name, 0), each.amount.text)}{_by(setting, candidate)}",
            )
            for each in short
        ]

    return test


def _by(setting: Setting, candidate: Candidate) -> str:
    return f", the rest is {users(setting, candidate)}'s" if candidate.id in setting.users else ""


def _unavailable(request: Request, candidate: Candidate) -> Reason:
    """A capacity that is not there at all, or an amount that its policy forbids."""
    capacities = candidate.content.device.get("capacity") or {}
    missing = [name for name in request.demand.amounts if name not in capacities]
    if missing:
        return Reason(f"without capacity {', '.join(missing)}", f"it has {', '.join(capacities) or 'none'}")
    asked = ", ".join(f"{name}: {each.text}" for name, each in request.demand.amounts.items())
    return Reason(f"whose request policy does not allow {asked}")


def _left(available: int, used: int, like: str) -> str:
    total = amount_text(available, like)
    return f"{amount_text(available - used, like)} of {total} left" if used else f"the device has {total}"


def amount_text(nano: int, like: str) -> str:
    """A number of billionths as a quantity, with binary suffixes if `like` has one."""
    return str(Quantity.of(Fraction(nano, UNIT), binary=like.endswith("i")))


def counters(setting: Setting) -> Test:
    """What is left of the counters of its pool is enough for it alone."""
    left = Counters(setting.allocated)

    def test(candidate: Candidate) -> Sequence[Reason]:
        device, pool = candidate.device, candidate.pool
        if not device.counters or (device.multiple and candidate.id in setting.users):
            return ()
        if not setting.features.partitionable_devices:
            return (Reason("that consume counters, while the feature DRAPartitionableDevices is off"),)
        known = left.available(pool)
        if known.overdrawn:
            return (Reason(f"in pool {pool.name}, of which more is allocated than its counters have"),)
        short = [(each, value) for each, value in device.counters if known.counters.get(each, value) < value]
        return [_out_of_counters(setting, pool, short, known.counters)] if short else ()

    return test


def _out_of_counters(
    setting: Setting, pool: Pool, short: Sequence[tuple[CounterId, int]], left: Mapping[CounterId, int]
) -> Reason:
    """The counter that tells most, one that is no mere place, and how many others are short too."""
    (counter_set, name), needed = next((each for each in short if not each[0][1][-1:].isdigit()), short[0])
    identity = (counter_set, name)
    total = pool.counters[identity]
    like = _suffix(pool, identity)
    amounts = [amount_text(each, like) for each in (needed, left[identity], total)]
    detail = f"{counter_set}: {amounts[0]} needed, {amounts[1]} of {amounts[2]} left"
    takers = list(_consumers(setting, pool, identity))
    shown_takers = takers[:_TAKERS] + ([f"and {len(takers) - _TAKERS} more"] if len(takers) > _TAKERS else [])
    return Reason(f"short of counter {name}", "; ".join([detail, ", ".join(shown_takers)] if takers else [detail]))


def _suffix(pool: Pool, counter: CounterId) -> str:
    """How the amounts of a counter are written."""
    for each in pool.consumers():
        for consumed in each.json.get("consumesCounters") or ():
            value = (consumed.get("counters") or {}).get(counter[1])
            if consumed["counterSet"] == counter[0] and value:
                return str(value["value"])
    return ""


def _consumers(setting: Setting, pool: Pool, counter: CounterId) -> Iterator[str]:
    """Who takes from a counter: `gpu-0-mig-1g (claim a)`."""
    for device in pool.consumers():
        if setting.allocated.holds(device.id) and counter in dict(device.counters):
            names = ", ".join(shown(key_of(each)) for each in setting.users.get(device.id, ()))
            yield f"{device.id.device} is {names}'s" if names else f"{device.id.device} is in use"


def groups(setting: Setting) -> Test:
    """Its compatibility groups go with those of the devices that are allocated from its counter sets."""
    placed = Groups(setting.allocated)

    def test(candidate: Candidate) -> Sequence[Reason]:
        device = candidate.device
        if not device.counters or (device.multiple and candidate.id in setting.users):
            return ()
        if placed.admits(candidate.pool, device):
            return ()
        return (Reason("whose compatibility groups do not go with those of devices in use on the same counter set"),)

    return test


def operations(setting: Setting, node: JSON) -> Test:
    """The node can leave out the operations that its slice skips."""
    able = setting.features.optional_node_operations and declares(node, SKIPS_OPERATIONS)
    why = f"which the node does not declare to be able to ({SKIPS_OPERATIONS} in status.declaredFeatures)"
    if not setting.features.optional_node_operations:
        why = f"while the feature {SKIPS_OPERATIONS} is off"

    def test(candidate: Candidate) -> Sequence[Reason]:
        skipped = candidate.device.skips_operations
        return (Reason(f"that skip {', '.join(skipped)}, {why}"),) if skipped and not able else ()

    return test


def attribute(constraint: JSON, request: Request, *, lists: bool) -> Test:
    """It has the attribute that a constraint is about, as its driver or the request says."""
    name = constraint.get("matchAttribute") or constraint["distinctAttribute"]

    def test(candidate: Candidate) -> Sequence[Reason]:
        try:
            found = attribute_of(request, candidate.device, name)
        except AllocationError as error:
            return (Reason(f"for which attribute {name} cannot be derived", in_short(error)),)
        if found is None:
            return (Reason(f"without attribute {name}"),)
        return (
            ()
            if value_of(found, lists=lists)
            else (Reason(f"whose attribute {name} is of a kind that is not compared"),)
        )

    return test
