"""The pool that a node publishes: which devices each GPU has, and which of them exclude each other.

| GPU | published |
|---|---|
| MIG off, static | the whole GPU |
| MIG on, static | the MIG devices that exist; slices without MIG device are unused |
| dynamic, from Hopper on | the whole GPU and every possible MIG device |
| dynamic, before Hopper | MIG off: the whole GPU; MIG on: every possible MIG device; a change needs a reset |
| dynamic, somebody else turned MIG on | every possible MIG device; we do not turn it off for a whole GPU |
| dynamic, somebody else created MIG devices | these, and every possible MIG device beside which they fit |
| we turned MIG on, and there is no MIG device | the whole GPU, for which MIG is turned off |
| passthrough | a VFIO device as well, unless MIG devices exist |

Devices of one GPU that exclude each other consume counters of one counter set. So the scheduler never allocates both,
and preparing one does not withdraw the others. An API server that drops counters gets the whole GPU; where MIG
is on, as many MIG devices as fit together.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dra_driver_gpu.describe.devices import (
    GpuDevice,
    GpuKind,
    MigPlace,
    counter_set_name,
    gpu_attributes,
    gpu_capacity,
    gpu_counters,
    gpu_name,
    mig_attributes,
    mig_capacity,
    mig_counters,
    mig_name,
    slice_capacity,
)
from dra_driver_gpu.describe.inventory import GpuInfo, MigDeviceInfo, MigProfile
from dra_driver_gpu.describe.passthrough import PassthroughGpu, passthrough_device
from dra_driver_gpu.nvml.mig import Placement
from dra_sdk import AttributeValue, Capacity, CounterConsumption, CounterSet, Device, Quantity, ResourcePool
from dra_sdk.hardware import NUMA_NODE, Host, numa_list_attribute, read_cpus, read_numa_nodes
from dra_sdk.hardware.sharing import Sharing

_WHOLE: Final = {"whole": 1}
_MOST: Final = 32  # attributes and capacities of one device (resource.k8s.io/v1)


def _always(*_: object) -> bool:
    return True


def _never(*_: object) -> bool:
    return False


def _unknown(*_: object) -> None:
    return None


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """What a node publishes.

    dynamic_mig: every possible MIG device, created when it is allocated.
    passthrough: a VFIO device for each GPU as well.
    sharing: how claims share a device.
    selected: whether a GPU is published at all.
    created_by_us: whether we created a MIG device, so that we may remove it.
    mig_turned_on_by_us: whether we turned MIG on, so that we may turn it off.
    product_of: the product name of a GPU that is bound to VFIO; None if we did not bind it.
    """

    dynamic_mig: bool = False
    passthrough: bool = False
    sharing: Sharing = field(default_factory=Sharing)
    selected: Callable[[GpuInfo], bool] = _always
    created_by_us: Callable[[GpuInfo, MigDeviceInfo], bool] = _always
    mig_turned_on_by_us: Callable[[GpuInfo], bool] = _never
    product_of: Callable[[PassthroughGpu], str | None] = _unknown


def make_pool(
    name: str, gpus: Iterable[GpuInfo], passthrough: Sequence[PassthroughGpu], options: PublishOptions
) -> ResourcePool:
    """Return all devices of a node, GPU by GPU, with one counter set for each GPU that can be used in several ways."""
    devices: list[Device] = []
    counter_sets: list[CounterSet] = []
    by_address = {gpu.pci_address: gpu for gpu in gpus}
    for gpu in by_address.values():
        if options.selected(gpu):
            gpu_devices, counters = _devices(gpu, _sibling(gpu, passthrough) if options.passthrough else None, options)
            devices += gpu_devices
            counter_sets += [counters] if counters else []
    if options.passthrough:
        bound = [gpu for gpu in passthrough if gpu.bound and gpu.pci.address not in by_address]
        devices += [passthrough_device(gpu, options.product_of(gpu)) for gpu in bound]
    first = [device.name for device in devices if device.attributes["type"] != GpuKind.VFIO.value]
    return ResourcePool(name, devices, counter_sets, without_counters=first)


def with_numa_lists(pool: ResourcePool, host: Host) -> ResourcePool:
    """Return the pool with `numaNode` as a list: the device's node, then the nearest nodes of its socket (KEP-5491).

    So a GPU matches CPUs, memory and NICs on its socket also where a socket has several NUMA nodes.
    """
    nodes, topology = read_numa_nodes(host), read_cpus(host)

    def listed(device: Device) -> Device:
        node = device.attributes.get(NUMA_NODE)
        if not isinstance(node, int):
            return device
        return replace(device, attributes={**device.attributes, **numa_list_attribute(node, nodes, topology)})

    return replace(pool, devices=[listed(device) for device in pool.devices])


def without_devices(gpus: Iterable[GpuInfo], pool: ResourcePool) -> Iterator[GpuInfo]:
    """Yield the GPUs with MIG on that have no device in the pool, because they have no MIG device."""
    used = {device.attributes.get("parentUUID") for device in pool.devices}
    used |= {device.attributes.get("uuid") for device in pool.devices}
    yield from (gpu for gpu in gpus if gpu.mig and gpu.uuid not in used)


def _devices(
    gpu: GpuInfo, vfio: PassthroughGpu | None, options: PublishOptions
) -> tuple[list[Device], CounterSet | None]:
    foreign = [mig for mig in gpu.mig_devices if not options.created_by_us(gpu, mig)]
    possible = list(_possible(gpu, foreign)) if _creates_mig(gpu, options) else []
    existing = list(_existing(gpu, [mig for mig in foreign if mig.shared] if possible else gpu.mig_devices))
    whole = not existing and not foreign and (not gpu.mig or options.mig_turned_on_by_us(gpu))
    counters = gpu_counters(gpu) if possible else _WHOLE
    all_of_it = [CounterConsumption(counter_set_name(gpu.minor), counters)]
    alternatives = bool(possible) or (whole and vfio is not None)
    devices = [_gpu(gpu, all_of_it if alternatives else [], options)] if whole else []
    devices = [options.sharing.apply(device) for device in [*devices, *possible, *existing]]
    if vfio is not None and whole:
        devices.append(replace(passthrough_device(vfio, gpu.product, gpu.uuid), consumes=all_of_it))
    return devices, CounterSet(counter_set_name(gpu.minor), counters) if alternatives else None


def _creates_mig(gpu: GpuInfo, options: PublishOptions) -> bool:
    """Return whether MIG devices are created on demand: not in a vGPU guest; before Hopper only if MIG is on."""
    return _divisible(gpu, options) and (gpu.mig or gpu.architecture.toggles_mig_live)


def _divisible(gpu: GpuInfo, options: PublishOptions) -> bool:
    return options.dynamic_mig and bool(gpu.profiles) and not gpu.guest


def _gpu(gpu: GpuInfo, consumes: Sequence[CounterConsumption], options: PublishOptions) -> Device:
    capacity = gpu_capacity(gpu, like_mig=_divisible(gpu, options))
    hardware = GpuDevice(kind=GpuKind.GPU, pci_address=gpu.pci_address, uuid=gpu.uuid)
    return Device(gpu_name(gpu.minor), gpu_attributes(gpu), capacity, consumes=consumes, hardware=hardware)


def _mig(gpu: GpuInfo, profile: MigProfile, placement: Placement, compute: int | None = None) -> GpuDevice:
    place = MigPlace(profile.profile, placement, compute)
    graphics = profile.name.endswith("+gfx")
    return GpuDevice(kind=GpuKind.MIG, pci_address=gpu.pci_address, uuid=gpu.uuid, mig=place, graphics=graphics)


def _possible(gpu: GpuInfo, foreign: Sequence[MigDeviceInfo]) -> Iterator[Device]:
    """Yield every profile at every placement: small ones first, and each first where most others still fit beside it.

    The scheduler takes the first device that fits, so this order keeps slices free for large profiles. It is the order
    in which NVIDIA's driver itself chooses placements.
    """
    possible = [
        (profile, placement)
        for profile in gpu.profiles
        for placement in profile.placements
        if not any(_blocks(mig, profile, placement) for mig in foreign)
    ]

    def order(device: tuple[MigProfile, Placement]) -> tuple[int, ...]:
        profile, placement = device
        lost = sum(placement.overlaps(other) for _, other in possible)
        return profile.profile.slices, profile.profile.memory_mib, profile.profile.id, lost, placement.start

    for profile, placement in sorted(possible, key=order):
        yield Device(
            mig_name(gpu.minor, profile.name, profile.profile.id, placement.start),
            mig_attributes(gpu, profile.name),
            mig_capacity(profile.profile),
            consumes=[CounterConsumption(counter_set_name(gpu.minor), mig_counters(profile, placement))],
            hardware=_mig(gpu, profile, placement),
        )


def _blocks(mig: MigDeviceInfo, profile: MigProfile, placement: Placement) -> bool:
    """Return whether a foreign MIG device takes its slices; one with this very profile and placement can be used."""
    same = mig.profile.profile.id == profile.profile.id and mig.placement == placement and not mig.shared
    return mig.placement.overlaps(placement) and not same


def _existing(gpu: GpuInfo, devices: Iterable[MigDeviceInfo]) -> Iterator[Device]:
    """Yield MIG devices as they are; compute instances of one GPU instance have its id in common.

    Their memory slices are capacities if the device can have so many: the largest of an RTX PRO 6000 has 12 slices.
    """
    for mig in (device for device in devices if not device.bare):
        name, compute = mig.profile.name, None
        capacity: dict[str, Capacity | Quantity | int | str] = {**mig_capacity(mig.profile.profile)}
        own: dict[str, AttributeValue] = {}
        if mig.shared:
            name, compute = f"{mig.compute_slices}c.{name}", mig.compute_instance
            capacity["multiprocessors"] = mig.multiprocessors
            own = {"gpuInstance": mig.gpu_instance}
        attributes = {**mig_attributes(gpu, name, mig.uuid), **own}
        if len(attributes) + len(capacity) + mig.placement.size < _MOST:  # one is left for shares
            capacity |= slice_capacity(mig.placement)
        yield Device(
            mig_name(gpu.minor, name, mig.profile.profile.id, mig.placement.start, compute),
            attributes,
            capacity,
            hardware=_mig(gpu, mig.profile, mig.placement, compute),
        )


def _sibling(gpu: GpuInfo, passthrough: Sequence[PassthroughGpu]) -> PassthroughGpu | None:
    return next((vfio for vfio in passthrough if vfio.pci.address == gpu.pci_address), None)
