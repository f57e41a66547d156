"""GPU models by name, and one GPU of a model: what the in-memory NVML and the stub library are filled with."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from dra_driver_gpu.nvml.memory import tables
from dra_driver_gpu.nvml.memory.tables import MigRow
from dra_driver_gpu.nvml.values import (
    AddressingMode,
    Architecture,
    Brand,
    ComputeInstanceProfile,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    VirtualizationMode,
)
from dra_sdk.errors import SettingsError

_NVIDIA: Final = 0x10DE
_COMPUTE_KINDS: Final = {
    1: ComputeInstanceProfileKind.SLICE_1,
    2: ComputeInstanceProfileKind.SLICE_2,
    3: ComputeInstanceProfileKind.SLICE_3,
    4: ComputeInstanceProfileKind.SLICE_4,
    7: ComputeInstanceProfileKind.SLICE_7,
}


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """A product. `memory_mib` is what NVML reports in total, None where GPU and host share memory.

    `mig` is empty for a GPU without MIG. `nvl_profile` adds the compute instance profile `SLICE_7_NVL`, which newer
    drivers offer beside `SLICE_7` and which is easily mistaken for it.
    """

    name: str
    architecture: Architecture
    compute_capability: tuple[int, int]
    memory_mib: int | None
    product_id: int
    mig: tuple[MigRow, ...] = ()
    brand: Brand = Brand.NVIDIA
    addressing_mode: AddressingMode | None = AddressingMode.HMM
    nvl_profile: bool = False

    @property
    def memory_slices(self) -> int:
        """Into how many memory slices MIG cuts this GPU; 0 without MIG."""
        return max((row.size for row in self.mig), default=0)

    @property
    def toggles_live(self) -> bool:
        """Whether MIG can be switched without resetting the GPU: from Hopper on."""
        return self.architecture >= Architecture.HOPPER


MODELS: Final = {
    "A100-40GB": GpuModel(
        name="NVIDIA A100-SXM4-40GB",
        architecture=Architecture.AMPERE,
        compute_capability=(8, 0),
        memory_mib=40960,
        product_id=0x20B0,
        mig=tables.A100_40GB,
    ),
    "A100-80GB": GpuModel(
        name="NVIDIA A100-SXM4-80GB",
        architecture=Architecture.AMPERE,
        compute_capability=(8, 0),
        memory_mib=81920,
        product_id=0x20B2,
        mig=tables.A100_80GB,
    ),
    "A30": GpuModel(
        name="NVIDIA A30",
        architecture=Architecture.AMPERE,
        compute_capability=(8, 0),
        memory_mib=24576,
        product_id=0x20B7,
        mig=tables.A30_24GB,
    ),
    "H100-80GB": GpuModel(
        name="NVIDIA H100 80GB HBM3",
        architecture=Architecture.HOPPER,
        compute_capability=(9, 0),
        memory_mib=81559,
        product_id=0x2330,
        mig=tables.H100_80GB,
    ),
    "H200-141GB": GpuModel(
        name="NVIDIA H200",
        architecture=Architecture.HOPPER,
        compute_capability=(9, 0),
        memory_mib=143771,
        product_id=0x2335,
        mig=tables.H200_141GB,
    ),
    "B200-180GB": GpuModel(
        name="NVIDIA B200",
        architecture=Architecture.BLACKWELL,
        compute_capability=(10, 0),
        memory_mib=183359,
        product_id=0x2901,
        mig=tables.B200_180GB,
    ),
    "RTX-PRO-6000": GpuModel(
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        architecture=Architecture.BLACKWELL,
        compute_capability=(12, 0),
        memory_mib=97887,
        product_id=0x2BB5,
        mig=tables.RTX_PRO_6000_96GB,
        brand=Brand.NVIDIA_RTX,
    ),
    "L4": GpuModel(
        name="NVIDIA L4",
        architecture=Architecture.ADA,
        compute_capability=(8, 9),
        memory_mib=23034,
        product_id=0x27B8,
    ),
    "T4": GpuModel(
        name="Tesla T4",
        architecture=Architecture.TURING,
        compute_capability=(7, 5),
        memory_mib=15360,
        product_id=0x1EB8,
        addressing_mode=None,
    ),
    "GB10": GpuModel(
        name="NVIDIA GB10",
        architecture=Architecture.BLACKWELL,
        compute_capability=(12, 1),
        memory_mib=None,
        product_id=0x2E12,
        addressing_mode=AddressingMode.ATS,
    ),
}


def model(name: str) -> GpuModel:
    """The model of this name, such as `A100-40GB`. Raises SettingsError that lists the names."""
    try:
        return MODELS[name]
    except KeyError:
        raise SettingsError(f"there is no GPU model {name!r}; the models are {', '.join(MODELS)}") from None


@dataclass(frozen=True, kw_only=True)
class FakeGpu:
    """One GPU of a node: its model, and what is its own.

    `pci_address` is as sysfs spells it. `mig` says whether MIG is on at the start, `guest` that the GPU is passed
    through to a virtual machine, where it cannot be reset. `ecc` switches error counters and events off.
    """

    model: GpuModel
    minor: int
    uuid: str
    pci_address: str
    mig: bool = False
    guest: bool = False
    ecc: bool = True
    virtualization: VirtualizationMode = VirtualizationMode.NONE

    @property
    def pci_device_id(self) -> int:
        """NVML's `pciDeviceId`: product above, vendor below."""
        return self.model.product_id << 16 | _NVIDIA


def fake_gpu(model_name: str, minor: int = 0, *, mig: bool = False, guest: bool = False, ecc: bool = True) -> FakeGpu:
    """The GPU with this minor number, of a model by name; UUID and PCI address follow from the minor number.

    Minor 0 is at 0000:10:00.0, 1 at 0000:11:00.0 and so on. Raises SettingsError for an unknown model.
    """
    return FakeGpu(
        model=model(model_name),
        minor=minor,
        uuid=f"GPU-{uuid.uuid5(uuid.NAMESPACE_DNS, f'gpu-{minor}.{model_name}')}",
        pci_address=f"0000:{0x10 + minor:02x}:00.0",
        mig=mig,
        guest=guest,
        ecc=ecc,
    )


def gpu_instance_profile(row: MigRow) -> GpuInstanceProfile:
    """A row of the tables as NVML tells it."""
    copy, decoder, encoder, jpeg, ofa = row.engines
    return GpuInstanceProfile(
        kind=row.kind,
        id=row.id,
        name=row.name,
        slices=row.slices,
        instances=row.instances,
        multiprocessors=row.multiprocessors,
        copy_engines=copy,
        decoders=decoder,
        encoders=encoder,
        jpeg_engines=jpeg,
        ofa_engines=ofa,
        memory_mib=row.memory_mib,
    )


def compute_instance_profiles(gpu: GpuModel, row: MigRow) -> tuple[ComputeInstanceProfile, ...]:
    """How a GPU instance of profile `row` can be cut: all sizes up to its own, but three quarters.

    A share has the multiprocessors of as many one-slice instances; the whole has those of the GPU instance.
    """
    found = [
        _compute_profile(gpu, row, slices, kind)
        for slices, kind in _COMPUTE_KINDS.items()
        if slices == row.slices or (slices < row.slices and (slices, row.slices) != (3, 4))
    ]
    if gpu.nvl_profile and found[-1].kind is ComputeInstanceProfileKind.SLICE_7:
        found.append(_compute_profile(gpu, row, row.slices, ComputeInstanceProfileKind.SLICE_7_NVL))
    return tuple(found)


def _compute_profile(
    gpu: GpuModel, row: MigRow, slices: int, kind: ComputeInstanceProfileKind
) -> ComputeInstanceProfile:
    copy, decoder, encoder, jpeg, ofa = row.engines
    whole = slices == row.slices
    return ComputeInstanceProfile(
        kind=kind,
        id=int(kind),
        name=row.name if whole else f"{slices}c.{row.name}",
        slices=slices,
        instances=row.slices // slices,
        multiprocessors=row.multiprocessors if whole else slices * gpu.mig[0].multiprocessors,
        shared_copy_engines=copy,
        shared_decoders=decoder,
        shared_encoders=encoder,
        shared_jpeg_engines=jpeg,
        shared_ofa_engines=ofa,
    )
