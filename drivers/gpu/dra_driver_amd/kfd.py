"""The topology of KFD, the kernel's compute driver for AMD GPUs: one node for each GPU or partition.

A GPU in SPX mode is one node, a GPU in CPX mode as many nodes as it has compute dies. A node has the render node that
opens it, the PCI address of its GPU, and the version of its instruction set, from which its family follows.

Source: `/sys/class/kfd/kfd/topology` of the kernel (amdkfd, kfd_topology.c and kfd_device.c); `AMDGPU_FAMILY_…` of
uapi/drm/amdgpu_drm.h for the families.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk import HardwareError
from dra_sdk.hardware import Host, leave_out, numbered_paths, read_optional, read_text
from dra_sdk.hardware.host import quoted

_LOCAL_MEMORY: Final = frozenset({1, 2})  # heap types: frame buffer, visible to the CPU or not
_FAMILIES: Final = {
    (7, 0, 0): "KV",
    (7,): "CI",
    (8, 0, 1): "CZ",
    (8, 1): "CZ",
    (8,): "VI",
    (9, 0, 2): "RV",
    (9, 0, 12): "RV",
    (9,): "AI",
    (10, 3, 3): "VGH",
    (10, 3, 5): "YC",
    (10, 3, 6): "GC_10_3_6",
    (10,): "NV",
    (11, 0, 3): "GC_11_0_1",
    (11, 0): "GC_11_0_0",
    (11, 5): "GC_11_5_0",
    (12, 0): "GC_12_0_0",
}
"""The family of instruction sets that begin with these numbers. KFD gives GC 10.3.7 the numbers of GC 10.3.6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KfdNode:
    """One GPU, or one partition of a GPU.

    number: its number in the topology.
    render: N of `/dev/dri/renderDN`.
    address: the PCI address of the GPU, which its partitions have in common. The low bits of KFD's location, which
        number the partition, are left out.
    simd_units: SIMD units.
    simd_per_unit: SIMD units per compute unit; 0 if KFD does not report it.
    memory_bytes: its own memory; 0 if KFD reports none.
    gfx: the version of its instruction set in three numbers, such as (9, 4, 2); None if KFD does not report it.
    """

    number: int
    render: int
    address: str
    simd_units: int
    simd_per_unit: int
    memory_bytes: int
    gfx: tuple[int, int, int] | None = None

    @property
    def compute_units(self) -> int:
        """The number of compute units."""
        return self.simd_units // self.simd_per_unit if self.simd_per_unit else 0

    @property
    def gfx_target(self) -> str:
        """The target for which compilers make code, such as `gfx942` or `gfx90a`; empty if it is not known."""
        return f"gfx{self.gfx[0]}{self.gfx[1]:x}{self.gfx[2]:x}" if self.gfx else ""

    @property
    def family(self) -> str:
        """The family, as libdrm names it, such as `AI` (GFX9) or `NV` (GFX10); empty if it is not known."""
        known = [_FAMILIES[self.gfx[:length]] for length in (3, 2, 1) if self.gfx and self.gfx[:length] in _FAMILIES]
        return known[0] if known else ""


def read_kfd_nodes(host: Host) -> tuple[KfdNode, ...]:
    """Return all nodes that are GPUs, in the kernel's order; none if KFD is not loaded.

    A node that the kernel does not let this process read is not for it, and is left out. So is a malformed one, which
    is named. Raises HardwareError if the nodes cannot be listed.
    """
    kfd_nodes = []
    for number, path in numbered_paths(host.sys / "class/kfd/kfd/topology/nodes", "").items():
        try:
            fields = _read_fields(path / "properties")
            if fields.get("drm_render_minor", 0) > 0 and fields.get("simd_count", 0) > 0:
                kfd_nodes.append(_node(number, path, fields))
        except HardwareError as error:
            leave_out(f"KFD node {number}", error)
    return tuple(kfd_nodes)


def _node(number: int, path: Path, fields: dict[str, int]) -> KfdNode:
    try:
        location, domain = fields["location_id"], fields.get("domain", 0)
    except KeyError as error:
        raise HardwareError(f"{path / 'properties'}: the GPU has no {error.args[0]}") from None
    bus, device = location >> 8 & 0xFF, location >> 3 & 0x1F
    return KfdNode(
        number=number,
        render=fields["drm_render_minor"],
        address=f"{domain:04x}:{bus:02x}:{device:02x}.0",
        simd_units=fields["simd_count"],
        simd_per_unit=fields.get("simd_per_cu", 0),
        memory_bytes=_memory(path / "mem_banks"),
        gfx=_gfx(fields.get("gfx_target_version", 0)),
    )


def _gfx(number: int) -> tuple[int, int, int] | None:
    """Return a version of GFX: KFD writes 9.4.2 as 90402, and 9.0.10 as 90010."""
    return (number // 10000, number // 100 % 100, number % 100) if number > 0 else None


def _memory(banks: Path) -> int:
    """Return the sum of the GPU's own memory banks, without banks that cannot be read."""
    paths = (read_optional(_numbered, banks) or {}).values()
    banks_read = [read_optional(_read_fields, path / "properties") or {} for path in paths]
    return sum(bank.get("size_in_bytes", 0) for bank in banks_read if bank.get("heap_type") in _LOCAL_MEMORY)


def _numbered(directory: Path) -> dict[int, Path]:
    return numbered_paths(directory, "")


def _read_fields(path: Path) -> dict[str, int]:
    """Read lines of a name and a number."""
    fields = {}
    for line in read_text(path).splitlines():
        name, _, value = line.strip().partition(" ")
        try:
            fields[name] = int(value, 0)
        except ValueError:
            raise HardwareError(f"{path}: must be a name and a number, is {quoted(line)}") from None
    if not fields:
        raise HardwareError(f"{path}: is empty")
    return fields
