"""The compute partition mode of a whole GPU: changed for a claim, and changed back after it.

`current_compute_partition` takes one of the modes in `available_compute_partition`; the kernel refuses one that does
not go with the memory mode, and any while a process computes on the GPU. The write returns when KFD knows the new
partitions. Every process that computes on a GPU has its render node open, so wait for the holders of these first.
A memory mode changes only when `amdgpu` is loaded again, with all GPUs of the node, so it is not changed for a claim.

Source: amdgpu_gfx.c and amdgpu_xcp.c of the kernel; "GPU partitioning" of the AMD SMI manual.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from dra_driver_amd.gpus import AmdGpu, read_gpus, read_mode
from dra_driver_amd.node import JSON, AmdGpuRecord, AmdNode
from dra_sdk import Claim, HeldClaim, NotNeededError, PermanentError, RetriableError
from dra_sdk.hardware import exists, read_if_exists, read_text
from dra_sdk.hardware.pci_driver import function_path, wait_until_free
from dra_sdk.settings import split_words

MODE_STEP: Final = "mode"
_APPEAR_SECONDS: Final = 10.0


def partitions_of(node: AmdNode, address: str) -> list[AmdGpu]:
    """Return the partitions of a GPU as they are now; only itself if it is not divided."""
    return [gpu for gpu in read_gpus(node.host) if gpu.pci.address == address]


def divide(node: AmdNode, claim: Claim[Any], gpu: AmdGpu, mode: str) -> list[AmdGpu]:
    """Bring a whole GPU into a compute partition mode, and return its partitions.

    mode: such as `cpx`.

    Raises PermanentError if the GPU does not have the mode, RetriableError while the GPU is in use.
    """
    address = gpu.pci.address
    with node.record(address, claim.uid) as record:
        now = read_mode(gpu.pci.path, "compute")
        if now != mode:
            available = available_modes(gpu.pci.path)
            if mode not in available:
                modes = ", ".join(name.upper() for name in available) or "none"
                raise PermanentError(f"GPU {gpu.name} has no compute partition mode {mode.upper()}; it has: {modes}")
            wait_until_unused(node, address, [gpu, *partitions_of(node, address)])
            entry = {"step": MODE_STEP, "gpu": address, "mode": record.entry.get("mode", now)}
            claim.journal(entry)
            recorded = AmdGpuRecord(claim=claim.uid, entry=entry, divided=record.divided or gpu.to_json())
            node.records.save(address, recorded)
            set_mode(node, address, mode)
    partitions: list[AmdGpu] = []

    def known() -> bool:
        partitions[:] = partitions_of(node, address)
        return bool(partitions) and all(partition.compute_mode == mode for partition in partitions)

    if not node.clock.until(known, _APPEAR_SECONDS):
        raise RetriableError(f"KFD does not know the partitions of GPU {gpu.name} in mode {mode.upper()}")
    return partitions


def undivide(node: AmdNode, claim: HeldClaim, entry: JSON) -> None:
    """Undo `divide`: bring the GPU into its earlier mode. Raises RetriableError while a partition is in use."""
    address, mode = entry["gpu"], entry["mode"]
    with node.undoing(address, claim.uid) as ours:
        if not ours:
            return
        problem = _obstacle(node, address, mode)
        if not problem and read_mode(function_path(node, address), "compute") not in {"", mode}:
            wait_until_unused(node, address, partitions_of(node, address))
            set_mode(node, address, mode)
        node.records.save(address, AmdGpuRecord())
        if problem:
            raise NotNeededError(problem)


def _obstacle(node: AmdNode, address: str, mode: str) -> str:
    """Return why a GPU cannot have its earlier mode any more; empty if it can."""
    path = function_path(node, address)
    if not exists(path):
        return f"GPU {address} is gone, so its compute partition mode is not restored"
    available = available_modes(path)
    if available and mode not in available:
        return f"GPU {address} no longer has the compute partition mode {mode.upper()}; it has: {', '.join(available)}"
    return ""


def set_mode(node: AmdNode, address: str, mode: str) -> None:
    """Write a compute partition mode. Raises RetriableError if the kernel refuses it."""
    node.write(function_path(node, address) / "current_compute_partition", f"{mode.upper()}\n")


def available_modes(path: Path) -> list[str]:
    """Return the modes that a GPU has; a kernel that does not list them refuses what the GPU does not have."""
    return split_words((read_if_exists(read_text, path / "available_compute_partition") or "").lower())


def wait_until_unused(node: AmdNode, address: str, parts: Sequence[AmdGpu]) -> None:
    """Wait until no process has these parts of a GPU open. Raises RetriableError with those that still do."""
    nodes = sorted({path for part in parts for path in part.paths})
    wait_until_free(node, f"GPU {address}", nodes, node.settings.busy_seconds)
