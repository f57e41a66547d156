"""The usage of devices as rows of a table, hardware by hardware."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Final

from dra_sdk.cli.usage import DeviceUsage, Use
from dra_sdk.model.quantity import Quantity

HEADINGS: Final = ("NODE", "DEVICE", "TYPE", "WHAT", "MEMORY", "HEALTH", "STATE", "CLAIM", "PODS")
_NONE: Final = "-"
_NAMES: Final = ("profile", "partitionProfile", "productName", "model")
_UNITS: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20))
_ENOUGH: Final = 10


def rows(devices: Sequence[DeviceUsage], *, everything: bool = False) -> list[list[str]]:
    """One row for each device and each further claim of it.

    Partitions that nobody has are counted in one row for their hardware, unless `everything` is wanted.
    """
    found = []
    ordered = sorted(devices, key=lambda each: (each.node or each.pool, each.driver, each.pool, each.hardware))
    for _, parts in groupby(ordered, key=lambda each: (each.driver, each.pool, each.hardware)):
        found += list(_of_hardware(list(parts), everything))
    return found


def summary(devices: Sequence[DeviceUsage]) -> str:
    """One line for the end."""
    claims = {use.claim for device in devices for use in device.uses}
    pieces = {(device.driver, device.pool, device.hardware) for device in devices}
    used = {(device.driver, device.pool, device.hardware) for device in devices if device.users}
    ill = sum(_unhealthy(device) for device in devices)
    return (
        f"{_count(len(devices), 'device')} on {_count(len(pieces), 'piece')} of hardware, {len(used)} in use; "
        f"{_count(len(claims), 'claim')}; {ill} unhealthy"
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _of_hardware(devices: list[DeviceUsage], everything: bool) -> Iterator[list[str]]:
    """The whole first, as the devices that nobody has to make; then its partitions, set in."""
    whole = [each for each in devices if not _is_part(each)]
    parts = [each for each in devices if _is_part(each)]
    if not whole and len(parts) > 1:
        first = parts[0]
        name = str(first.attribute("productName") or _NONE)
        yield [first.node or first.pool, first.hardware, _NONE, name, *[_NONE] * 5]
    for each in whole:
        yield from _of_device(each, "")
    hidden = [] if everything else [each for each in parts if each.partition and not each.uses and not each.taints]
    indent = "  " if len(devices) > 1 else ""
    for each in parts:
        if each not in hidden:
            yield from _of_device(each, indent)
    if hidden:
        states = Counter(each.state for each in hidden)
        text = ", ".join(f"{count} {state}" for state, count in sorted(states.items(), reverse=True))
        yield [hidden[0].node or hidden[0].pool, f"{indent}{len(hidden)} more", *[_NONE] * 4, text, _NONE, _NONE]


def _is_part(device: DeviceUsage) -> bool:
    """Whether it is a part of its hardware."""
    return bool(device.attribute("parentUUID") or device.attribute("parentPciAddr"))


def _of_device(device: DeviceUsage, indent: str) -> Iterator[list[str]]:
    what = next((value for name in _NAMES if (value := device.attribute(name))), _NONE)
    cells = [
        device.node or device.pool,
        indent + device.name,
        str(device.attribute("type") or _NONE),
        str(what),
        _memory(device),
        _health(device),
        device.state,
    ]
    yield [*cells, *(_use(device.uses[0]) if device.uses else (_NONE, _NONE))]
    for use in device.uses[1:]:
        yield [""] * len(cells) + list(_use(use))


def _use(use: Use) -> tuple[str, str]:
    return use.claim + (" (looks on)" if use.admin else ""), ", ".join(use.pods) or _NONE


def _memory(device: DeviceUsage) -> str:
    total = device.capacity("memory")
    if total is None:
        return _NONE
    return f"{_short(device.consumed('memory'))}/{_short(total)}" if device.shared else _short(total)


def _short(amount: Quantity) -> str:
    """In the largest unit that leaves something before the point, with one digit after it where there is room."""
    for unit, size in _UNITS:
        number = float(amount.value / size)
        if number >= 1:
            text = f"{number:.1f}" if number < _ENOUGH else f"{number:.0f}"
            return text.removesuffix(".0") + unit
    return str(amount)


def _unhealthy(device: DeviceUsage) -> bool:
    return any(str(taint.get("key", "")).endswith("/unhealthy") for taint in device.taints)


def _health(device: DeviceUsage) -> str:
    """By the taint that the SDK gives an unhealthy device; other taints are told as they are."""
    words: list[str] = []
    for taint in device.taints:
        if str(taint.get("key", "")).endswith("/unhealthy"):
            words.insert(0, f"unhealthy since {taint.get('timeAdded', 'an unknown time')}")
        else:
            value = f"={taint['value']}" if taint.get("value") else ""
            words.append(f"{taint.get('key')}{value}:{taint.get('effect')}")
    return ", ".join(words) or "ok"
