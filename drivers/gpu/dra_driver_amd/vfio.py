"""GPUs and virtual functions for virtual machines: bound to a VFIO driver for a claim, and bound again as before.

A function that an operator bound to VFIO stays bound. With a GPU, all functions of its slot are bound, such as its
audio function; a virtual function is bound alone, because the others of its slot are devices of their own. First every
process must leave the GPU. Binding back loads `amdgpu` on the GPU, which starts it in its default partition mode.
"""

from __future__ import annotations

from typing import Any, Final

from dra_driver_amd.devices import total_capacity
from dra_driver_amd.gpus import AmdGpu, read_mode
from dra_driver_amd.node import JSON, AmdGpuRecord, AmdNode
from dra_driver_amd.partitions import partitions_of, set_mode, wait_until_unused
from dra_driver_amd.passthrough import PassthroughFunction
from dra_sdk import Claim, HeldClaim, NotNeededError
from dra_sdk.hardware import PciDevice, vfio
from dra_sdk.hardware.pci_driver import function_path
from dra_sdk.hardware.vfio import Passthrough, VfioDevice

VFIO_STEP: Final = "vfio"


def find_vfio_device(function: PassthroughFunction) -> VfioDevice | None:
    """Return a function that is bound to VFIO, None if it is not: for admin access, which changes nothing."""
    return vfio.vfio_device(function.pci) if function.bound else None


def obtain_vfio_device(
    node: AmdNode,
    claim: Claim[Any],
    functions: tuple[PciDevice, ...],
    function: PassthroughFunction,
    together: frozenset[str],
) -> VfioDevice:
    """Bind a function to VFIO.

    functions: all PCI functions of the node.
    together: the PCI addresses of all functions that the claim passes through.

    Raises PermanentError if it cannot be passed through as it is, RetriableError while it is in use.
    """
    pci = function.pci
    with node.record(pci.address, claim.uid):
        if function.bound:
            return vfio.vfio_device(pci)
        passthrough = Passthrough.plan(node, pci, functions=functions, together=together)
        parts = partitions_of(node, pci.address)
        wait_until_unused(node, pci.address, parts)
        _record(node, claim, pci, passthrough, parts)
        passthrough.bind(node)
    return vfio.vfio_device(pci)


def release_vfio_device(node: AmdNode, claim: HeldClaim, entry: JSON) -> None:
    """Undo `obtain_vfio_device`: bind every function as before. Raises RetriableError while a machine uses it."""
    address = entry["gpu"]
    with node.undoing(address, claim.uid) as ours:
        if not ours:
            return
        passthrough = Passthrough.from_entry(entry)
        passthrough.wait_until_free(node, f"GPU {address}", node.settings.busy_seconds)
        passthrough.restore(node)
        is_there = passthrough.is_there(node)
        if entry["mode"] and is_there:
            with claim.undoing(f"compute partition mode of GPU {address}", harmless=True):
                _restore_mode(node, address, entry["mode"])
        node.records.save(address, AmdGpuRecord())
        if not is_there:
            raise NotNeededError(f"GPU {address} is gone, or was replaced by another card")


def _restore_mode(node: AmdNode, address: str, mode: str) -> None:
    """Restore the mode of a GPU that is back; without it, what it is divided into is published again."""
    if read_mode(function_path(node, address), "compute") not in {"", mode}:
        set_mode(node, address, mode)


def _record(node: AmdNode, claim: Claim[Any], pci: PciDevice, passthrough: Passthrough, parts: list[AmdGpu]) -> None:
    """Write down how the functions are bound, and what only `amdgpu` knows of the GPU, which is still published."""
    mode = read_mode(pci.path, "compute")
    entry = {"step": VFIO_STEP, "gpu": pci.address, "mode": mode, **passthrough.entry}
    claim.journal(entry)
    product, capacity = (parts[0].product, total_capacity(parts)) if parts else ("", {})
    record = AmdGpuRecord(claim=claim.uid, entry=entry, product=product, capacity=capacity)
    node.records.save(pci.address, record)
