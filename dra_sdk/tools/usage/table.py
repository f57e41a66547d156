"""Which claims use which device, as a table or as JSON: grouped by hardware, with the columns that fit the driver."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby
from typing import Any, Final

from dra_sdk.hardware import NUMA_NODE
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.usage.device_usage import UNHEALTHY, DeviceUsage, Use

Row = list[str]
Describe = Callable[[DeviceUsage], str]
NONE: Final = "-"
_MEMORY: Final = "memory"
_WHAT: Final = ("profile", "partitionProfile", "productName", "model", "ifName", "interfaceName", "resourceName")
"""The attributes that say what a device is; the first one that exists is shown."""
_BINARY: Final = (("Ti", 1 << 40), ("Gi", 1 << 30), ("Mi", 1 << 20))
_DECIMAL: Final = (("T", 10**12), ("G", 10**9), ("M", 10**6))
_NO_DECIMALS_FROM: Final = 10
_MAX_CAPACITIES: Final = 2
"""The most capacities that have a column; hardware with `memory` has only that."""


def usage_table(devices: Sequence[DeviceUsage], *, all_partitions: bool = False) -> tuple[Row, list[Row]]:
    """Return the headings, and a row for each device and for each further claim of it.

    Partitions without claims are counted in one row for their hardware, unless `all_partitions` is set. TYPE, WHAT,
    NUMA and a capacity have a column if a device has them; NUMA only if no device says what it is.
    """
    columns = _columns(devices)
    rows: list[Row] = []
    ordered = sorted(devices, key=lambda device: (device.place, device.driver, device.pool, device.hardware))
    for _, parts in groupby(ordered, key=lambda device: (device.driver, device.pool, device.hardware)):
        rows += _hardware_rows(list(parts), columns, all_partitions=all_partitions)
    return ["NODE", "DEVICE", *(heading for heading, _ in columns), "HEALTH", "STATE", "CLAIM", "PODS"], rows


def usage_json(devices: Sequence[DeviceUsage]) -> list[dict[str, Any]]:
    """Return every device, with the claims that have it and what they consume."""
    return [
        {
            "driver": device.driver,
            "pool": device.pool,
            "node": device.node,
            "device": device.name,
            "hardware": device.hardware,
            "state": device.state,
            "unhealthy": device.unhealthy,
            "taints": list(device.taints),
            "claims": [
                {"claim": use.claim, "pods": list(use.pods), "admin": use.admin, "consumed": dict(use.consumed)}
                for use in device.uses
            ],
        }
        for device in devices
    ]


# -- columns


def _columns(devices: Sequence[DeviceUsage]) -> list[tuple[str, Describe]]:
    """Return the columns between the device's name and its health."""
    columns = [
        (heading, describe)
        for heading, describe in (("TYPE", _type), ("WHAT", _what))
        if any(describe(device) != NONE for device in devices)
    ]
    if not columns and any(device.attribute(NUMA_NODE) is not None for device in devices):
        columns.append(("NUMA", _numa))
    return [*columns, *((name.upper(), _capacity_column(name)) for name in _capacities(devices))]


def _capacities(devices: Sequence[DeviceUsage]) -> list[str]:
    """Return the capacities to show: memory, or else those that most devices have; without the driver's domain."""
    names = Counter(name.rpartition("/")[2] for device in devices for name in device.spec.get("capacity") or ())
    return [_MEMORY] if _MEMORY in names else [name for name, _ in names.most_common(_MAX_CAPACITIES)]


def _type(device: DeviceUsage) -> str:
    return str(device.attribute("type") or NONE)


def _what(device: DeviceUsage) -> str:
    return str(next((value for name in _WHAT if (value := device.attribute(name))), NONE))


def _numa(device: DeviceUsage) -> str:
    value = device.attribute(NUMA_NODE)
    return NONE if value is None else str(value)


def _capacity_column(name: str) -> Describe:
    def describe(device: DeviceUsage) -> str:
        total = device.capacity(name)
        if total is None:
            return NONE
        units = _units(total)
        shown = _rounded(total, units)
        return f"{_rounded(device.consumed(name), units)}/{shown}" if device.shared else shown

    return describe


def _units(amount: Quantity) -> Sequence[tuple[str, int]]:
    """Return the units of an amount: binary ones if it is written in these, or is a whole number of Mi."""
    return _BINARY if amount.binary or amount.value % _BINARY[-1][1] == 0 else _DECIMAL


def _rounded(amount: Quantity, units: Sequence[tuple[str, int]]) -> str:
    """Return an amount in the largest unit of which there is at least one, with one decimal below 10."""
    for unit, size in units:
        number = float(amount.value / size)
        if number >= 1:
            text = f"{number:.1f}" if number < _NO_DECIMALS_FROM else f"{number:.0f}"
            return text.removesuffix(".0") + unit
    return str(amount)


# -- rows


def _hardware_rows(
    devices: list[DeviceUsage], columns: Sequence[tuple[str, Describe]], *, all_partitions: bool
) -> Iterator[Row]:
    """Yield the rows of one piece of hardware: whole devices first, then its parts, indented."""
    empty = [NONE] * len(columns)
    whole = [device for device in devices if not device.is_part]
    parts = [device for device in devices if device.is_part]
    if not whole and len(parts) > 1:
        first = parts[0]
        product = str(first.attribute("productName") or NONE)
        about = [product if heading == "WHAT" else NONE for heading, _ in columns]
        yield [first.place, first.hardware, *about, *[NONE] * 4]
    for device in whole:
        yield from _device_rows(device, columns, "")
    indent = "  " if len(devices) > 1 else ""
    left = [
        part for part in parts if part.consumes_counters and not part.uses and not part.taints and not all_partitions
    ]
    left = left if len(left) > 1 else []  # one more has a name that is as short
    for part in parts:
        if part not in left:
            yield from _device_rows(part, columns, indent)
    if left:
        states = Counter(part.state for part in left)
        text = ", ".join(f"{count} {state}" for state, count in sorted(states.items(), reverse=True))
        yield [left[0].place, f"{indent}{len(left)} more", *empty, NONE, text, NONE, NONE]


def _device_rows(device: DeviceUsage, columns: Sequence[tuple[str, Describe]], indent: str) -> Iterator[Row]:
    about = [describe(device) for _, describe in columns]
    cells = [device.place, indent + device.name, *about, _health(device), device.state]
    yield [*cells, *(_use_cells(device.uses[0]) if device.uses else (NONE, NONE))]
    for use in device.uses[1:]:
        yield [""] * len(cells) + list(_use_cells(use))


def _use_cells(use: Use) -> tuple[str, str]:
    return use.claim + (" (admin)" if use.admin else ""), ", ".join(use.pods) or NONE


def _health(device: DeviceUsage) -> str:
    """Return since when and why it is unhealthy, by the driver's taints; then the other taints."""
    first: list[str] = []
    others: list[str] = []
    for taint in device.taints:
        key = str(taint.get("key"))
        value = f"={taint['value']}" if taint.get("value") else ""
        if device.tells_health(taint):
            why = "" if key.endswith(UNHEALTHY) else f" ({key.rpartition('/')[2]}{value})"
            first.append(f"unhealthy since {taint.get('timeAdded', 'an unknown time')}{why}")
        else:
            others.append(f"{key}{value}:{taint.get('effect')}")
    return ", ".join([*first, *others]) or "ok"
