"""The GPUs of a node as NVML and sysfs show them: read in full to publish them, and as a cheap snapshot to see changes.

If a GPU cannot be read (lost, or without permission), its error is kept, and the other GPUs are read. An answer that a
GPU or its driver do not give is left out, whichever return code NVML has for that.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Final, TypeAlias, TypeVar

from dra_driver_gpu.gpu_record import GpuRecord
from dra_driver_gpu.nvml.api import Gpu, GpuInstance, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import NvmlError
from dra_driver_gpu.nvml.mig import GpuInstanceProfile, MigAttributes, Placement, profile_name
from dra_driver_gpu.nvml.queries import OptionalQueries, ask_each_gpu
from dra_driver_gpu.nvml.values import AddressingMode, Architecture, Brand, VirtualizationMode
from dra_sdk import DraError
from dra_sdk.hardware import Host, PciDevice, exists, leave_out, leave_out_fact, read_optional, read_pci_device
from dra_sdk.hardware.records import Records

T = TypeVar("T")
_DRIVER: Final = "the NVIDIA driver"
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
    driver_version: the version of the NVIDIA driver; empty if it does not report it.
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


@dataclass(frozen=True, slots=True, eq=False)
class GpuInventory:
    """The GPUs of a node, from one reading. Two readings are never equal.

    gpus: the GPUs by minor number.
    errors: why other GPUs cannot be read, by index.
    incomplete: the indices of GPUs that may have more to say the next time: those in `errors`, and those that gave an
        unexpected answer to an optional query.
    """

    gpus: tuple[GpuInfo, ...] = ()
    errors: Mapping[int, NvmlError] = field(default_factory=dict)
    incomplete: frozenset[int] = frozenset()


def read_inventory(
    nvml: Nvml, host: Host, optional: OptionalQueries | None = None, indices: Iterable[int] | None = None
) -> GpuInventory:
    """Return all GPUs that NVML knows, or those with these indices. Raises NvmlError if the library itself fails.

    A GPU that cannot be read is left out and named.
    """
    asker = (optional or OptionalQueries()).for_one_reading()
    versions = asker.ask(_DRIVER, nvml.driver_version) or "", asker.ask(_DRIVER, nvml.cuda_version)
    by_index, errors = ask_each_gpu(nvml, lambda gpu: GpuReader(gpu, asker).read(host, *versions), indices)
    for index, error in errors.items():
        leave_out(f"GPU with index {index}", error)
    partial_ones = (index for index, gpu in by_index.items() if asker.failed & {_DRIVER, gpu.uuid})
    gpus = tuple(sorted(by_index.values(), key=lambda gpu: gpu.minor))
    return GpuInventory(gpus, errors, frozenset([*errors, *partial_ones]))


def snapshot(nvml: Nvml, records: Records[GpuRecord], optional: OptionalQueries | None = None) -> Iterator[Seen]:
    """Yield what others can change about each GPU, and how a GPU fails: if it differs, read the inventory again.

    That is its numbers, MIG mode that we did not turn on, and instances that we did not create. It asks for nothing
    that stays the same, such as names and profiles.

    Raises NvmlError if the library itself fails, RecordError if a record cannot be read.
    """
    asker = optional or OptionalQueries()
    states, errors = ask_each_gpu(nvml, lambda gpu: GpuReader(gpu, asker).see(records))
    yield from states.values()
    yield from ((index, error.code) for index, error in errors.items())


def missing(nvml: Nvml, host: Host, last: GpuInventory, optional: OptionalQueries | None = None) -> Iterator[Seen]:
    """Yield what the last inventory lacks, for the snapshot: a GPU that was not fully read, and whether it can be now.

    Such a GPU is read again in full. If that succeeds, the answer differs from that for every other inventory: the
    inventory is then read again until it has the GPU. While it fails, the answer stays the same.

    Raises NvmlError if the library itself fails.
    """
    if last.incomplete:
        still = read_inventory(nvml, host, optional, last.incomplete).incomplete
        yield from ((index, None if index in still else last) for index in last.incomplete)


class GpuReader:
    """Reads one GPU: at once what tells it from others and can change at any time, more when it is asked for.

    Discovery, the snapshot and health read with it. Only UUID, minor number, name, compute capability and PCI address
    are required.

    gpu: the GPU.
    uuid: its UUID.
    minor: N of `/dev/nvidiaN`.
    mig: MIG is on; False without MIG.
    """

    def __init__(self, gpu: Gpu, optional: OptionalQueries) -> None:
        self.gpu, self._optional = gpu, optional
        self.uuid, self.minor = gpu.uuid(), gpu.minor_number()
        self.mig = optional.mig_enabled(self.uuid, gpu)

    def read(self, host: Host, driver_version: str, cuda_version: int | None) -> GpuInfo:
        """Return the GPU in full."""
        gpu, ask = self.gpu, self._ask
        address = gpu.pci().address
        memory = ask(gpu.memory)
        total = memory.total_bytes if memory else None
        profiles = tuple(self._profiles(total))
        return GpuInfo(
            minor=self.minor,
            uuid=self.uuid,
            product=gpu.name(),
            brand=ask(gpu.brand) or Brand.UNKNOWN,
            architecture=ask(gpu.architecture) or Architecture.UNKNOWN,
            compute_capability=gpu.compute_capability(),
            driver_version=driver_version,
            cuda_version=cuda_version,
            pci_address=address,
            memory_bytes=total,
            addressing_mode=ask(gpu.addressing_mode),
            guest=ask(gpu.virtualization_mode) is VirtualizationMode.VGPU,
            mig=self.mig,
            profiles=profiles,
            mig_devices=self._mig_devices(profiles) if self.mig else (),
            pci=_pci(host, address),
        )

    def see(self, records: Records[GpuRecord]) -> Seen:
        """Return what others can change about the GPU."""
        record = records.read(self.uuid)
        foreign = frozenset(self._foreign_instances(record)) if self.mig else frozenset()
        return self.uuid, self.minor, self.mig and not record.mig_mode, foreign

    def _ask(self, query: Callable[[], T]) -> T | None:
        return self._optional.ask(self.uuid, query)

    def _profiles(self, total: int | None) -> Iterator[MigProfile]:
        """Yield the profiles, by the driver's names; for a driver that is too old to have any, by their memory."""
        for profile in self._optional.profiles(self.uuid, self.gpu):
            placements = self._ask(partial(self.gpu.possible_placements, profile.id)) or ()
            name = profile.name or (profile_name(profile, total) if total else "")
            if name:
                yield MigProfile(profile, name, tuple(sorted(placements)))

    def _mig_devices(self, profiles: Sequence[MigProfile]) -> tuple[MigDeviceInfo, ...]:
        """Return what takes memory slices now, without instances that are destroyed while they are read."""
        devices = self._optional.mig_devices(self.uuid, self.gpu)
        mig_devices = [
            mig_device
            for profile in profiles
            for instance in self._optional.instances(self.uuid, self.gpu, profile.profile.id)
            for mig_device in self._in_instance(instance, profile, devices)
        ]
        return tuple(sorted(mig_devices, key=lambda mig: (mig.placement, mig.compute_instance)))

    def _in_instance(
        self, instance: GpuInstance, profile: MigProfile, devices: Sequence[MigDevice]
    ) -> Iterator[MigDeviceInfo]:
        info = self._ask(instance.info)
        if info is None:
            return
        inside = [device for device in devices if self._ask(device.gpu_instance_id) == info.id]
        for device in inside:
            mig_device = self._ask(partial(_mig_device, device, profile, info.placement))
            if mig_device is not None:
                yield mig_device
        if not inside:
            yield MigDeviceInfo("", profile, info.placement, info.id, -1, 0, 0)

    def _foreign_instances(self, record: GpuRecord) -> Iterator[Seen]:
        """Yield GPU instances that we did not create, also without compute instances, and the MIG devices in them."""
        ids = set()
        for profile in self._optional.profiles(self.uuid, self.gpu):
            for instance in self._optional.instances(self.uuid, self.gpu, profile.id):
                info = self._ask(instance.info)
                if info is not None and not record.has_instance(info.profile_id, info.placement.start):
                    ids.add(info.id)
                    yield info.id, info.profile_id, info.placement.start
        for device in self._optional.mig_devices(self.uuid, self.gpu):
            seen = self._ask(partial(_see_mig_device, device))
            if seen is not None and seen[0] in ids:
                yield seen


def _mig_device(device: MigDevice, profile: MigProfile, placement: Placement) -> MigDeviceInfo:
    own = device.attributes()
    ids = device.gpu_instance_id(), device.compute_instance_id()
    return MigDeviceInfo(device.uuid(), profile, placement, *ids, own.compute_instance_slices, own.multiprocessors)


def _pci(host: Host, address: str) -> PciDevice | None:
    try:
        return read_pci_device(host, address)
    except DraError as error:  # the GPU works, only its location is unknown
        if (
            read_optional(exists, host.sys / "bus/pci") is not False
        ):  # else this is a container without the host's sysfs
            leave_out_fact(f"PCI function {address}", error)
        return None


def _see_mig_device(device: MigDevice) -> tuple[int, str, MigAttributes]:
    """Return a MIG device with its attributes: a compute instance created again in another size may keep its UUID."""
    return device.gpu_instance_id(), device.uuid(), device.attributes()
