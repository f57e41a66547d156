"""One GPU as NVML and sysfs show it: read once per discovery, so that everything else is pure.

A GPU that cannot be read (lost, or without permission) is left out with its reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from dra_driver_gpu.nvml.api import Gpu, GpuInstance, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import (
    FunctionNotFoundError,
    InvalidArgumentError,
    NotFoundError,
    NotSupportedError,
    NvmlError,
)
from dra_driver_gpu.nvml.profiles import gpu_instance_profiles, mig_devices, mig_enabled, profile_name
from dra_driver_gpu.nvml.values import (
    AddressingMode,
    Architecture,
    Brand,
    GpuInstanceProfile,
    Placement,
    VirtualizationMode,
)
from dra_sdk import DraError
from dra_sdk.hardware import Host, PciDevice, read_pci_device

_T = TypeVar("_T")
_GONE: Final = (NotFoundError, InvalidArgumentError)  # what a handle answers whose instance was removed meanwhile


@dataclass(frozen=True, slots=True)
class Size:
    """A profile that a GPU can be cut by, its name, and where it may lie."""

    profile: GpuInstanceProfile
    name: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class ExistingMig:
    """A MIG device that somebody made: its whole GPU instance, or one of several that it is cut into (`shared`).

    `compute_slices` and `multiprocessors` are its own; memory and engines are the GPU instance's, for all in it. A GPU
    instance that is not cut at all takes its place, and is no device: it is `bare`, and has no UUID.
    """

    uuid: str
    size: Size
    placement: Placement
    gpu_instance: int
    compute_instance: int
    compute_slices: int
    multiprocessors: int

    @property
    def shared(self) -> bool:
        """Whether it has only a part of its GPU instance's multiprocessors."""
        return self.compute_slices != self.size.profile.slices

    @property
    def bare(self) -> bool:
        """Whether it is a GPU instance without compute instance."""
        return not self.uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU. `memory_bytes` is None where host and GPU share memory, `mig` False also where there is no MIG.

    What the driver is too old to tell is None, or unknown. `sizes` are the profiles it offers, MIG on or off;
    `existing` the MIG devices it has now. `pci` is None where sysfs does not show it.
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
    sizes: tuple[Size, ...] = ()
    existing: tuple[ExistingMig, ...] = ()
    pci: PciDevice | None = None

    @property
    def switches_freely(self) -> bool:
        """Whether MIG can be turned on and off without a reset of the GPU, which is so from Hopper on."""
        return Architecture.HOPPER <= self.architecture < Architecture.UNKNOWN

    def size(self, profile_id: int) -> Size | None:
        """The profile with this id."""
        return next((size for size in self.sizes if size.profile.id == profile_id), None)


@dataclass(frozen=True, slots=True)
class Found:
    """The GPUs of a node by minor number, and what is wrong with those that cannot be read, by index."""

    cards: tuple[Card, ...]
    problems: dict[int, NvmlError]


def read_cards(nvml: Nvml, host: Host) -> Found:
    """All GPUs that NVML knows. Raises NvmlError where the library itself does not answer."""
    versions = nvml.driver_version(), _if_told(nvml.cuda_version)
    cards, problems = [], {}
    for index in range(nvml.device_count()):
        try:
            cards.append(_read(nvml.device_by_index(index), host, *versions))
        except NvmlError as error:
            problems[index] = error
    return Found(tuple(sorted(cards, key=lambda card: card.minor)), problems)


def _read(gpu: Gpu, host: Host, driver_version: str, cuda_version: int | None) -> Card:
    address = gpu.pci().address
    memory = _if_told(gpu.memory)
    total = memory.total_bytes if memory else None
    sizes = _sizes(gpu, total) if total else ()
    mig = mig_enabled(gpu)
    return Card(
        minor=gpu.minor_number(),
        uuid=gpu.uuid(),
        product=gpu.name(),
        brand=_if_told(gpu.brand) or Brand.UNKNOWN,
        architecture=_if_told(gpu.architecture) or Architecture.UNKNOWN,
        compute_capability=gpu.compute_capability(),
        driver_version=driver_version,
        cuda_version=cuda_version,
        pci_address=address,
        memory_bytes=total,
        addressing_mode=_if_told(gpu.addressing_mode),
        guest=_if_told(gpu.virtualization_mode) is VirtualizationMode.VGPU,
        mig=mig,
        sizes=sizes,
        existing=_existing(gpu, sizes) if mig else (),
        pci=_pci(host, address),
    )


def _sizes(gpu: Gpu, total: int) -> tuple[Size, ...]:
    """The profiles; their names follow from the memory, because not every driver tells them."""
    found = []
    for profile in gpu_instance_profiles(gpu):
        placements = _if_told(partial(gpu.possible_placements, profile.id)) or ()
        found.append(Size(profile, profile_name(profile, total), tuple(sorted(placements))))
    return tuple(found)


def _existing(gpu: Gpu, sizes: tuple[Size, ...]) -> tuple[ExistingMig, ...]:
    """What takes place on the GPU now. Somebody may remove it meanwhile: what is gone is left out."""
    devices = mig_devices(gpu)
    found: list[ExistingMig] = []
    for size in sizes:
        for instance in _if_told(partial(gpu.gpu_instances, size.profile.id)) or ():
            try:
                found += _in_instance(instance, size, devices)
            except _GONE:
                continue
    return tuple(sorted(found, key=lambda mig: (mig.placement, mig.compute_instance)))


def _in_instance(instance: GpuInstance, size: Size, devices: Sequence[MigDevice]) -> Iterator[ExistingMig]:
    info, bare = instance.info(), True
    for device in devices:
        try:
            if device.gpu_instance_id() == info.id:
                bare = False
                yield _mig(device, size, info.placement)
        except _GONE:
            continue
    if bare:
        yield ExistingMig("", size, info.placement, info.id, -1, 0, 0)


def _mig(device: MigDevice, size: Size, placement: Placement) -> ExistingMig:
    own = device.attributes()
    instances = device.gpu_instance_id(), device.compute_instance_id()
    return ExistingMig(device.uuid(), size, placement, *instances, own.compute_instance_slices, own.multiprocessors)


def _pci(host: Host, address: str) -> PciDevice | None:
    try:
        return read_pci_device(host, address)
    except DraError:  # a container without the host's sysfs: the GPU works, only its neighbourhood is unknown
        return None


def _if_told(ask: Callable[[], _T]) -> _T | None:
    """The answer; None where GPU or driver do not have it."""
    try:
        return ask()
    except (NotSupportedError, FunctionNotFoundError):
        return None
