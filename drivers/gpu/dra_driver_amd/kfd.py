"""The topology of KFD, the kernel's compute driver for AMD GPUs: one node for each GPU or partition.

Source: `/sys/class/kfd/kfd/topology` of the kernel (amdkfd, kfd_topology.c). A GPU in SPX mode is one node, in CPX mode
as many as it has compute dies. A node says which render node opens it, and at which PCI address its GPU is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.errors import HardwareError
from dra_sdk.hardware import Host, numbered, read_text

log = logging.getLogger(__name__)
_LOCAL_MEMORY: Final = frozenset({1, 2})  # heap types: frame buffer, visible to the CPU or not


@dataclass(frozen=True, slots=True, kw_only=True)
class KfdNode:
    """One GPU, or one partition of a GPU. `memory_bytes` is 0 where KFD tells of no memory of its own.

    `address` is the PCI address of the GPU. Partitions of one GPU have it in common: the low bits of KFD's location,
    which number the partition, are left out.
    """

    number: int
    render: int
    address: str
    simd_units: int
    simd_per_unit: int
    memory_bytes: int

    @property
    def compute_units(self) -> int:
        """How many compute units it has."""
        return self.simd_units // self.simd_per_unit if self.simd_per_unit else 0


def read_kfd_nodes(host: Host) -> tuple[KfdNode, ...]:
    """All nodes that are GPUs, in the kernel's order; none where KFD is not loaded.

    A node that the kernel does not let us read belongs to somebody else and is left out. Raises HardwareError that
    names the file which makes no sense.
    """
    found = []
    for number, path in numbered(host.sys / "class/kfd/kfd/topology/nodes", "").items():
        try:
            fields = _read_fields(path / "properties")
        except _UnreadableError as error:
            log.warning("a KFD node is left out: %s", error)
            continue
        if fields.get("drm_render_minor", 0) > 0 and fields.get("simd_count", 0) > 0:
            found.append(_node(number, path, fields))
    return tuple(found)


def _node(number: int, path: Path, fields: dict[str, int]) -> KfdNode:
    try:
        location, domain = fields["location_id"], fields.get("domain", 0)
    except KeyError as error:
        raise HardwareError(f"{path / 'properties'}: a GPU without {error.args[0]}") from None
    bus, device = location >> 8 & 0xFF, location >> 3 & 0x1F
    return KfdNode(
        number=number,
        render=fields["drm_render_minor"],
        address=f"{domain:04x}:{bus:02x}:{device:02x}.0",
        simd_units=fields["simd_count"],
        simd_per_unit=fields.get("simd_per_cu", 0),
        memory_bytes=_memory(path / "mem_banks"),
    )


def _memory(banks: Path) -> int:
    """The sum of what is the GPU's own; a file of an odd kernel leaves its bank out."""
    total = 0
    for path in numbered(banks, "").values():
        try:
            bank = _read_fields(path / "properties")
        except _UnreadableError as error:
            log.warning("memory is left out: %s", error)
            continue
        if bank.get("heap_type") in _LOCAL_MEMORY:
            total += bank.get("size_in_bytes", 0)
    return total


class _UnreadableError(HardwareError):
    """The kernel does not give a file to us."""


def _read_fields(path: Path) -> dict[str, int]:
    """Lines of a name and a number."""
    try:
        text = read_text(path)
    except HardwareError as error:
        raise _UnreadableError(str(error)) from error
    fields = {}
    for line in text.splitlines():
        name, _, value = line.strip().partition(" ")
        try:
            fields[name] = int(value, 0)
        except ValueError:
            raise HardwareError(f"{path}: expected a name and a number, found {line!r}") from None
    return fields
