"""The GPU models that the in-memory NVML offers, with their MIG profiles, and GPUs of a model.

Sources of the profiles: `nvidia-smi mig -lgip` and `-lgipp` of A100, A30, H100, H200, B200 and RTX PRO 6000 (server
edition), and the MIG user guide for engines and placements. Where the guide and `-lgip` differ, `-lgip` is used: in the
guide A30's 1g.6gb has no decoder. Memory differs a little between driver releases: 2g.35gb of H200 was also seen with
33024 MiB, 1g.23gb of B200 with 22528.

For B200, `-lgip` gives multiprocessors, memory and the number of instances of every profile, and ids and engines of the
profiles with one and two slices. The rest of 3g.90gb, 4g.90gb and 7g.180gb is derived: the ids are those of all GPUs
with eight memory slices; decoders and JPEG engines are one per slice, as in the smaller profiles and in H100 (the guide
has one for every profile); copy engines are the guide's. Placements are H100's: the GPU instances seen on a B200 (3 to
5 with two slices, 9 and 13 with one) have the numbers that follow from these.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final

from dra_driver_gpu.nvml.mig import ComputeInstanceProfile, ComputeInstanceProfileKind, GpuInstanceProfile, Placement
from dra_driver_gpu.nvml.mig import GpuInstanceProfileKind as Kind
from dra_driver_gpu.nvml.values import AddressingMode, Architecture, Brand, VirtualizationMode
from dra_sdk import SettingsError

_NVIDIA: Final = 0x10DE
_COMPUTE_KINDS: Final = {
    1: ComputeInstanceProfileKind.SLICE_1,
    2: ComputeInstanceProfileKind.SLICE_2,
    3: ComputeInstanceProfileKind.SLICE_3,
    4: ComputeInstanceProfileKind.SLICE_4,
    7: ComputeInstanceProfileKind.SLICE_7,
}


@dataclass(frozen=True)
class MigRow:
    """One MIG profile of a model.

    kind: the number by which it is queried.
    id: the number that creates an instance of it.
    name: the driver's name.
    slices: compute slices.
    instances: how many fit on an empty GPU.
    multiprocessors: streaming multiprocessors.
    memory_mib: memory in MiB.
    engines: copy, decoder, encoder, JPEG and OFA (optical flow) engines, in this order.
    starts: the memory slices at which it can be placed.
    size: how many memory slices it takes.
    """

    kind: Kind
    id: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    memory_mib: int
    engines: tuple[int, int, int, int, int]
    starts: tuple[int, ...]
    size: int

    @property
    def placements(self) -> tuple[Placement, ...]:
        """Every placement of this profile on an empty GPU."""
        return tuple(Placement(start, self.size) for start in self.starts)


_ONES = (0, 1, 2, 3, 4, 5, 6)
_PAIRS = (0, 2, 4, 6)
_FIRST_PAIRS = (0, 2, 4)
_HALVES = (0, 4)
_WHOLE = (0,)
_QUARTERS_OF_12 = (0, 3, 6, 9)
_HALVES_OF_12 = (0, 6)

_A100_40GB = (
    MigRow(Kind.SLICE_1, 19, "1g.5gb", 1, 7, 14, 4864, (1, 0, 0, 0, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.5gb+me", 1, 1, 14, 4864, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.10gb", 1, 4, 14, 9856, (1, 1, 0, 0, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.10gb", 2, 3, 28, 9856, (2, 1, 0, 0, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.20gb", 3, 2, 42, 19968, (3, 2, 0, 0, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.20gb", 4, 1, 56, 19968, (4, 2, 0, 0, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.40gb", 7, 1, 98, 40192, (7, 5, 0, 1, 1), _WHOLE, 8),
)
_A100_80GB = (
    MigRow(Kind.SLICE_1, 19, "1g.10gb", 1, 7, 14, 9728, (1, 0, 0, 0, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.10gb+me", 1, 1, 14, 9728, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.20gb", 1, 4, 14, 19968, (1, 1, 0, 0, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.20gb", 2, 3, 28, 19968, (2, 1, 0, 0, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.40gb", 3, 2, 42, 40192, (3, 2, 0, 0, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.40gb", 4, 1, 56, 40192, (4, 2, 0, 0, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.80gb", 7, 1, 98, 80896, (7, 5, 0, 1, 1), _WHOLE, 8),
)
_A30_24GB = (
    MigRow(Kind.SLICE_1, 14, "1g.6gb", 1, 4, 14, 5952, (1, 1, 0, 0, 0), (0, 1, 2, 3), 1),
    MigRow(Kind.SLICE_1_REV1, 21, "1g.6gb+me", 1, 1, 14, 5952, (1, 1, 0, 1, 1), (0, 1, 2, 3), 1),
    MigRow(Kind.SLICE_2, 5, "2g.12gb", 2, 2, 28, 11968, (2, 2, 0, 0, 0), (0, 2), 2),
    MigRow(Kind.SLICE_2_REV1, 6, "2g.12gb+me", 2, 1, 28, 11968, (2, 2, 0, 1, 1), (0, 2), 2),
    MigRow(Kind.SLICE_4, 0, "4g.24gb", 4, 1, 56, 24000, (4, 4, 0, 1, 1), _WHOLE, 4),
)
_H100_80GB = (
    MigRow(Kind.SLICE_1, 19, "1g.10gb", 1, 7, 16, 9984, (1, 1, 0, 1, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.10gb+me", 1, 1, 16, 9984, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.20gb", 1, 4, 26, 20096, (1, 1, 0, 1, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.20gb", 2, 3, 32, 20096, (2, 2, 0, 2, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.40gb", 3, 2, 60, 40448, (3, 3, 0, 3, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.40gb", 4, 1, 64, 40448, (4, 4, 0, 4, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.80gb", 7, 1, 132, 81152, (8, 7, 0, 7, 1), _WHOLE, 8),
)
_H200_141GB = (
    MigRow(Kind.SLICE_1, 19, "1g.18gb", 1, 7, 16, 16384, (1, 1, 0, 1, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.18gb+me", 1, 1, 16, 16384, (1, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.35gb", 1, 4, 26, 33280, (1, 1, 0, 1, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.35gb", 2, 3, 32, 33280, (2, 2, 0, 2, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.71gb", 3, 2, 60, 71424, (3, 3, 0, 3, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.71gb", 4, 1, 64, 71424, (4, 4, 0, 4, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.141gb", 7, 1, 132, 143360, (8, 7, 0, 7, 1), _WHOLE, 8),
)
_B200_180GB = (
    MigRow(Kind.SLICE_1, 19, "1g.23gb", 1, 7, 18, 20992, (2, 1, 0, 1, 0), _ONES, 1),
    MigRow(Kind.SLICE_1_REV1, 20, "1g.23gb+me", 1, 1, 18, 20992, (2, 1, 0, 1, 1), _ONES, 1),
    MigRow(Kind.SLICE_1_REV2, 15, "1g.45gb", 1, 4, 30, 45312, (2, 1, 0, 1, 0), _PAIRS, 2),
    MigRow(Kind.SLICE_2, 14, "2g.45gb", 2, 3, 36, 45312, (4, 2, 0, 2, 0), _FIRST_PAIRS, 2),
    MigRow(Kind.SLICE_3, 9, "3g.90gb", 3, 2, 70, 91136, (6, 3, 0, 3, 0), _HALVES, 4),
    MigRow(Kind.SLICE_4, 5, "4g.90gb", 4, 1, 72, 91136, (8, 4, 0, 4, 0), _WHOLE, 4),
    MigRow(Kind.SLICE_7, 0, "7g.180gb", 7, 1, 148, 182784, (16, 7, 0, 7, 1), _WHOLE, 8),
)
_RTX_PRO_6000_96GB = (
    MigRow(Kind.SLICE_1, 14, "1g.24gb", 1, 4, 46, 24192, (1, 1, 1, 1, 0), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_REV1, 21, "1g.24gb+me", 1, 1, 46, 24192, (1, 1, 1, 1, 1), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_GFX, 47, "1g.24gb+gfx", 1, 4, 46, 24192, (1, 1, 1, 1, 0), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_ALL_ME, 65, "1g.24gb+me.all", 1, 1, 46, 24192, (1, 4, 4, 4, 1), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_1_NO_ME, 67, "1g.24gb-me", 1, 4, 46, 24192, (1, 0, 0, 0, 0), _QUARTERS_OF_12, 3),
    MigRow(Kind.SLICE_2, 5, "2g.48gb", 2, 2, 94, 48512, (2, 2, 2, 2, 0), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_2_GFX, 35, "2g.48gb+gfx", 2, 2, 94, 48512, (2, 2, 2, 2, 0), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_2_ALL_ME, 64, "2g.48gb+me.all", 2, 1, 94, 48512, (2, 4, 4, 4, 1), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_2_NO_ME, 66, "2g.48gb-me", 2, 2, 94, 48512, (2, 0, 0, 0, 0), _HALVES_OF_12, 6),
    MigRow(Kind.SLICE_4, 0, "4g.96gb", 4, 1, 188, 97408, (4, 4, 4, 4, 1), _WHOLE, 12),
    MigRow(Kind.SLICE_4_GFX, 32, "4g.96gb+gfx", 4, 1, 188, 97408, (4, 4, 4, 4, 1), _WHOLE, 12),
)


@dataclass(frozen=True, kw_only=True)
class GpuModel:
    """A product.

    name: the product name that NVML reports.
    architecture: its architecture.
    compute_capability: CUDA compute capability, major and minor.
    memory_mib: total memory that NVML reports, in MiB; None if GPU and host share memory.
    product_id: PCI device id.
    mig: its MIG profiles; empty without MIG.
    brand: its brand.
    addressing_mode: how it reaches system memory; None if the driver does not report it.
    nvl_profile: add the compute instance profile `SLICE_7_NVL`, which newer drivers offer beside `SLICE_7` and which is
        easily mistaken for it.
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
        """How many memory slices MIG divides this GPU into; 0 without MIG."""
        return max((row.size for row in self.mig), default=0)

    @property
    def toggles_live(self) -> bool:
        """As `Architecture.toggles_mig_live`, also for the number of a later architecture."""
        return self.architecture >= Architecture.HOPPER


MODELS: Final = {
    "A100-40GB": GpuModel(
        name="NVIDIA A100-SXM4-40GB",
        architecture=Architecture.AMPERE,
        compute_capability=(8, 0),
        memory_mib=40960,
        product_id=0x20B0,
        mig=_A100_40GB,
    ),
    "A100-80GB": GpuModel(
        name="NVIDIA A100-SXM4-80GB",
        architecture=Architecture.AMPERE,
        compute_capability=(8, 0),
        memory_mib=81920,
        product_id=0x20B2,
        mig=_A100_80GB,
    ),
    "A30": GpuModel(
        name="NVIDIA A30",
        architecture=Architecture.AMPERE,
        compute_capability=(8, 0),
        memory_mib=24576,
        product_id=0x20B7,
        mig=_A30_24GB,
    ),
    "H100-80GB": GpuModel(
        name="NVIDIA H100 80GB HBM3",
        architecture=Architecture.HOPPER,
        compute_capability=(9, 0),
        memory_mib=81559,
        product_id=0x2330,
        mig=_H100_80GB,
    ),
    "H200-141GB": GpuModel(
        name="NVIDIA H200",
        architecture=Architecture.HOPPER,
        compute_capability=(9, 0),
        memory_mib=143771,
        product_id=0x2335,
        mig=_H200_141GB,
    ),
    "B200-180GB": GpuModel(
        name="NVIDIA B200",
        architecture=Architecture.BLACKWELL,
        compute_capability=(10, 0),
        memory_mib=183359,
        product_id=0x2901,
        mig=_B200_180GB,
    ),
    "RTX-PRO-6000": GpuModel(
        name="NVIDIA RTX PRO 6000 Blackwell Server Edition",
        architecture=Architecture.BLACKWELL,
        compute_capability=(12, 0),
        memory_mib=97887,
        product_id=0x2BB5,
        mig=_RTX_PRO_6000_96GB,
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
    """Return the model with this name, such as `A100-40GB`. Raises SettingsError that lists the names."""
    try:
        return MODELS[name]
    except KeyError:
        raise SettingsError(f"there is no GPU model {name!r}; the models are {', '.join(MODELS)}") from None


@dataclass(frozen=True, kw_only=True)
class FakeGpu:
    """One GPU of a node.

    model: its model.
    minor: N of `/dev/nvidiaN`.
    uuid: its UUID.
    pci_address: its PCI address as sysfs writes it.
    mig: MIG is on at the start.
    guest: this is the inside of a virtual machine, where the GPU cannot be reset.
    ecc: it has ECC error counters and events.
    virtualization: what NVML reports as its virtualization mode.
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
        """NVML's `pciDeviceId`: the device id in the upper 16 bits, the vendor id in the lower."""
        return self.model.product_id << 16 | _NVIDIA


def fake_gpu(model_name: str, minor: int = 0, *, mig: bool = False, guest: bool = False, ecc: bool = True) -> FakeGpu:
    """Return a GPU of the model with this name; UUID and PCI address follow from its minor number.

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
    """Return a profile as NVML reports it."""
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
    """Return the compute instance profiles of a GPU instance: all sizes up to its own, except three of four slices.

    A smaller one has the multiprocessors of as many one-slice instances, the largest all of the GPU instance's.
    """
    profiles = [
        _compute_profile(gpu, row, slices, kind)
        for slices, kind in _COMPUTE_KINDS.items()
        if slices == row.slices or (slices < row.slices and (slices, row.slices) != (3, 4))
    ]
    if gpu.nvl_profile and profiles[-1].kind is ComputeInstanceProfileKind.SLICE_7:
        profiles.append(_compute_profile(gpu, row, row.slices, ComputeInstanceProfileKind.SLICE_7_NVL))
    return tuple(profiles)


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
