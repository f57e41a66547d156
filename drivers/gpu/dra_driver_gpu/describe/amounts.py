"""Capacities of MIG devices, and the counters by which the scheduler keeps them apart (KEP-4815)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from dra_driver_gpu.describe.cards import Card, Size
from dra_driver_gpu.nvml.values import GpuInstanceProfile, Placement
from dra_sdk import Quantity

Amounts = Mapping[str, Quantity]

MEMORY: Final = "memory"
_ENGINES: Final = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy_engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg_engines",
    "ofaEngines": "ofa_engines",
}
"""Capacity name → field of a profile. A counter is the field with dashes."""


def of_profile(profile: GpuInstanceProfile) -> dict[str, Quantity]:
    """The capacities of a MIG device of this profile; all names are there, whatever is zero as well."""
    engines = {name: Quantity(getattr(profile, field)) for name, field in _ENGINES.items()}
    return {**engines, MEMORY: mebibytes(profile.memory_mib)}


def slices(placement: Placement) -> dict[str, int]:
    """A capacity of one for each memory slice that an existing MIG device occupies."""
    return {f"memorySlice{number}": 1 for number in _numbers(placement)}


def consumed(size: Size, placement: Placement) -> dict[str, Quantity]:
    """The counters that a MIG device takes."""
    return {**_counters(size.profile), **{f"memory-slice-{number}": Quantity(1) for number in _numbers(placement)}}


def whole(card: Card) -> dict[str, Quantity]:
    """All counters of a GPU: for each the most that any profile has, and one for each memory slice.

    A profile that fits several times has its amount as many times: some GPUs count an engine in each part that the
    whole counts once.
    """
    most: dict[str, Quantity] = {}
    for size in card.sizes:
        for name, amount in _counters(size.profile, size.profile.instances).items():
            most[name] = max(amount, most.get(name, Quantity(0)))
    length = max((placement.start + placement.size for placement in _placements(card.sizes)), default=0)
    return {**most, **{f"memory-slice-{number}": Quantity(1) for number in range(length)}}


def mebibytes(number: int) -> Quantity:
    """An amount of memory."""
    return Quantity(f"{number}Mi")


def bytes_(number: int) -> Quantity:
    """An amount of memory given in bytes, shown with a binary suffix where one is exact."""
    return Quantity.of(number, binary=True)


def _counters(profile: GpuInstanceProfile, times: int = 1) -> dict[str, Quantity]:
    engines = {field.replace("_", "-"): Quantity(times * getattr(profile, field)) for field in _ENGINES.values()}
    return {**engines, MEMORY: mebibytes(times * profile.memory_mib)}


def _numbers(placement: Placement) -> range:
    return range(placement.start, placement.start + placement.size)


def _placements(sizes: Iterable[Size]) -> Iterable[Placement]:
    return (placement for size in sizes for placement in size.placements)
