"""GPUs and virtual functions for virtual machines: bound to a VFIO driver for a claim, and bound again as before.

A function that an operator bound to VFIO stays bound. With a GPU, all functions of its slot are bound, such as its
audio function; a virtual function is bound alone, because the others of its slot are devices of their own. First every
process must leave the GPU. Binding back loads `amdgpu` on the GPU, which starts it in its default partition mode.
"""

from __future__ import annotations

import logging
from dataclasses import asdict
from typing import Any, Final

from dra_driver_amd.devices import total_capacity
from dra_driver_amd.gpus import AmdGpu, read_mode
from dra_driver_amd.node import JSON, AmdNode, GpuRecord
from dra_driver_amd.partitions import partitions_of, set_mode
from dra_driver_amd.passthrough import PassthroughFunction
from dra_sdk import Claim
from dra_sdk.hardware import PciDevice, pci_driver, vfio
from dra_sdk.hardware.pci_driver import PciBinding, wait_until_free
from dra_sdk.hardware.vfio import VfioDevice

log = logging.getLogger(__name__)
VFIO_STEP: Final = "vfio"


def find_vfio_device(function: PassthroughFunction) -> VfioDevice | None:
    """A function that is bound to VFIO, None if it is not: for admin access, which changes nothing."""
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
        group = [each for each in functions if each.iommu_group == pci.iommu_group]
        vfio.check_group(pci, group, together)
        parts = partitions_of(node, pci.address)
        nodes = sorted({path for each in parts for path in each.paths})
        wait_until_free(node, f"GPU {pci.address}", nodes, node.settings.busy_seconds)
        before = [pci_driver.read_binding(node, each) for each in _bound_together(function, group)]
        _record(node, claim, pci, before, parts)
        for each in before:
            pci_driver.bind(node, each.address, vfio.vfio_driver(node, each.address))
    return vfio.vfio_device(pci)


def release_vfio_device(node: AmdNode, uid: str, entry: JSON) -> None:
    """Undo `obtain_vfio_device`: bind every function as before. Raises RetriableError while a machine uses it."""
    address = entry["gpu"]
    with node.undoing(address, uid) as ours:
        if not ours:
            return
        before = [PciBinding(**each) for each in entry["functions"]]
        changed = [each for each in before if pci_driver.read_binding(node, each.address) != each]
        if changed:
            nodes = vfio.machine_nodes(node, (each.address for each in changed))
            wait_until_free(node, f"GPU {address}", nodes, node.settings.busy_seconds)
            for each in changed:
                pci_driver.restore(node, each)
        now = read_mode(pci_driver.function_path(node, address), "compute")
        if now and entry["mode"] and now != entry["mode"]:
            set_mode(node, address, entry["mode"])
        node.records.save(address, GpuRecord())


def _bound_together(function: PassthroughFunction, group: list[PciDevice]) -> list[str]:
    """The function itself first."""
    address = function.pci.address
    if function.virtual:
        return [address]
    return [each.address for each in group if vfio.slot(each.address) == vfio.slot(address)]


def _record(node: AmdNode, claim: Claim[Any], pci: PciDevice, before: list[PciBinding], parts: list[AmdGpu]) -> None:
    """Write down how the functions are bound, and what only `amdgpu` knows of the GPU, which is still published."""
    mode = read_mode(pci.path, "compute")
    functions = [asdict(each) for each in before]
    entry = {"step": VFIO_STEP, "gpu": pci.address, "functions": functions, "mode": mode}
    claim.journal(entry)
    product, capacity = (parts[0].product, total_capacity(parts)) if parts else ("", {})
    record = GpuRecord(claim=claim.uid, entry=entry, product=product, capacity=capacity)
    node.records.save(pci.address, record)
