"""One device of a ResourceSlice: names, attributes, capacities and counters, as users of `gpu.nvidia.com` know them.

Devices are named after the minor number of their GPU, not its index: indices shift when a GPU falls off the bus.
Counters keep devices of one GPU apart (KEP-4815).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import Final

from dra_driver_gpu.describe.inventory import GpuInfo, MigProfile
from dra_driver_gpu.nvml.mig import GpuInstanceProfile, Placement
from dra_sdk import AttributeValue, Quantity, Version
from dra_sdk.hardware import pci_attributes
from dra_sdk.hardware.health import Units
from dra_sdk.hardware.sharing import MEMORY

DRIVER_NAME: Final = "gpu.nvidia.com"
"""The driver, and the domain of its attributes."""
LONGEST_STRING: Final = 64  # characters of a string attribute (resource.k8s.io/v1)
_ENGINES: Final = {
    "multiprocessors": "multiprocessors",
    "copyEngines": "copy_engines",
    "decoders": "decoders",
    "encoders": "encoders",
    "jpegEngines": "jpeg_engines",
    "ofaEngines": "ofa_engines",
}
"""Capacity → field of a profile. The counter is the field with dashes."""


class GpuKind(Enum):
    """What a device is; the value is its attribute `type`."""

    GPU = "gpu"
    MIG = "mig"
    VFIO = "vfio"


@dataclass(frozen=True, slots=True)
class MigPlace:
    """Which MIG device of a GPU a device is, whether it exists or not.

    profile: the profile of its GPU instance.
    placement: the memory slices of its GPU instance.
    compute: the id of its compute instance if that is one of several in its GPU instance, else None.
    """

    profile: GpuInstanceProfile
    placement: Placement
    compute: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuDevice:
    """What discovery knows of a device: its `hardware`, for preparation and health.

    kind: what it is.
    pci_address: the PCI address of the GPU.
    uuid: the UUID of the GPU; empty for a GPU that NVML does not show because it is bound to VFIO.
    mig: which MIG device of the GPU it is; None for other kinds.
    graphics: whether graphics APIs work in it.
    """

    kind: GpuKind
    pci_address: str
    uuid: str = ""
    mig: MigPlace | None = None
    graphics: bool = True

    @property
    def units(self) -> Units:
        """Its memory slices, or all of the GPU: devices with slices in common have faults in common."""
        return slice_units(self.mig.placement) if self.mig else Units()


def gpu_name(minor: int) -> str:
    """Return the name of a whole GPU: `gpu-0`."""
    return f"gpu-{minor}"


def vfio_name(index: int) -> str:
    """Return the name of a GPU for virtual machines, by its index in the order of PCI addresses: `gpu-vfio-0`."""
    return f"gpu-vfio-{index}"


def mig_name(minor: int, profile: str, profile_id: int, start: int, compute: int | None = None) -> str:
    """Return the name of a MIG device: `gpu-0-mig-1g5gb-19-3` for profile `1g.5gb` with id 19 at memory slice 3.

    Compute instance 1 of several in a GPU instance: `gpu-0-mig-1c3g20gb-ci1-9-0`.
    """
    label = profile.replace(".", "").replace("+", "-") + ("" if compute is None else f"-ci{compute}")
    return f"{gpu_name(minor)}-mig-{label}-{profile_id}-{start}"


def counter_set_name(minor: int) -> str:
    """Return the counters that all devices of one GPU share."""
    return f"{gpu_name(minor)}-counter-set"


def slice_units(placement: Placement) -> Units:
    """Return the memory slices of a placement as a part of the GPU."""
    return Units.of(_slices(placement))


def gpu_attributes(gpu: GpuInfo) -> dict[str, AttributeValue]:
    """Return the attributes of a whole GPU."""
    return {"type": "gpu", "uuid": gpu.uuid, **_common_attributes(gpu)}


def mig_attributes(gpu: GpuInfo, profile: str, uuid: str | None = None) -> dict[str, AttributeValue]:
    """Return the attributes of a MIG device; one that does not exist yet has no UUID."""
    own: dict[str, AttributeValue] = {"type": "mig", "parentUUID": gpu.uuid, "profile": profile}
    return (own if uuid is None else {**own, "uuid": uuid}) | _common_attributes(gpu)


def cuda_version(number: int) -> Version:
    """Return the version that NVML reports as 1000 * major + 10 * minor: 13000 → `13.0.0`."""
    return Version.lenient(f"{number // 1000}.{number % 1000 // 10}")


def gpu_capacity(gpu: GpuInfo, *, like_mig: bool = False) -> dict[str, Quantity]:
    """Return the capacity of a whole GPU: its memory; none if host and GPU share memory.

    With `like_mig`, the capacities that its MIG devices have, of each the largest; the memory too is then that of the
    largest MIG device. So one request can select GPUs and MIG devices, as with the existing driver.
    """
    if not like_mig or not gpu.profiles:
        return {} if gpu.memory_bytes is None else {MEMORY: Quantity.of(gpu.memory_bytes, binary=True)}
    capacities = [mig_capacity(profile.profile) for profile in gpu.profiles]
    return {name: max(capacity[name] for capacity in capacities) for name in capacities[0]}


def mig_capacity(profile: GpuInstanceProfile) -> dict[str, Quantity]:
    """Return the capacities of a MIG device of this profile; a capacity of zero is there as well."""
    engines = {name: Quantity(getattr(profile, field)) for name, field in _ENGINES.items()}
    return {**engines, MEMORY: _mebibytes(profile.memory_mib)}


def slice_capacity(placement: Placement) -> dict[str, int]:
    """Return a capacity of one for each memory slice that an existing MIG device has."""
    return {f"memorySlice{number}": 1 for number in _slices(placement)}


def mig_counters(profile: MigProfile, placement: Placement) -> dict[str, Quantity]:
    """Return the counters that a MIG device consumes."""
    slices = {f"memory-slice-{number}": Quantity(1) for number in _slices(placement)}
    return {**_counters(profile.profile), **slices}


def gpu_counters(gpu: GpuInfo) -> dict[str, Quantity]:
    """Return all counters of a GPU: for each the most that any profile needs, and one for each memory slice.

    A profile that fits several times needs its amount as many times: some GPUs report an engine for each small instance
    that the largest instance reports only once.
    """
    most: dict[str, Quantity] = {}
    for profile in gpu.profiles:
        for name, amount in _counters(profile.profile, profile.profile.instances).items():
            most[name] = max(amount, most.get(name, Quantity(0)))
    length = max((placement.start + placement.size for placement in _placements(gpu.profiles)), default=0)
    return {**most, **{f"memory-slice-{number}": Quantity(1) for number in range(length)}}


def _common_attributes(gpu: GpuInfo) -> dict[str, AttributeValue]:
    """Return what a GPU and all its MIG devices have in common."""
    attributes: dict[str, AttributeValue] = {
        "productName": gpu.product[:LONGEST_STRING],
        "brand": gpu.brand.label,
        "architecture": gpu.architecture.label,
        "cudaComputeCapability": Version.lenient(f"{gpu.compute_capability[0]}.{gpu.compute_capability[1]}"),
    }
    if gpu.driver_version:
        attributes["driverVersion"] = Version.lenient(gpu.driver_version)
    if gpu.cuda_version is not None:
        attributes["cudaDriverVersion"] = cuda_version(gpu.cuda_version)
    if gpu.addressing_mode is not None:
        attributes["addressingMode"] = gpu.addressing_mode.label
    if gpu.pci is not None:
        attributes |= pci_attributes(gpu.pci)
    return attributes


def _counters(profile: GpuInstanceProfile, times: int = 1) -> dict[str, Quantity]:
    engines = {field.replace("_", "-"): Quantity(times * getattr(profile, field)) for field in _ENGINES.values()}
    return {**engines, MEMORY: _mebibytes(times * profile.memory_mib)}


def _mebibytes(number: int) -> Quantity:
    return Quantity(f"{number}Mi")


def _slices(placement: Placement) -> range:
    return range(placement.start, placement.start + placement.size)


def _placements(profiles: Iterable[MigProfile]) -> Iterable[Placement]:
    return (placement for profile in profiles for placement in profile.placements)
