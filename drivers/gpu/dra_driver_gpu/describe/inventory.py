"""The GPUs of a node as NVML and sysfs show them: read in full to publish them, and as a cheap snapshot to see changes.

If a GPU cannot be read (lost, or without permission), its error is kept, and the other GPUs are read.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from dra_driver_gpu.gpu_record import GpuRecord
from dra_driver_gpu.nvml.api import Gpu, GpuInstance, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import NvmlError
from dra_driver_gpu.nvml.mig import GpuInstanceProfile, MigAttributes, Placement, profile_name
from dra_driver_gpu.nvml.queries import (
    GONE,
    ask_each_gpu,
    ask_existing,
    ask_optional,
    gpu_instance_profiles,
    gpu_instances,
    mig_devices,
    mig_enabled,
)
from dra_driver_gpu.nvml.values import AddressingMode, Architecture, Brand, VirtualizationMode
from dra_sdk import DraError
from dra_sdk.hardware import Host, PciDevice, read_pci_device
from dra_sdk.hardware.records import Records

Seen: TypeAlias = tuple[object, ...]
"""What a snapshot shows of one GPU; comparable and hashable."""


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A MIG profile that a GPU offers.

    profile: the profile.
    name: its name, such as `1g.5gb`.
    placements: where an instance of it can be placed on an empty GPU.
    """

    profile: GpuInstanceProfile
    name: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class MigDeviceInfo:
    """A MIG device that exists: a whole GPU instance, or one of several compute instances in it.

    A GPU instance without compute instance is no MIG device, but takes memory slices; it appears here without UUID.

    uuid: its UUID; empty for a GPU instance without compute instance.
    profile: the profile of its GPU instance, whose memory and engines it has.
    placement: the memory slices of its GPU instance.
    gpu_instance: the id of its GPU instance.
    compute_instance: the id of its compute instance; -1 without one.
    compute_slices: its own compute slices.
    multiprocessors: its own multiprocessors.
    """

    uuid: str
    profile: MigProfile
    placement: Placement
    gpu_instance: int
    compute_instance: int
    compute_slices: int
    multiprocessors: int

    @property
    def shared(self) -> bool:
        """Whether it has only a part of its GPU instance's multiprocessors."""
        return self.compute_slices != self.profile.profile.slices

    @property
    def bare(self) -> bool:
        """Whether it is a GPU instance without compute instance."""
        return not self.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuInfo:
    """A GPU.

    minor: N of `/dev/nvidiaN`.
    uuid: its UUID.
    product: its product name.
    brand: its brand; UNKNOWN if the driver is too old to report it.
    architecture: its architecture; UNKNOWN if the driver is too old to report it.
    compute_capability: its CUDA compute capability, major and minor.
    driver_version: the version of the NVIDIA driver.
    cuda_version: CUDA version of the driver, 1000 * major + 10 * minor; None if the driver is too old to report it.
    pci_address: its PCI address as sysfs writes it.
    memory_bytes: its memory; None if host and GPU share memory.
    addressing_mode: how it reaches system memory; None if the driver does not report it.
    guest: it is a vGPU inside a virtual machine.
    mig: MIG is on; False without MIG.
    profiles: the MIG profiles that it offers, MIG on or off.
    mig_devices: the MIG devices that it has now.
    pci: its PCI function; None if sysfs does not show it.
    """

    minor: int
    uuid: str
    product: str
    brand: Brand
    architecture: Architecture
    compute_capability: tuple[int, int]
    driver_version: str
    cuda_version: int | None
    pci_address: str
    memory_bytes: int | None = None
    addressing_mode: AddressingMode | None = None
    guest: bool = False
    mig: bool = False
    profiles: tuple[MigProfile, ...] = ()
    mig_devices: tuple[MigDeviceInfo, ...] = ()
    pci: PciDevice | None = None

    def profile(self, profile_id: int) -> MigProfile | None:
        """The profile with this id; None if the GPU does not offer it."""
        return next((each for each in self.profiles if each.profile.id == profile_id), None)


@dataclass(frozen=True, slots=True)
class Inventory:
    """The GPUs of a node.

    gpus: the GPUs by minor number.
    errors: why other GPUs cannot be read, by index.
    """

    gpus: tuple[GpuInfo, ...]
    errors: dict[int, NvmlError]


def read_inventory(nvml: Nvml, host: Host) -> Inventory:
    """All GPUs that NVML knows. Raises NvmlError if the library itself fails."""
    versions = nvml.driver_version(), ask_optional(nvml.cuda_version)
    found, errors = ask_each_gpu(nvml, lambda gpu: _read(gpu, host, *versions))
    return Inventory(tuple(sorted(found.values(), key=lambda gpu: gpu.minor)), errors)


def snapshot(nvml: Nvml, records: Records[GpuRecord]) -> Iterator[Seen]:
    """What others can change about each GPU, and how a GPU fails: if it differs, read the inventory again.

    That is its numbers, MIG mode that we did not turn on, and instances that we did not create. It asks for nothing
    that stays the same, such as names and profiles.

    Raises NvmlError if the library itself fails, RecordError if a record cannot be read.
    """
    found, errors = ask_each_gpu(nvml, lambda gpu: _see(gpu, records))
    yield from found.values()
    yield from ((index, error.code) for index, error in errors.items())


def _read(gpu: Gpu, host: Host, driver_version: str, cuda_version: int | None) -> GpuInfo:
    address = gpu.pci().address
    memory = ask_optional(gpu.memory)
    total = memory.total_bytes if memory else None
    profiles = _profiles(gpu, total) if total else ()
    mig = mig_enabled(gpu)
    return GpuInfo(
        minor=gpu.minor_number(),
        uuid=gpu.uuid(),
        product=gpu.name(),
        brand=ask_optional(gpu.brand) or Brand.UNKNOWN,
        architecture=ask_optional(gpu.architecture) or Architecture.UNKNOWN,
        compute_capability=gpu.compute_capability(),
        driver_version=driver_version,
        cuda_version=cuda_version,
        pci_address=address,
        memory_bytes=total,
        addressing_mode=ask_optional(gpu.addressing_mode),
        guest=ask_optional(gpu.virtualization_mode) is VirtualizationMode.VGPU,
        mig=mig,
        profiles=profiles,
        mig_devices=_mig_devices(gpu, profiles) if mig else (),
        pci=_pci(host, address),
    )


def _profiles(gpu: Gpu, total: int) -> tuple[MigProfile, ...]:
    """The names are derived from the memory, because not every driver reports them."""
    found = []
    for profile in gpu_instance_profiles(gpu):
        placements = ask_optional(partial(gpu.possible_placements, profile.id)) or ()
        found.append(MigProfile(profile, profile_name(profile, total), tuple(sorted(placements))))
    return tuple(found)


def _mig_devices(gpu: Gpu, profiles: tuple[MigProfile, ...]) -> tuple[MigDeviceInfo, ...]:
    """What takes memory slices now, without instances that are destroyed while they are read."""
    devices = mig_devices(gpu)
    found: list[MigDeviceInfo] = []
    for profile in profiles:
        for instance in ask_optional(partial(gpu.gpu_instances, profile.profile.id)) or ():
            try:
                found += _in_instance(instance, profile, devices)
            except GONE:
                continue
    return tuple(sorted(found, key=lambda mig: (mig.placement, mig.compute_instance)))


def _in_instance(instance: GpuInstance, profile: MigProfile, devices: Sequence[MigDevice]) -> Iterator[MigDeviceInfo]:
    info, bare = instance.info(), True
    for device in devices:
        try:
            if device.gpu_instance_id() == info.id:
                bare = False
                yield _mig_device(device, profile, info.placement)
        except GONE:
            continue
    if bare:
        yield MigDeviceInfo("", profile, info.placement, info.id, -1, 0, 0)


def _mig_device(device: MigDevice, profile: MigProfile, placement: Placement) -> MigDeviceInfo:
    own = device.attributes()
    ids = device.gpu_instance_id(), device.compute_instance_id()
    return MigDeviceInfo(device.uuid(), profile, placement, *ids, own.compute_instance_slices, own.multiprocessors)


def _pci(host: Host, address: str) -> PciDevice | None:
    try:
        return read_pci_device(host, address)
    except DraError:  # a container without the host's sysfs: the GPU works, only its location is unknown
        return None


def _see(gpu: Gpu, records: Records[GpuRecord]) -> Seen:
    uuid, mig = gpu.uuid(), mig_enabled(gpu)
    record = records.read(uuid)
    foreign = frozenset(_foreign_instances(gpu, record)) if mig else frozenset()
    return uuid, gpu.minor_number(), mig and not record.mig_mode, foreign


def _foreign_instances(gpu: Gpu, record: GpuRecord) -> Iterator[Seen]:
    """GPU instances that we did not create, with or without compute instances, and the MIG devices in them."""
    instances = ask_existing(gpu_instances(gpu), _see_instance)
    foreign = [each for each in instances if not record.has_instance(*each[1:])]
    yield from foreign
    ids = {each[0] for each in foreign}
    yield from (device for device in ask_existing(mig_devices(gpu), _see_mig_device) if device[0] in ids)


def _see_instance(instance: GpuInstance) -> tuple[int, int, int]:
    info = instance.info()
    return info.id, info.profile_id, info.placement.start


def _see_mig_device(device: MigDevice) -> tuple[int, str, MigAttributes]:
    """With its attributes: a compute instance that is created again in another size may keep its UUID."""
    return device.gpu_instance_id(), device.uuid(), device.attributes()
