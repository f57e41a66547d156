"""Device nodes: of the driver, of a GPU, of a MIG device, of graphics. A missing node that is needed is an error here.

A MIG device needs two capabilities, which open its GPU instance and its compute instance. The driver reports minor
number and mode of their nodes in `/proc/driver/nvidia/capabilities/gpu<minor>/mig/gi<g>[/ci<c>]/access`; the major
number is that of `nvidia-caps` in `/proc/devices`. Source: the MIG user guide, "Device Nodes and Capabilities".
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dra_driver_gpu.edits.driver_files import find_hook, link_hook
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_sdk import ContainerEdits, DeviceNode, HardwareError, RetriableError
from dra_sdk.hardware import Host, entries, exists, read_text
from dra_sdk.hardware.host import target_if_link
from dra_sdk.hardware.node_access import CommandError

log = logging.getLogger(__name__)
_NEEDED: Final = ("/dev/nvidiactl", "/dev/nvidia-uvm")
_OPTIONAL: Final = ("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset")
_MODPROBE: Final = ("nvidia-modprobe", "-c0", "-u")
_CAPS_DRIVER: Final = "nvidia-caps"


def control_nodes(node: NvidiaNode) -> list[DeviceNode]:
    """Return what every user of CUDA needs beside a GPU; created if missing, as NVIDIA's own programs do."""
    if not all(_exists(node, path) for path in _NEEDED):
        _create_control_nodes(node)
    optional = [_device_node(node, path) for path in _OPTIONAL if _exists(node, path)]
    return [*(_needed(node, path) for path in _NEEDED), *optional]


def gpu_nodes(node: NvidiaNode, minor: int) -> list[DeviceNode]:
    """Return the node of a GPU, for a container that uses all of it or monitors the MIG devices on it."""
    return [_needed(node, f"/dev/nvidia{minor}")]


def mig_nodes(node: NvidiaNode, minor: int, gpu_instance: int, compute_instance: int) -> list[DeviceNode]:
    """Return the GPU of a MIG device, and the two capabilities that open this MIG device alone."""
    return [*gpu_nodes(node, minor), *mig_capabilities(node.host, minor, gpu_instance, compute_instance)]


def monitor_nodes(node: NvidiaNode) -> list[DeviceNode]:
    """Return the capability to see all MIG devices, for monitoring; none on a node without MIG."""
    try:
        return [monitor_capability(node.host)]
    except HardwareError:
        return []


def graphics_edits(node: NvidiaNode, pci_address: str) -> ContainerEdits:
    """Return what draws on a GPU: its DRM nodes, and links to them by PCI address; empty without DRM."""
    names = list(_drm_names(node, pci_address))
    hook = find_hook(node)
    hooks = link_hook(hook, dict(_drm_links(node, pci_address, names))) if hook else []
    return ContainerEdits(device_nodes=[DeviceNode(f"/dev/dri/{name}") for name in names], hooks=hooks)


def mig_capabilities(host: Host, minor: int, gpu_instance: int, compute_instance: int) -> list[DeviceNode]:
    """Return the capabilities of a GPU instance and of a compute instance in it.

    Raises HardwareError if the instance does not exist, or if the driver reports anything but a minor and a mode.
    """
    directory = host.proc / f"driver/nvidia/capabilities/gpu{minor}/mig/gi{gpu_instance}"
    return [_capability(host, directory / "access"), _capability(host, directory / f"ci{compute_instance}" / "access")]


def monitor_capability(host: Host) -> DeviceNode:
    """Return the capability to see all MIG devices. Raises HardwareError without MIG."""
    return _capability(host, host.proc / "driver/nvidia/capabilities/mig/monitor")


def _capability(host: Host, access: Path) -> DeviceNode:
    """Return the node of a capability by its numbers: the node on the host appears a moment later and is not needed."""
    lines = read_text(access).splitlines()
    fields = {name: value.strip() for name, _, value in (line.partition(":") for line in lines)}
    try:
        minor, mode = int(fields["DeviceFileMinor"]), int(fields["DeviceFileMode"])
    except (KeyError, ValueError):
        text = " ".join(lines)
        raise HardwareError(f"{access}: must have DeviceFileMinor and DeviceFileMode, is {text!r}") from None
    path = f"/dev/{_CAPS_DRIVER}/nvidia-cap{minor}"
    return DeviceNode(path, type="c", major=_caps_major(host), minor=minor, file_mode=mode)


def _caps_major(host: Host) -> int:
    path = host.proc / "devices"
    for line in read_text(path).partition("Block devices:")[0].splitlines():
        number, _, name = line.strip().partition(" ")
        if name.strip() == _CAPS_DRIVER and number.isdigit():
            return int(number)
    raise HardwareError(f"{path}: no character device {_CAPS_DRIVER}; is the NVIDIA kernel module loaded?")


def _create_control_nodes(node: NvidiaNode) -> None:
    """Create them by nvidia-modprobe: the module for unified memory is often loaded only by its first user."""
    program, *arguments = _MODPROBE
    try:
        node.run(node.driver_command(program, *arguments))
    except (CommandError, HardwareError) as error:
        log.warning("device nodes of the NVIDIA driver are missing and cannot be created: %s", error)


def _needed(node: NvidiaNode, path: str) -> DeviceNode:
    if not _exists(node, path):
        command = " ".join(_MODPROBE)
        raise RetriableError(f"device node {node.dev_root}{path} is missing on the node; `{command}` creates it")
    return _device_node(node, path)


def _exists(node: NvidiaNode, path: str) -> bool:
    return exists(node.local(f"{node.dev_root}{path}"))


def _device_node(node: NvidiaNode, path: str) -> DeviceNode:
    host_path = f"{node.dev_root}{path}"
    return DeviceNode(path, host_path=host_path if host_path != path else None)


def _drm_names(node: NvidiaNode, pci_address: str) -> Iterator[str]:
    for name in entries(node.host.sys / "bus/pci/devices" / pci_address / "drm"):
        if name.startswith(("card", "renderD")) and exists(node.local(f"/dev/dri/{name}")):
            yield name


def _drm_links(node: NvidiaNode, pci_address: str, names: list[str]) -> Iterator[tuple[str, str]]:
    """Yield links by udev's names, such as `/dev/dri/by-path/pci-0000:65:00.0-card`, each with its target."""
    for kind in ("card", "render"):
        name = f"pci-{pci_address}-{kind}"
        path = node.local("/dev/dri/by-path") / name
        if (target := target_if_link(path)) is not None and Path(target).name in names:
            yield f"/dev/dri/by-path/{name}", target
