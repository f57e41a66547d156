"""GPUs and partitions as devices of a ResourceSlice, with the names that users of `gpu.amd.com` select by."""

from __future__ import annotations

from typing import Final

from dra_driver_amd.gpus import AmdGpu
from dra_sdk import AttributeValue, Device, Quantity, Version
from dra_sdk.hardware import Host, optional, pci_attributes, read_text

_LONGEST: Final = 64  # characters of a string attribute
_UNWANTED: Final = str.maketrans({" ": "_", "(": None, ")": None})


def driver_attributes(host: Host) -> dict[str, AttributeValue]:
    """Version and source of the kernel module; a module that belongs to the kernel has no version of its own."""
    module = host.sys / "module/amdgpu"
    found: dict[str, AttributeValue] = {}
    if text := optional(read_text, module / "version"):
        found["driverVersion"] = Version.lenient(text)
    if text := optional(read_text, module / "srcversion"):
        found["driverSrcVersion"] = text[:_LONGEST]
    return found


def device(gpu: AmdGpu, driver: dict[str, AttributeValue]) -> Device:
    """As it is published."""
    identity = f"{gpu.pci.device:#06x}"
    attributes: dict[str, AttributeValue] = {
        "type": "amdgpu-partition" if gpu.partition else "amdgpu",
        "cardIndex": gpu.card,
        "renderIndex": gpu.render,
        "deviceID": identity,
        "pciAddr": gpu.pci.address,
        **driver,
        **pci_attributes(gpu.pci),
    }
    if gpu.partition:
        attributes |= {"parentPciAddr": gpu.pci.address, "parentDeviceID": identity}
    if gpu.pci.numa_node is not None:
        attributes["numaNode"] = gpu.pci.numa_node
    if gpu.product:
        attributes["productName"] = gpu.product.translate(_UNWANTED)[:_LONGEST]
    if gpu.profile:
        attributes["partitionProfile"] = gpu.profile
    return Device(gpu.name, attributes, _capacity(gpu))


def _capacity(gpu: AmdGpu) -> dict[str, Quantity]:
    """Claims in the field name all three, so what the kernel does not tell is 0 rather than absent."""
    return {
        "memory": Quantity.of(gpu.memory_bytes, binary=True),
        "computeUnits": Quantity(gpu.kfd.compute_units),
        "simdUnits": Quantity(gpu.kfd.simd_units),
    }
