"""Device nodes: of the driver, of a GPU, of a MIG device, of a VFIO group.

A node that must be there and is not is an error here, not a container without a GPU.
"""

from __future__ import annotations

import logging
from typing import Final

from dra_driver_gpu.effects import CommandError
from dra_driver_gpu.nvml.capabilities import Capability, mig_capabilities, monitor_capability
from dra_driver_gpu.prepare.vfio import Vfio
from dra_driver_gpu.site import Site
from dra_sdk import DeviceNode, HardwareError, RetriableError

_NEEDED: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_IF_THERE: Final = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_MODPROBE: Final = "nvidia-modprobe"
_CONTROL: Final = ("-c0", "-u")
log = logging.getLogger(__name__)


def control_nodes(site: Site) -> list[DeviceNode]:
    """What every user of CUDA needs besides a GPU; made where it is missing, as NVIDIA's own programs do."""
    if not all(_is_there(site, path) for path in _NEEDED):
        _make(site)
    found = [_node(site, path) for path in _IF_THERE if _is_there(site, path)]
    return [*(_needed(site, path) for path in _NEEDED), *found]


def gpu_nodes(site: Site, minor: int) -> list[DeviceNode]:
    """A GPU, whole or to be looked at for the MIG devices that may be made on it."""
    return [_needed(site, f"/dev/nvidia{minor}")]


def mig_nodes(site: Site, minor: int, gpu_instance: int, compute_instance: int) -> list[DeviceNode]:
    """The GPU that a MIG device is part of, and the capabilities that open this part of it alone."""
    capabilities = mig_capabilities(site.host, minor, gpu_instance, compute_instance)
    return [*gpu_nodes(site, minor), *map(_capability, capabilities)]


def monitor_nodes(site: Site) -> list[DeviceNode]:
    """What lets a monitor see all MIG devices; nothing on a node without MIG."""
    try:
        return [_capability(monitor_capability(site.host))]
    except HardwareError:
        return []


def vfio_nodes(site: Site, vfio: Vfio, *, iommufd: bool, api: bool) -> list[DeviceNode]:
    """A GPU for a virtual machine, by IOMMUFD where that is preferred and the kernel has it; `api` adds the door."""
    if iommufd and vfio.device is not None and (site.host.dev / "iommu").exists():
        device, door = f"/dev/vfio/devices/{vfio.device}", "/dev/iommu"
    else:
        device, door = f"/dev/vfio/{vfio.group}", "/dev/vfio/vfio"
    paths = [device, *([door] if api else [])]
    for path in paths:
        if not site.here(path).exists():
            raise RetriableError(f"device node {path} is missing on the node")
    return [DeviceNode(path) for path in paths]


def _make(site: Site) -> None:
    """The kernel module of unified memory is often loaded by the first user only."""
    try:
        site.run(site.tool(_MODPROBE, *_CONTROL))
    except (CommandError, HardwareError) as error:
        log.warning("device nodes of the NVIDIA driver are missing and cannot be made: %s", error)


def _capability(capability: Capability) -> DeviceNode:
    """With its numbers, so that the node on the host, which appears a moment later, is not needed."""
    return DeviceNode(
        capability.path,
        type="c",
        major=capability.major,
        minor=capability.minor,
        file_mode=capability.mode,
    )


def _needed(site: Site, path: str) -> DeviceNode:
    if not _is_there(site, path):
        makes = " ".join([_MODPROBE, *_CONTROL])
        raise RetriableError(f"device node {site.dev_root}{path} is missing on the node; `{makes}` makes it")
    return _node(site, path)


def _is_there(site: Site, path: str) -> bool:
    return site.here(f"{site.dev_root}{path}").exists()


def _node(site: Site, path: str) -> DeviceNode:
    host_path = f"{site.dev_root}{path}"
    return DeviceNode(path, host_path=host_path if host_path != path else None)
