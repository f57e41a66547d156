"""One GPU as NVML and sysfs show it: read once per discovery, so that everything else is pure.

A GPU that cannot be read (lost, or without permission) is left out with its reason; the others go on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from dra_driver_gpu.nvml.api import Gpu, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import FunctionNotFoundError, NotSupportedError, NvmlError
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


@dataclass(frozen=True, slots=True)
class Size:
    """A profile that a GPU can be cut by, its name, and where it may lie."""

    profile: GpuInstanceProfile
    name: str
    placements: tuple[Placement, ...]


@dataclass(frozen=True, slots=True)
class ExistingMig:
    """A MIG device that somebody made: its whole GPU instance, or one of several that it is cut into (`shared`).

    `compute_slices` and `multiprocessors` are its own; memory and engines are the GPU instance's, for all in it.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """A GPU. `memory_bytes` is None where host and GPU share memory, `mig` False also where there is no MIG.

    `sizes` are the profiles it offers, MIG on or off; `existing` the MIG devices it has now. `pci` is None where sysfs
    does not show it.
    """

    minor: int
    uuid: str
    product: str
    brand: Brand
    architecture: Architecture
    compute_capability: tuple[int, int]
    driver_version: str
    cuda_version: int
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
    versions = nvml.driver_version(), nvml.cuda_version()
    cards, problems = [], {}
    for index in range(nvml.device_count()):
        try:
            cards.append(_read(nvml.device_by_index(index), host, *versions))
        except NvmlError as error:
            problems[index] = error
    return Found(tuple(sorted(cards, key=lambda card: card.minor)), problems)


def _read(gpu: Gpu, host: Host, driver_version: str, cuda_version: int) -> Card:
    address = gpu.pci().address
    memory = _if_supported(gpu.memory)
    total = memory.total_bytes if memory else None
    sizes = _sizes(gpu, total) if total else ()
    mig = mig_enabled(gpu)
    return Card(
        minor=gpu.minor_number(),
        uuid=gpu.uuid(),
        product=gpu.name(),
        brand=gpu.brand(),
        architecture=gpu.architecture(),
        compute_capability=gpu.compute_capability(),
        driver_version=driver_version,
        cuda_version=cuda_version,
        pci_address=address,
        memory_bytes=total,
        addressing_mode=_if_supported(gpu.addressing_mode),
        guest=_if_supported(gpu.virtualization_mode) is VirtualizationMode.VGPU,
        mig=mig,
        sizes=sizes,
        existing=_existing(gpu, sizes) if mig else (),
        pci=_pci(host, address),
    )


def _sizes(gpu: Gpu, total: int) -> tuple[Size, ...]:
    """The profiles by id, with the name that the driver gives or that follows from the memory."""
    found = []
    for profile in gpu_instance_profiles(gpu):
        placements = tuple(sorted(gpu.possible_placements(profile.id)))
        found.append(Size(profile, profile_name(profile, total), placements))
    return tuple(found)


def _existing(gpu: Gpu, sizes: tuple[Size, ...]) -> tuple[ExistingMig, ...]:
    by_id = {size.profile.id: size for size in sizes}
    found = []
    for device in mig_devices(gpu):
        info = gpu.gpu_instance(device.gpu_instance_id()).info()
        if (size := by_id.get(info.profile_id)) is not None:
            found.append(_mig(device, size, info.placement))
    return tuple(sorted(found, key=lambda mig: (mig.placement, mig.compute_instance)))


def _mig(device: MigDevice, size: Size, placement: Placement) -> ExistingMig:
    own = device.attributes()
    instances = device.gpu_instance_id(), device.compute_instance_id()
    return ExistingMig(device.uuid(), size, placement, *instances, own.compute_instance_slices, own.multiprocessors)


def _pci(host: Host, address: str) -> PciDevice | None:
    try:
        return read_pci_device(host, address)
    except DraError:  # a container without the host's sysfs: the GPU works, only its neighbourhood is unknown
        return None


def _if_supported(ask: Callable[[], _T]) -> _T | None:
    try:
        return ask()
    except (NotSupportedError, FunctionNotFoundError):
        return None
