"""The health of GPUs, from sysfs and KFD. What is wrong with a GPU is wrong with each of its partitions.

| fault | begins | ends |
|---|---|---|
| lost | its PCI function is gone, or reads as all ones | it answers again |
| without driver | its driver is not `amdgpu`, and it is not published for virtual machines | it has `amdgpu` |
| unknown to KFD | KFD has no node for it twice in a row | KFD has one |
| memory page that cannot be retired | a page has the flag F | no page has it |
| uncorrectable error | a counter rises | the GPU has recovered |

A GPU has recovered when it was lost, without driver or unknown and is back, when its counters start again from less
(its driver was loaded again), or when no uncorrectable error has followed for `settle` seconds: after such an error the
kernel itself resets the GPU and retires the memory page, and if that fails, KFD or the PCI function are gone. Errors
from before the start are over, and only mentioned.

Source: Documentation/gpu/amdgpu/ras.rst of the kernel and amdgpu_ras.c: `ras/<block>_err_count` with lines such as
`ue: 0`, on kernels with ACA `ras/aca_<block>`; and `ras/gpu_vram_bad_pages` with lines of address, size and flag, where
R is retired, P will be, F cannot be. A function that has left the bus reads as all ones (PCI specification).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from threading import Event
from typing import Final

from dra_driver_amd.gpus import KERNEL_DRIVER, AmdGpu
from dra_driver_amd.kfd import read_kfd_nodes
from dra_driver_amd.passthrough import PassthroughFunction
from dra_sdk import DeviceHealth, HardwareError
from dra_sdk.hardware import (
    Host,
    entries,
    exists,
    health,
    is_link,
    link_target_name,
    read_large_text,
    read_optional,
    read_text,
)
from dra_sdk.hardware.health import HealthTracker
from dra_sdk.hardware.host import read_beginning

log = logging.getLogger(__name__)
_ALL_ONES: Final = b"\xff\xff"
_KINDS: Final = frozenset({"ue", "ce", "de"})
_BLOCKS: Final = (("*_err_count", "", "_err_count"), ("aca_*", "aca_", ""))
"""The counters of a block: the names of the files, and what precedes and follows the block in them."""


@dataclass(frozen=True, slots=True)
class ErrorCounts:
    """What the kernel has counted since the driver was loaded; empty for a GPU without RAS.

    uncorrectable: uncorrectable errors by block, such as `umc` for memory.
    corrected: corrected errors of all blocks.
    deferred: errors in data that nobody has used yet, of all blocks.
    retired: memory pages that are retired, or will be.
    failed: memory pages that cannot be retired.
    """

    uncorrectable: Mapping[str, int] = field(default_factory=dict)
    corrected: int = 0
    deferred: int = 0
    retired: int = 0
    failed: int = 0


def read_error_counts(pci: Path) -> ErrorCounts:
    """Return the counts of the GPU at this directory of sysfs. What cannot be read is left out, as during a reset."""
    blocks = dict(_read_blocks(pci / "ras"))
    bad_pages = read_optional(read_large_text, pci / "ras/gpu_vram_bad_pages") or ""
    flags = [line.rpartition(":")[2].strip() for line in bad_pages.splitlines()]
    return ErrorCounts(
        uncorrectable={block: counts["ue"] for block, counts in sorted(blocks.items()) if "ue" in counts},
        corrected=sum(counts.get("ce", 0) for counts in blocks.values()),
        deferred=sum(counts.get("de", 0) for counts in blocks.values()),
        retired=flags.count("R") + flags.count("P"),
        failed=flags.count("F"),
    )


def _read_blocks(ras: Path) -> Iterator[tuple[str, dict[str, int]]]:
    for pattern, before, after in _BLOCKS:
        for name in read_optional(entries, ras) or ():
            if not fnmatchcase(name, pattern):
                continue
            path, counts = ras / name, dict[str, int]()
            for line in (read_optional(read_text, path) or "").splitlines():
                kind, _, value = line.partition(":")
                if kind.strip() in _KINDS and value.strip().isdecimal():
                    counts[kind.strip()] = int(value)
            yield name.removeprefix(before).removesuffix(after), counts


@dataclass(slots=True)
class _RememberedGpu:
    """What is remembered of a GPU with all its devices from one reading to the next.

    trouble: why the GPU cannot be used now; empty if it can.
    unknown_once: whether KFD did not know it at the last reading.
    counts: its latest counts, and those of blocks that could not be read then; empty while a virtual machine has it.
    """

    trouble: str = ""
    unknown_once: bool = False
    counts: ErrorCounts = field(default_factory=ErrorCounts)

    def problems(self) -> Iterator[str]:
        """Yield what the last reading found."""
        if self.trouble:
            yield self.trouble
        if self.counts.failed:
            yield f"memory pages that cannot be retired: {self.counts.failed}"

    def remarks(self) -> Iterator[str]:
        """Yield what is worth reporting of a healthy GPU."""
        numbers = {
            "uncorrectable errors since the driver was loaded": sum(self.counts.uncorrectable.values()),
            "corrected errors": self.counts.corrected,
            "deferred errors": self.counts.deferred,
            "retired memory pages": self.counts.retired,
        }
        yield from (f"{what}: {number}" for what, number in numbers.items() if number)


class AmdHealthMonitor:
    """The health of a node's devices. It is kept from one call of `watch` to the next; only one may run at a time.

    gpus: reads the GPUs and partitions that can be published.
    functions: reads the functions that are published for virtual machines.
    settle: how long an uncorrectable error must not repeat until the GPU is healthy again, in seconds.
    """

    def __init__(
        self,
        host: Host,
        gpus: Callable[[], Iterable[AmdGpu]],
        functions: Callable[[], Iterable[PassthroughFunction]],
        settle: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host, self._gpus, self._functions = host, gpus, functions
        self._tracker = HealthTracker(forget=settle, clock=clock)
        self._cards: dict[str, _RememberedGpu] = {}  # by PCI address; those of a GPU that is gone stay

    def watch(self, stop: Event, interval: float) -> Iterator[list[DeviceHealth]]:
        """Yield all devices, every `interval` seconds until `stop` is set: what `dra_device_health` yields."""
        return health.watch(self.look, stop, interval, "GPUs")

    def look(self) -> list[DeviceHealth]:
        """Read all GPUs once, and return the health of all devices."""
        passed = self._follow()
        known = {node.address for node in read_kfd_nodes(self._host)}
        for address, card in self._cards.items():
            before = card.trouble
            try:
                self._read(card, address, known, passed)
            except HardwareError as error:
                self._tracker.unreadable(address, str(error))
                continue
            if card.trouble != before:
                log.warning("GPU %s: %s", address, card.trouble or "it is back")
            self._tracker.observe(address, card.problems(), remarks=card.remarks())
        return self._tracker.report()

    def _follow(self) -> set[str]:
        """Remember the devices of all GPUs and functions; return the addresses of those with virtual machines."""
        devices: dict[str, set[str]] = {}
        for gpu in self._gpus():
            devices.setdefault(gpu.pci.address, set()).add(gpu.name)
        passed = set()
        for function in self._functions():
            if function.bound or function.virtual:
                passed.add(function.pci.address)
                devices[function.pci.address] = {function.name}
            elif function.pci.address in devices:
                devices[function.pci.address].add(function.name)
        for address, names in devices.items():
            self._cards.setdefault(address, _RememberedGpu())
            self._tracker.publish(address, dict.fromkeys(sorted(names)))
        return passed

    def _read(self, card: _RememberedGpu, address: str, known: set[str], passed: set[str]) -> None:
        path = self._host.sys / "bus/pci/devices" / address
        driver = link_target_name(path / "driver")
        if not exists(path):
            card.trouble = "the GPU has left the PCI bus"
        elif not is_link(path / "physfn") and _answers_with_ones(path):
            card.trouble = "the GPU does not answer on the PCI bus"
        elif address in passed:  # nothing is counted here, and the GPU comes back after a reset
            self._tracker.recovered(address)
            card.trouble, card.unknown_once, card.counts = "", False, ErrorCounts()
        elif driver != KERNEL_DRIVER:
            card.trouble = f"the GPU has {f'driver {driver}' if driver else 'no driver'} instead of {KERNEL_DRIVER}"
        elif address not in known:
            if card.unknown_once or card.trouble:
                card.trouble = "KFD does not know the GPU"
            card.unknown_once = True
        else:
            self._count(card, address, read_error_counts(path))

    def _count(self, card: _RememberedGpu, address: str, counts: ErrorCounts) -> None:
        """Compare the counts of a GPU that can be used with the earlier ones.

        A block that could not be read until now says nothing about new errors.
        """
        before, now = card.counts.uncorrectable, counts.uncorrectable
        both = sorted(before.keys() & now.keys())
        if card.trouble or any(now[block] < before[block] for block in both):
            self._tracker.recovered(address)
        else:
            for block in both:
                if now[block] > before[block]:
                    self._tracker.fault(address, f"uncorrectable error in {block}")
        card.trouble, card.unknown_once = "", False
        card.counts = replace(counts, uncorrectable={**before, **now})


def _answers_with_ones(path: Path) -> bool:
    """Return whether the vendor in configuration space reads as all ones, as of virtual functions (SR-IOV 3.4.1)."""
    # Without it the function has just gone, or the kernel shows no configuration space.
    return read_optional(partial(read_beginning, size=len(_ALL_ONES)), path / "config") == _ALL_ONES
