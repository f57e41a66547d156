"""AMD GPUs and partitions: found by KFD, with their device nodes from DRM and their location from PCI, and as devices.

Every partition of a GPU except the first has its own DRM device on the platform bus (`amdgpu_xcp_N`), without PCI
address. The kernel creates more of these than there are partitions, so only those that KFD knows count. If KFD shows
several nodes at one PCI address they are partitions, also if the kernel reports another mode.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_driver_amd.kfd import KfdNode, read_kfd_nodes
from dra_sdk import AttributeValue, Device, HardwareError, Quantity, Version
from dra_sdk.hardware import (
    Host,
    PciDevice,
    numbered,
    optional,
    parse_pci_address,
    pci_attributes,
    read_int,
    read_pci_device,
    read_text,
)

log = logging.getLogger(__name__)
_WHOLE: Final = "spx"
_UNKNOWN: Final = frozenset({"", "unknown"})
_LONGEST_STRING: Final = 64  # characters of a string attribute (resource.k8s.io/v1)
_REPLACED: Final = str.maketrans({" ": "_", "(": None, ")": None})


@dataclass(frozen=True, slots=True)
class DeviceNumber:
    """The number of a device node.

    major: its major number, of the kernel driver.
    minor: its minor number.
    """

    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """A GPU, or a partition of a GPU.

    card: N of `/dev/dri/cardN`.
    render: N of `/dev/dri/renderDN`.
    kfd: its node in the KFD topology.
    pci: the PCI function of the GPU.
    partition: it is a partition of the GPU at `pci`.
    profile: its partition mode, such as `cpx_nps4`; empty if the GPU cannot be partitioned.
    product: its product name; empty if the board does not report it.
    memory_bytes: its memory; 0 if the kernel does not report it.
    card_number: the number of its card node; None if sysfs does not have it.
    render_number: the number of its render node; None if sysfs does not have it.
    """

    card: int
    render: int
    kfd: KfdNode
    pci: PciDevice
    partition: bool
    profile: str
    product: str
    memory_bytes: int
    card_number: DeviceNumber | None
    render_number: DeviceNumber | None

    @property
    def name(self) -> str:
        """The device's name, such as `gpu-1-128`."""
        return f"gpu-{self.card}-{self.render}"


def read_gpus(host: Host) -> tuple[AmdGpu, ...]:
    """All GPUs and partitions by card. A GPU that lacks a part in sysfs cannot be used: it is left out and logged."""
    nodes = read_kfd_nodes(host)
    parts = Counter(node.address for node in nodes)
    found = []
    for node in nodes:
        try:
            found.append(_read(host, node, parts[node.address] > 1))
        except HardwareError as error:
            log.warning("the GPU behind /dev/dri/renderD%d is left out: %s", node.render, error)
    return tuple(sorted(found, key=lambda gpu: (gpu.card, gpu.render)))


def read_device_number(path: Path) -> DeviceNumber | None:
    """The number in a file `dev` of sysfs, such as `226:128`; None if there is no such file. Raises HardwareError."""
    text = optional(read_text, path)
    if text is None:
        return None
    major, _, minor = text.partition(":")
    if not (major.isdecimal() and minor.isdecimal()):
        raise HardwareError(f"{path}: must be two numbers such as 226:128, is {text!r}")
    return DeviceNumber(int(major), int(minor))


def read_driver_attributes(host: Host) -> dict[str, AttributeValue]:
    """Version and source of the kernel module; a module that belongs to the kernel has no version of its own."""
    module = host.sys / "module/amdgpu"
    found: dict[str, AttributeValue] = {}
    if text := optional(read_text, module / "version"):
        found["driverVersion"] = Version.lenient(text)
    if text := optional(read_text, module / "srcversion"):
        found["driverSrcVersion"] = text[:_LONGEST_STRING]
    return found


def make_device(gpu: AmdGpu, driver: dict[str, AttributeValue]) -> Device:
    """The device of a GPU, with the names by which users of `gpu.amd.com` select; `driver` are the driver's attributes.

    Existing claims name all three capacities, so what the kernel does not report is 0, not absent.
    """
    device_id = f"{gpu.pci.device:#06x}"
    attributes: dict[str, AttributeValue] = {
        "type": "amdgpu-partition" if gpu.partition else "amdgpu",
        "cardIndex": gpu.card,
        "renderIndex": gpu.render,
        "deviceID": device_id,
        "pciAddr": gpu.pci.address,
        **driver,
        **pci_attributes(gpu.pci),
    }
    if gpu.partition:
        attributes |= {"parentPciAddr": gpu.pci.address, "parentDeviceID": device_id}
    if gpu.pci.numa_node is not None:
        attributes["numaNode"] = gpu.pci.numa_node
    if gpu.product:
        attributes["productName"] = gpu.product.translate(_REPLACED)[:_LONGEST_STRING]
    if gpu.profile:
        attributes["partitionProfile"] = gpu.profile
    capacity = {
        "memory": Quantity.of(gpu.memory_bytes, binary=True),
        "computeUnits": Quantity(gpu.kfd.compute_units),
        "simdUnits": Quantity(gpu.kfd.simd_units),
    }
    return Device(gpu.name, attributes, capacity, hardware=gpu)


def _read(host: Host, node: KfdNode, divided: bool) -> AmdGpu:
    render = host.sys / f"class/drm/renderD{node.render}"
    device = (render / "device").resolve()
    cards = numbered(device / "drm", "card")
    if not cards:
        raise HardwareError(f"{device / 'drm'}: there is no card beside renderD{node.render}")
    card, path = next(iter(cards.items()))
    pci = read_pci_device(host, _address(device, node))
    compute, memory = (_mode(pci.path / f"current_{kind}_partition") for kind in ("compute", "memory"))
    vram = 0 if node.memory_bytes else optional(read_int, pci.path / "mem_info_vram_total") or 0
    partition = divided or compute not in {"", _WHOLE}
    return AmdGpu(
        card=card,
        render=node.render,
        kfd=node,
        pci=pci,
        partition=partition,
        profile="_".join(mode for mode in (compute, memory) if mode),
        product=optional(read_text, pci.path / "product_name") or "",
        memory_bytes=node.memory_bytes or (0 if partition else vram),
        card_number=read_device_number(path / "dev"),
        render_number=read_device_number(render / "dev"),
    )


def _address(device: Path, node: KfdNode) -> str:
    """The PCI address of the GPU: that of the DRM device, or if that is a platform device, the address in KFD."""
    try:
        return parse_pci_address(device.name)
    except ValueError:
        return node.address


def _mode(path: Path) -> str:
    """A partition mode in lower case; empty if there is none.

    GPUs that cannot be partitioned lack the file, and so do older kernels; during a reset the file cannot be read.
    """
    try:
        text = (optional(read_text, path) or "").lower()
    except HardwareError as error:
        log.warning("the partition mode is left out: %s", error)
        return ""
    return "" if text in _UNKNOWN else text
