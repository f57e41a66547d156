"""AMD GPUs and partitions as the kernel shows them: found by KFD, with device nodes from DRM and location from PCI.

Every partition of a GPU except the first has its own DRM device on the platform bus (`amdgpu_xcp_N`), without PCI
address. The kernel creates as many of these as a GPU can have partitions when it finds the GPU, so the numbers of
device nodes do not change with the partition mode. Only those that KFD knows are in use. If KFD shows several nodes at
one PCI address they are partitions, also if the kernel reports another mode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from dra_driver_amd.kfd import KfdNode, read_kfd_nodes
from dra_sdk import HardwareError
from dra_sdk.hardware import (
    Host,
    PciDevice,
    leave_out,
    numbered_paths,
    parse_pci_address,
    read_int,
    read_optional,
    read_pci_device,
    read_text,
    real_path,
)

KERNEL_DRIVER: Final = "amdgpu"
WHOLE: Final = "spx"
"""The compute partition mode of a GPU that is not divided."""
_UNKNOWN: Final = frozenset({"", "unknown"})


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
    compute_mode: the compute partition mode of the GPU, such as `cpx`; empty if it cannot be partitioned.
    memory_mode: the memory partition mode of the GPU, such as `nps4`; empty likewise.
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
    compute_mode: str
    memory_mode: str
    product: str
    memory_bytes: int
    card_number: DeviceNumber | None
    render_number: DeviceNumber | None

    @property
    def name(self) -> str:
        """The device's name, such as `gpu-1-128`."""
        return f"gpu-{self.card}-{self.render}"

    @property
    def paths(self) -> tuple[str, str]:
        """Its two device nodes."""
        return f"/dev/dri/card{self.card}", f"/dev/dri/renderD{self.render}"

    def to_json(self) -> dict[str, Any]:
        """Return everything but the PCI function, for a record."""
        return {name: value for name, value in asdict(self).items() if name != "pci"}

    @classmethod
    def from_json(cls, recorded: Mapping[str, Any], pci: PciDevice) -> AmdGpu:
        """Return the GPU of a record; `pci` is its function."""
        kfd = KfdNode(**{**recorded["kfd"], "gfx": tuple(recorded["kfd"]["gfx"] or ()) or None})
        numbers = {
            name: DeviceNumber(**recorded[name]) if recorded[name] else None
            for name in ("card_number", "render_number")
        }
        return cls(**{**recorded, **numbers, "kfd": kfd, "pci": pci})


def read_gpus(host: Host) -> tuple[AmdGpu, ...]:
    """Return all GPUs and partitions by card. A GPU that lacks a part in sysfs is left out and named."""
    nodes = read_kfd_nodes(host)
    parts = Counter(node.address for node in nodes)
    gpus = []
    for node in nodes:
        try:
            gpus.append(_read(host, node, parts[node.address] > 1))
        except HardwareError as error:
            leave_out(f"the GPU behind /dev/dri/renderD{node.render}", error)
    return tuple(sorted(gpus, key=lambda gpu: (gpu.card, gpu.render)))


def read_device_number(path: Path) -> DeviceNumber | None:
    """Read a number in a file `dev` of sysfs, such as `226:128`; None without one."""
    return read_optional(_read_device_number, path)


def _read_device_number(path: Path) -> DeviceNumber:
    text = read_text(path)
    major, _, minor = text.partition(":")
    if not (major.isdecimal() and minor.isdecimal()):
        raise HardwareError(f"{path}: must be two numbers such as 226:128, is {text!r}")
    return DeviceNumber(int(major), int(minor))


def read_mode(pci: Path, kind: str) -> str:
    """Return the partition mode of the GPU at this directory, in lower case; empty if there is none.

    kind: `compute` or `memory`.

    GPUs that cannot be partitioned lack the file, and so do older kernels; during a reset the file cannot be read.
    """
    text = (read_optional(read_text, pci / f"current_{kind}_partition") or "").lower()
    return "" if text in _UNKNOWN else text


def _read(host: Host, node: KfdNode, divided: bool) -> AmdGpu:
    render = host.sys / f"class/drm/renderD{node.render}"
    device = real_path(render / "device")
    cards = numbered_paths(device / "drm", "card")
    if not cards:
        raise HardwareError(f"{device / 'drm'}: there is no card beside renderD{node.render}")
    card, path = next(iter(cards.items()))
    pci = read_pci_device(host, _address(device, node))
    compute = read_mode(pci.path, "compute")
    vram = 0 if node.memory_bytes else read_optional(read_int, pci.path / "mem_info_vram_total") or 0
    partition = divided or compute not in {"", WHOLE}
    return AmdGpu(
        card=card,
        render=node.render,
        kfd=node,
        pci=pci,
        partition=partition,
        compute_mode=compute,
        memory_mode=read_mode(pci.path, "memory"),
        product=read_optional(read_text, pci.path / "product_name") or "",
        memory_bytes=node.memory_bytes or (0 if partition else vram),
        card_number=read_device_number(path / "dev"),
        render_number=read_device_number(render / "dev"),
    )


def _address(device: Path, node: KfdNode) -> str:
    """Return the PCI address of the GPU: that of the DRM device, or for a platform device the address in KFD."""
    try:
        return parse_pci_address(device.name)
    except ValueError:
        return node.address
