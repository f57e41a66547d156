"""AMD GPUs and partitions as the kernel shows them: KFD says what computes, DRM by which device nodes, PCI where.

A partition beyond a GPU's first has a DRM device of its own on the platform bus (`amdgpu_xcp_N`), without PCI address;
the kernel makes more of these than there are partitions, so only those that KFD knows count. Where KFD shows several
nodes at one address, these are partitions, whatever mode the kernel tells.
"""

from __future__ import annotations

import logging
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_driver_amd.kfd import KfdNode, read_kfd_nodes
from dra_sdk.errors import HardwareError
from dra_sdk.hardware import (
    Host,
    PciDevice,
    numbered,
    optional,
    parse_pci_address,
    read_int,
    read_pci_device,
    read_text,
)

log = logging.getLogger(__name__)
_WHOLE: Final = "spx"
_UNTOLD: Final = frozenset({"", "unknown"})


@dataclass(frozen=True, slots=True)
class DeviceNumber:
    """Major and minor number of a device node."""

    major: int
    minor: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AmdGpu:
    """A GPU, or with `partition` a part of the one at `pci`.

    `profile` is its mode such as `cpx_nps4`, empty where the GPU cannot be partitioned. `product` is empty where the
    board does not tell it. The numbers are those of the nodes `/dev/dri/card<card>` and `/dev/dri/renderD<render>`,
    None where sysfs does not tell them.
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
    """All GPUs and partitions by card; those that cannot be used because a part is missing are left out and logged."""
    nodes = read_kfd_nodes(host)
    parts = Counter(node.address for node in nodes)
    found = []
    for node in nodes:
        try:
            found.append(_read(host, node, parts[node.address] > 1))
        except HardwareError as error:
            log.warning("the GPU behind /dev/dri/renderD%d is left out: %s", node.render, error)
    return tuple(sorted(found, key=lambda gpu: (gpu.card, gpu.render)))


def device_number(path: Path) -> DeviceNumber | None:
    """The number in a file `dev` of sysfs, such as `226:128`; None where there is no such file."""
    text = optional(read_text, path)
    if text is None:
        return None
    major, _, minor = text.partition(":")
    if not (major.isdecimal() and minor.isdecimal()):
        raise HardwareError(f"{path}: expected two numbers such as 226:128, found {text!r}")
    return DeviceNumber(int(major), int(minor))


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
        card_number=device_number(path / "dev"),
        render_number=device_number(render / "dev"),
    )


def _address(device: Path, node: KfdNode) -> str:
    """The PCI address of the GPU: that of the device itself, or where it is a platform device, the one KFD tells."""
    try:
        return parse_pci_address(device.name)
    except ValueError:
        return node.address


def _mode(path: Path) -> str:
    """A partition mode in lower case; empty where there is no such file, or the kernel has nothing to say.

    GPUs that cannot be partitioned, and older kernels, do not have the file; a GPU in reset refuses to be read.
    """
    try:
        text = (optional(read_text, path) or "").lower()
    except HardwareError as error:
        log.warning("the partition mode is left out: %s", error)
        return ""
    return "" if text in _UNTOLD else text
