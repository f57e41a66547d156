"""Why devices that suffice for each request alone do not go together: found by leaving out one thing at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

from dra_sdk.cel.fields import format_value
from dra_sdk.model import JSON
from dra_sdk.tools.scheduling.allocator.constraints import attribute_of, value_of
from dra_sdk.tools.scheduling.allocator.counters import Counters
from dra_sdk.tools.scheduling.explain.checks import amount_text
from dra_sdk.tools.scheduling.explain.edits import REMOVED, changed, constraint_path, value_at
from dra_sdk.tools.scheduling.explain.model import Conflict
from dra_sdk.tools.scheduling.explain.requests import Looked, constraints_on
from dra_sdk.tools.scheduling.explain.setting import TRIAL_STEPS, Setting

_VALUES: Final = 6


def conflicts(setting: Setting, node: JSON, looked: Sequence[Looked]) -> tuple[Conflict, ...]:
    """What stands between devices that are left and an allocation on a node where the claim does not fit."""
    setting = setting.changed(steps=TRIAL_STEPS)
    found = tuple(_constraints(setting, node, looked))
    if found:
        return found
    without = setting.changed(slices=tuple(map(_without_counters, setting.slices)))
    if without.slices != setting.slices and without.attempt(node).fits:
        return (_counters(setting, looked),)
    return (_devices(looked),)


def _constraints(setting: Setting, node: JSON, looked: Sequence[Looked]) -> Iterator[Conflict]:
    """The constraints without any one of which the claim fits, or all of them if only that helps."""
    count = len(setting.plan.constraints)
    alone = [each for each in range(count) if _fits_without(setting, node, each)]
    if not alone and count > 1:
        free = changed(setting.claim, constraint_path(0)[:-1], REMOVED)
        alone = list(range(count)) if setting.attempt(node, [*setting.claims[:-1], free]).fits else []
    for index in alone:
        yield _constraint(setting, node, index, looked)


def _fits_without(setting: Setting, node: JSON, index: int) -> bool:
    claim = changed(setting.claim, constraint_path(index), REMOVED)
    return setting.attempt(node, [*setting.claims[:-1], claim]).fits


def _fits_with_only(setting: Setting, node: JSON, index: int) -> bool:
    kept = [value_at(setting.claim, constraint_path(index))]
    claim = changed(setting.claim, constraint_path(index)[:-1], kept)
    return setting.attempt(node, [*setting.claims[:-1], claim]).fits


def _constraint(setting: Setting, node: JSON, index: int, looked: Sequence[Looked]) -> Conflict:
    constraint = setting.plan.constraints[index]
    match = constraint.get("matchAttribute")
    name = str(match or constraint["distinctAttribute"])
    details = [
        f"{each.report.request}: {_values(setting, each, name)}{_of(each)}"
        for each in looked
        if any(number == index for number, _ in constraints_on(setting.plan, each.request))
    ]
    rule = "no value is shared by enough devices" if match else "there are not enough different values"
    if len(setting.plan.constraints) > 1 and _fits_with_only(setting, node, index):
        rule = "cannot be met together with the other constraints"
    kind = "matchAttribute" if match else "distinctAttribute"
    return Conflict("constraint", f"constraint {index} ({kind} {name}): {rule}", tuple(details))


def _of(each: Looked) -> str:
    return f"; {each.request.count} needed" if (each.request.count or 0) > 1 else ""


def _values(setting: Setting, looked: Looked, name: str) -> str:
    """`pci0000:00 (2 devices), pci0000:01`."""
    lists = setting.features.list_attributes
    counts: Counter[str] = Counter()
    for candidate in looked.left:
        attribute = attribute_of(looked.request, candidate.device, name)
        found = value_of(attribute, lists=lists) if attribute is not None else None
        counts.update(_text(each) for each in sorted(found[1], key=str)) if found else counts.update(["none"])
    named = [f"{value} ({count} devices)" if count > 1 else value for value, count in counts.most_common(_VALUES)]
    more = len(counts) - len(named)
    return ", ".join([*named, f"and {more} more"] if more > 0 else named)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else format_value(value)


def _without_counters(each: JSON) -> JSON:
    spec = each["spec"]
    if not any("consumesCounters" in device for device in spec.get("devices") or ()):
        return each
    devices = [{key: value for key, value in device.items() if key != "consumesCounters"} for device in spec["devices"]]
    return each | {"spec": spec | {"devices": devices}}


def _counters(setting: Setting, looked: Sequence[Looked]) -> Conflict:
    left = Counters(setting.allocated)
    pools = dict.fromkeys(each.pool for found in looked for each in found.left if each.device.counters)
    details = [f"{each.report.request}: {_consumption(each)}" for each in looked if _consumption(each)]
    for pool in pools:
        counters = left.available(pool).counters
        for name in dict.fromkeys(counter_set for counter_set, _ in counters):
            amounts = _amounts((each[1], value) for each, value in counters.items() if each[0] == name)
            details.append(f"{name} has {amounts} left")
    return Conflict("counters", "the counters do not suffice for all devices together", tuple(details))


def _consumption(looked: Looked) -> str:
    """What a device of a request takes."""
    first = next((each.device for each in looked.left if each.device.counters), None)
    if first is None:
        return ""
    times = f"{looked.request.count} devices, each such as" if (looked.request.count or 0) > 1 else "a device such as"
    return f"{times} {first.id.device} takes {_amounts((name, value) for (_, name), value in first.counters)}"


def _amounts(counters: Iterable[tuple[str, int]]) -> str:
    """`memory 40192Mi, multiprocessors 98`; places such as memory-slice-0 are left out if there is anything else."""
    found = list(counters)
    kept = [each for each in found if not each[0][-1:].isdigit()] or found
    return ", ".join(f"{name} {amount_text(value, _binary(value))}" for name, value in kept[:_VALUES])


def _binary(nano: int) -> str:
    whole = nano // 10**9
    return "Mi" if whole and whole % 1024 == 0 else ""


def _devices(looked: Sequence[Looked]) -> Conflict:
    """The requests compete for the same devices, or for the capacity of a shared one."""
    union = {each.id for found in looked for each in found.left}
    needed = sum(each.request.count or len(each.left) for each in looked)
    names = ", ".join(each.report.request for each in looked)
    if any(each.device.multiple for found in looked for each in found.left):
        text = f"requests {names} each find enough capacity, but not all of them together"
        return Conflict("capacity", text)
    if len(union) < needed:
        return Conflict("devices", f"requests {names} need {needed} devices together, {len(union)} are left for them")
    return Conflict("devices", f"the devices left for requests {names} cannot be shared out among them")
