"""The kernel driver of a PCI function: read it, change it, and wait until no process uses the function.

A kernel driver releases a function only after its last user has left, and the write that asks for it blocks until then.
So wait for the users first. While a write to `bind` or `unbind` has not returned, the kernel holds the lock of the
function, and other writes for it, and reading its `driver_override`, block as well. So each function here first checks
that no such write is pending. Source: Documentation/ABI/testing/sysfs-bus-pci (`driver_override`, `bind`, `unbind`).
"""

from __future__ import annotations

import errno
import logging
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dra_sdk.errors import HardwareError, RetriableError
from dra_sdk.hardware.host import entries, exists, is_link, link_target_name, read_if_exists, read_text, target_if_link
from dra_sdk.hardware.node_access import NodeAccess

log = logging.getLogger(__name__)
_NO_OVERRIDE: Final = "(null)"
_IOMMU_GROUP: Final = re.compile(r"/dev/vfio/\d+")
_INTERVALS: Final = 5  # of the clock, between two checks of all open files of all processes


@dataclass(frozen=True, slots=True)
class PciBinding:
    """How a PCI function is bound.

    address: its PCI address.
    driver: its driver; None without one.
    override: its `driver_override`; empty without one.
    """

    address: str
    driver: str | None
    override: str


def read_binding(node: NodeAccess, address: str) -> PciBinding:
    """Return how the function at a PCI address is bound. Raises RetriableError while a write for it is pending."""
    check_returned(node, address)
    path = function_path(node, address)
    override = read_if_exists(read_text, path / "driver_override") or ""
    return PciBinding(address, _driver(path), "" if override == _NO_OVERRIDE else override)


def bind(node: NodeAccess, address: str, driver: str) -> None:
    """Bind a function to this driver. Raises RetriableError if the driver does not take it, or a write is pending."""
    check_returned(node, address)
    path = function_path(node, address)
    if _driver(path) == driver:
        return
    _load(node, driver)
    _unbind(node, path)
    node.write(path / "driver_override", f"{driver}\n")
    node.write(_drivers(node) / driver / "bind", address)
    if (bound := _driver(path)) != driver:
        raise RetriableError(f"PCI function {address} has driver {bound or 'none'} after it was bound to {driver}")


def restore(node: NodeAccess, before: PciBinding) -> None:
    """Bind a function as it was before; nothing to do if there is no such function.

    If the driver was removed since, the function stays without driver: it is bound when the driver is loaded. Raises
    RetriableError if the driver does not take it, or a write is pending.
    """
    path = function_path(node, before.address)
    if not exists(path):
        return
    now, driver = read_binding(node, before.address), before.driver
    if driver is not None and not exists(_drivers(node) / driver):
        log.warning("PCI function %s stays without driver: the kernel no longer has %s", before.address, driver)
        driver = None
    if now.driver != driver:
        _unbind(node, path)
        if driver is not None:
            # The override must allow the driver, or the kernel refuses to bind.
            node.write(path / "driver_override", f"{driver}\n")
            node.write(_drivers(node) / driver / "bind", before.address)
    if read_binding(node, before.address).override != before.override:
        node.write(path / "driver_override", f"{before.override}\n")
    if (bound := _driver(path)) != driver:
        raise RetriableError(f"PCI function {before.address} has driver {bound or 'none'}, not {driver} as before")


def check_returned(node: NodeAccess, address: str) -> None:
    """Raise RetriableError if a write for this function is pending: the kernel has not returned from it in time."""
    for write in node.effects.pending():
        if write.path.is_relative_to(node.root) and address in {write.text.strip(), *write.path.parts}:
            raise RetriableError(f"the kernel does not return from changing PCI function {address}: {write}")


def function_path(node: NodeAccess, address: str) -> Path:
    """Return the directory of a function in sysfs."""
    return node.host.sys / "bus/pci/devices" / address


def load_module(node: NodeAccess, module: str) -> None:
    """Load a kernel module. Raises CommandError."""
    node.run_on_host("modprobe", module)


def holders(node: NodeAccess, *nodes: str) -> list[int]:
    """Return the processes that have one of these device nodes open, by this path below any root."""
    processes = (name for name in entries(node.host.proc) if name.isdecimal())
    return sorted(int(name) for name in processes if any(_open_files(node.host.proc / name / "fd", nodes)))


def own_pid(node: NodeAccess) -> int:
    """Return the pid of this process as the host counts: in a pid namespace of its own, `os.getpid` differs."""
    pid = link_target_name(node.host.proc / "self")
    return int(pid) if pid and pid.isdecimal() else os.getpid()


def wait_until_free(
    node: NodeAccess, name: str, nodes: Sequence[str], seconds: float, *, ignored: int | None = None
) -> None:
    """Wait until no process except `ignored` has one of these device nodes open.

    Raises RetriableError with `name` and the processes that still have one after `seconds`.
    """
    left: list[int] = []

    def free() -> bool:
        left[:] = [pid for pid in holders(node, *nodes) if pid != ignored] if nodes else []
        return not left and not any(_busy(node, device_node) for device_node in nodes)

    clock = replace(node.clock, interval=_INTERVALS * node.clock.interval)
    if not clock.until(free, seconds):
        by = f"processes {', '.join(map(str, left))}" if left else "a process that closed the group and kept the device"
        raise RetriableError(f"{name} was still in use after {seconds:.0f} s, by {by}")


def _busy(node: NodeAccess, device_node: str) -> bool:
    """Return whether the kernel refuses to open an IOMMU group because one of its functions is in use.

    A process may have closed the group and kept the function; its open files do not show which function that is.
    """
    if not _IOMMU_GROUP.fullmatch(device_node):
        return False
    try:
        os.close(os.open(node.local(device_node), os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _open_files(directory: Path, nodes: Sequence[str]) -> Iterator[bool]:
    """Yield for each open file of a process whether it is one of these device nodes."""
    try:
        for name in entries(directory):
            yield (target_if_link(directory / name) or "").removesuffix(" (deleted)").endswith(tuple(nodes))
    except HardwareError:  # the process ended
        return


def _unbind(node: NodeAccess, path: Path) -> None:
    if is_link(path / "driver"):
        node.write(_drivers(node) / str(_driver(path)) / "unbind", path.name)


def _load(node: NodeAccess, driver: str) -> None:
    if not exists(_drivers(node) / driver):
        load_module(node, driver)
    if not exists(_drivers(node) / driver):
        raise HardwareError(f"the kernel has no PCI driver {driver}")


def _drivers(node: NodeAccess) -> Path:
    return node.host.sys / "bus/pci/drivers"


def _driver(path: Path) -> str | None:
    return link_target_name(path / "driver")
