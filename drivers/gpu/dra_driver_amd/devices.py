"""GPUs, partitions and VFIO devices as they are published, with the names by which users of `gpu.amd.com` select.

With passthrough, a GPU is published twice: as GPU or as its partitions, and as VFIO device. Each partition consumes one
of the GPU's counter `partitions`, the VFIO device all of them, so the scheduler allocates either or.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from dra_driver_amd.gpus import AmdGpu
from dra_driver_amd.passthrough import PassthroughFunction, counter_set_name
from dra_sdk import AttributeValue, CounterConsumption, CounterSet, Device, Quantity, ResourcePool, Version
from dra_sdk.hardware import Host, pci_attributes, read_optional, read_text

DRIVER_NAME: Final = "gpu.amd.com"
GPU: Final = "amdgpu"
PARTITION: Final = "amdgpu-partition"
VFIO: Final = "vfio"
"""The attribute `type`."""
_LONGEST_STRING: Final = 64  # characters of a string attribute (resource.k8s.io/v1)
_REPLACED: Final = str.maketrans({" ": "_", "(": None, ")": None})
_COUNTER: Final = "partitions"
Bound = Mapping[str, tuple[str, Mapping[str, int]]]
"""Product name and capacities of the GPUs that claims bound to VFIO, by PCI address."""


def read_driver_attributes(host: Host) -> dict[str, AttributeValue]:
    """Read version and source of the kernel module; a module that belongs to the kernel has no version of its own."""
    module = host.sys / "module/amdgpu"
    attributes: dict[str, AttributeValue] = {}
    if text := read_optional(read_text, module / "version"):
        attributes["driverVersion"] = Version.lenient(text)
        attributes["driverVersionFull"] = text[:_LONGEST_STRING]
    if text := read_optional(read_text, module / "srcversion"):
        attributes["driverSrcVersion"] = text[:_LONGEST_STRING]
    return attributes


def make_pool(
    name: str,
    gpus: Iterable[AmdGpu],
    functions: Iterable[PassthroughFunction],
    driver: Mapping[str, AttributeValue],
    bound: Bound,
) -> ResourcePool:
    """Return all devices of a node, GPU by GPU, with counters for each GPU that is published in two ways.

    functions: the functions for virtual machines; none without passthrough.
    driver: the attributes of the kernel driver.
    """
    cards: dict[str, list[AmdGpu]] = {}
    for gpu in gpus:
        cards.setdefault(gpu.pci.address, []).append(gpu)
    by_address = {function.pci.address: function for function in functions}
    devices: list[Device] = []
    counters: list[CounterSet] = []
    for address, parts in cards.items():
        sibling = by_address.pop(address, None)
        devices += [gpu_device(part, driver, [_consumption(address, 1)] if sibling else []) for part in parts]
        if sibling:
            all_of_it = [_consumption(address, len(parts))]
            devices.append(vfio_device(sibling, parts[0].product, total_capacity(parts), all_of_it))
            counters.append(CounterSet(counter_set_name(address), {_COUNTER: len(parts)}))
    for address, function in by_address.items():
        if function.bound or function.virtual:
            devices.append(vfio_device(function, *bound.get(address, ("", {}))))
    of_amdgpu = [part.name for parts in cards.values() for part in parts]
    return ResourcePool(name, devices, counters, without_counters=of_amdgpu)


def gpu_device(
    gpu: AmdGpu, driver: Mapping[str, AttributeValue], consumes: Sequence[CounterConsumption] = ()
) -> Device:
    """Return the device of a GPU or a partition.

    Existing claims name all three capacities, so what the kernel does not report is 0, not absent.
    """
    device_id = f"{gpu.pci.device:#06x}"
    attributes: dict[str, AttributeValue] = {
        "type": PARTITION if gpu.partition else GPU,
        "cardIndex": gpu.card,
        "renderIndex": gpu.render,
        "deviceID": device_id,
        "pciAddr": gpu.pci.address,
        **driver,
        **_location(gpu.pci.numa_node),
        **pci_attributes(gpu.pci),
        **_product(gpu.product),
    }
    if gpu.partition:
        attributes |= {"parentPciAddr": gpu.pci.address, "parentDeviceID": device_id}
    if gpu.kfd.family:
        attributes["family"] = gpu.kfd.family
    if gpu.kfd.gfx:
        attributes["gfxTarget"] = gpu.kfd.gfx_target
        attributes["gfxVersion"] = Version(".".join(map(str, gpu.kfd.gfx)))
    if gpu.compute_mode:
        attributes["computePartition"] = gpu.compute_mode[:_LONGEST_STRING]
    if gpu.memory_mode:
        attributes["memoryPartition"] = gpu.memory_mode[:_LONGEST_STRING]
    if gpu.compute_mode or gpu.memory_mode:
        profile = "_".join(mode for mode in (gpu.compute_mode, gpu.memory_mode) if mode)
        attributes["partitionProfile"] = profile[:_LONGEST_STRING]
    return Device(gpu.name, attributes, _quantities(total_capacity([gpu])), consumes=consumes, hardware=gpu)


def vfio_device(
    function: PassthroughFunction,
    product: str,
    capacity: Mapping[str, int],
    consumes: Sequence[CounterConsumption] = (),
) -> Device:
    """Return the device of a GPU or a virtual function for virtual machines.

    product: its product name; empty if `amdgpu` has not reported one.
    capacity: its capacities; empty if they are not known: only `amdgpu` reports them.
    """
    pci = function.pci
    attributes: dict[str, AttributeValue] = {
        "type": VFIO,
        "vendorID": f"{pci.vendor:#06x}",
        "deviceID": f"{pci.device:#06x}",
        "pciAddr": pci.address,
        "isVF": function.virtual,
        "iommuGroup": str(pci.iommu_group),
        "iommuFDEnabled": function.iommufd,
        **_location(pci.numa_node),
        **pci_attributes(pci),
        **_product(product),
    }
    if pci.physical_function:
        attributes["parentPciAddr"] = pci.physical_function
    return Device(function.name, attributes, _quantities(capacity), consumes=consumes, hardware=function)


def total_capacity(parts: Sequence[AmdGpu]) -> dict[str, int]:
    """Return the capacities of a GPU with these partitions."""
    return {
        "memory": sum(part.memory_bytes for part in parts),
        "computeUnits": sum(part.kfd.compute_units for part in parts),
        "simdUnits": sum(part.kfd.simd_units for part in parts),
    }


def _quantities(capacity: Mapping[str, int]) -> dict[str, Quantity]:
    return {
        name: Quantity.of(amount, binary=True) if name == "memory" else Quantity(amount)
        for name, amount in capacity.items()
    }


def _product(name: str) -> dict[str, AttributeValue]:
    return {"productName": name.translate(_REPLACED)[:_LONGEST_STRING]} if name else {}


def _location(numa_node: int | None) -> dict[str, AttributeValue]:
    """Return the attribute that was there before the standard one."""
    return {} if numa_node is None else {"numaNode": numa_node}


def _consumption(address: str, partitions: int) -> CounterConsumption:
    return CounterConsumption(counter_set_name(address), {_COUNTER: partitions})
