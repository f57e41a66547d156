"""Which processes have a device node open, and waiting until none has.

A kernel driver lets go of a function only when its last user is gone, and whoever tells it to waits inside the kernel.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.describe.passthrough import is_vfio
from dra_driver_gpu.site import Site
from dra_sdk import RetriableError
from dra_sdk.hardware import PciDevice, link_name, optional, read_text

_GROUP: Final = re.compile(r"/dev/vfio/\d+")
_LOOKS: Final = 5  # intervals between two looks at all files that all processes have open


def gpu_nodes(site: Site, gpu: PciDevice) -> list[str]:
    """The device nodes by which processes use a GPU, whichever driver it has."""
    information = optional(read_text, site.host.proc / "driver/nvidia/gpus" / gpu.address / "information") or ""
    lines = (line.partition(":") for line in information.splitlines())
    minors = [value.strip() for name, _, value in lines if name.strip() == "Device Minor"]
    drawing = sorted(path.name for path in (gpu.path / "drm").glob("*") if path.name.startswith(("card", "renderD")))
    return [*(f"/dev/nvidia{minor}" for minor in minors), *(f"/dev/dri/{name}" for name in drawing)]


def machine_nodes(site: Site, functions: Iterable[str]) -> list[str]:
    """The device nodes by which a virtual machine uses the functions at these PCI addresses."""
    paths = [site.host.sys / "bus/pci/devices" / each for each in functions]
    bound = [path for path in paths if is_vfio(link_name(path / "driver"))]
    groups = {name for path in bound if (name := link_name(path / "iommu_group"))}
    devices = sorted(each.name for path in bound for each in (path / "vfio-dev").glob("vfio*"))
    return [*(f"/dev/vfio/{name}" for name in sorted(groups)), *(f"/dev/vfio/devices/{name}" for name in devices)]


def own_pid(site: Site) -> int:
    """Ours as the host counts, which a container with processes of its own does not see in its own `/proc`."""
    found = link_name(site.host.proc / "self")
    return int(found) if found and found.isdecimal() else os.getpid()


def wait_until_free(site: Site, what: str, nodes: Sequence[str], seconds: float, but: int | None = None) -> None:
    """Wait until no process but `but` has one of these nodes open. RetriableError names those that have."""
    left: list[int] = []

    def free() -> bool:
        left[:] = [pid for pid in holders(site, *nodes) if pid != but] if nodes else []
        return not left and not any(_busy(site, each) for each in nodes)

    patient = replace(site.clock, interval=_LOOKS * site.clock.interval)
    if not patient.until(free, seconds):
        by = f"processes {', '.join(map(str, left))}" if left else "a process that closed the group and kept the device"
        raise RetriableError(f"{what} was still in use after {seconds:.0f} s, by {by}")


def holders(site: Site, *nodes: str) -> list[int]:
    """The processes that have one of these device nodes open, by this name below whichever root."""
    processes = (path for path in site.host.proc.iterdir() if path.name.isdecimal())
    return sorted(int(path.name) for path in processes if any(_links_to(fd, nodes) for fd in _listed(path / "fd")))


def _busy(site: Site, node: str) -> bool:
    """Whether the kernel refuses an IOMMU group because one of its functions is in use.

    A process may have closed the group and kept the function; its open files do not tell which one that is.
    """
    if not _GROUP.fullmatch(node):
        return False
    try:
        os.close(os.open(site.here(node), os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return error.errno == errno.EBUSY
    return False


def _listed(directory: Path) -> list[Path]:
    try:
        return list(directory.iterdir())
    except OSError:  # the process ended
        return []


def _links_to(path: Path, nodes: Sequence[str]) -> bool:
    try:
        return str(path.readlink()).removesuffix(" (deleted)").endswith(tuple(nodes))
    except OSError:
        return False
