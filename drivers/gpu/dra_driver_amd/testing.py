"""A node with AMD GPUs, made of files: what KFD, DRM and PCI show of them in sysfs, and what the kernel does there.

    write_gpus(tmp_path, [mi300x(), mi300x("cpx", "nps4"), RX7900XTX])
    KernelEffects(tmp_path, [mi300x()]).write(.../current_compute_partition, "CPX")     # eight nodes of KFD

Sources: `/sys` of nodes with MI300X in these modes, kernel 6.8 with amdgpu 6.12; Documentation/gpu/amdgpu/ras.rst for
`ras`; amdgpu_xcp_drv.c for the DRM devices, which exist for as many partitions as a GPU can have.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from dra_sdk.hardware import Host
from dra_sdk.hardware.node_access import WriteError
from dra_sdk.testing import FakeEffects, FakeNode
from dra_sdk.testing.sysfs import FakeMachine, FakePci, regular_machine

DRM_MAJOR: Final = 226
KFD_MAJOR: Final = 235
_MISC_MAJOR: Final = 10
_MISC_MINOR: Final = 196
FIRST_RENDER: Final = 128
FIRST_GROUP: Final = 20
_PROCESSING: Final = 0x120000
_DISPLAY: Final = 0x030000
_PARTS: Final = {"": 1, "spx": 1, "dpx": 2, "qpx": 4, "cpx": 8}
_AMD: Final = 0x1002
_DRIVERS: Final = ("amdgpu", "vfio-pci")


@dataclass(frozen=True, kw_only=True)
class FakeAmdGpu:
    """One GPU.

    device: its PCI device id.
    compute_units: its compute units.
    simd_per_unit: SIMD units per compute unit.
    vram_bytes: its memory.
    gfx: the version of its instruction set, as KFD writes it.
    class_code: its PCI class.
    product: its product name; empty if the board does not report it.
    compute: its compute partition mode, such as `cpx`; empty if it cannot be partitioned.
    memory: its memory partition mode, such as `nps4`; empty likewise.
    ras: whether it counts errors.
    driver: its driver; KFD and DRM know it only with `amdgpu`.
    vfs: the number of its virtual functions, which have no driver.
    """

    device: int
    compute_units: int
    simd_per_unit: int
    vram_bytes: int
    gfx: int
    class_code: int = _DISPLAY
    product: str = ""
    compute: str = ""
    memory: str = ""
    ras: bool = False
    driver: str | None = "amdgpu"
    vfs: int = 0

    @property
    def parts(self) -> int:
        """The number of its partitions."""
        return _PARTS[self.compute]

    @property
    def drm_devices(self) -> int:
        """The number of its DRM devices: one for each partition that it can have."""
        return max(_PARTS.values()) if self.compute else 1


RX7900XTX: Final = FakeAmdGpu(device=0x744C, compute_units=96, simd_per_unit=2, vram_bytes=25_753_026_560, gfx=110000)
_MI300X: Final = FakeAmdGpu(
    device=0x74A1,
    compute_units=304,
    simd_per_unit=4,
    vram_bytes=206_141_652_992,
    gfx=90402,
    class_code=_PROCESSING,
    product="AMD Instinct MI300X OAM",
    compute="spx",
    memory="nps1",
    ras=True,
)


def mi300x(compute: str = "spx", memory: str = "nps1", *, driver: str | None = "amdgpu", vfs: int = 0) -> FakeAmdGpu:
    """Return an MI300X with 304 compute units and 192 GB, in these modes."""
    return replace(_MI300X, compute=compute, memory=memory, driver=driver, vfs=vfs)


FIXTURES: Final = {"mi300x-x8": (mi300x(),) * 8, "mi300x-x8-cpx": (mi300x("cpx", "nps4"),) * 8}
"""The GPUs of each fixture of the driver, `fixtures/NAME.tar.gz` in its package."""


def write_fixture(name: str, path: Path) -> None:
    """Write the archive of a fixture; the same name gives the same archive. Write all again if `write_gpus` changes."""
    with TemporaryDirectory() as folder:
        node = FakeNode(Path(folder))
        write_gpus(node.root, FIXTURES[name])
        node.file("/proc/sys/kernel/random/boot_id", "00000000-0000-4000-8000-000000000000\n")
        node.device_node("/dev/kfd", major=KFD_MAJOR, minor=0)
        for minor, misc in enumerate(("vfio/vfio", "iommu"), _MISC_MINOR):
            node.device_node(f"/dev/{misc}", major=_MISC_MAJOR, minor=minor)
        for file in (node.root / "dev/dri").iterdir():
            minor = int(file.name.removeprefix("card").removeprefix("renderD"))
            node.device_node(f"/dev/dri/{file.name}", major=DRM_MAJOR, minor=minor)
        node.write_archive(path)


def write_gpus(root: Path, gpus: Sequence[FakeAmdGpu], *, machine: FakeMachine | None = None) -> Host:
    """Write a machine with these GPUs, the first as card 1 with renderD128; partitions follow their GPU.

    GPU n is at 0000:(c1 + n):00.0 below a root of its own, on NUMA node n modulo 2, in IOMMU group 20 + n; its virtual
    function m is at 0000:(c1 + n):02.m in group 100 (n + 1) + m.
    """
    placed = tuple(_placed(gpus))
    functions = [function for gpu in placed for function in gpu.functions]
    base = machine or regular_machine(sockets=2, cores=4)
    host = replace(base, pci=(*base.pci, *functions)).write(root)
    files = _GpuFiles(host)
    files.sys("module/amdgpu/version", "6.12.12.60401")
    files.sys("module/amdgpu/srcversion", "1A2B3C4D5E6F708192A3B4C")
    files.sys("class/kfd/kfd/dev", f"{KFD_MAJOR}:0")
    files.sys("class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\nsimd_count 0\ndrm_render_minor 0")
    for name in ("kfd", "vfio/vfio", "iommu"):
        files.node(name)
    for driver in _DRIVERS:
        for name in ("bind", "unbind"):
            files.sys(f"bus/pci/drivers/{driver}/{name}", "")
    for function in functions:
        (host.sys / _path(function) / "config").write_bytes(function.vendor.to_bytes(2, "little"))
    for placed_gpu in placed:
        if placed_gpu.gpu.driver == "amdgpu":
            files.add(placed_gpu, placed_gpu.gpu.compute)
    return host


class KernelEffects(FakeEffects):
    """`FakeEffects` on the node that `write_gpus` wrote below `root`: KFD and DRM show what happens to the GPUs.

    device_node: makes a device node from its path and minor number; by default it is an empty file.
    """

    def __init__(
        self, root: Path, gpus: Sequence[FakeAmdGpu], *, device_node: Callable[[str, int], object] | None = None
    ) -> None:
        super().__init__(root, device_node=device_node)
        self._files = _GpuFiles(Host(root))
        self._gpus = {placed.function.address: placed for placed in _placed(gpus)}

    def written(self, path: Path, text: str) -> None:
        """Do as `FakeEffects.written`; also change the mode of a GPU."""
        if path.name == "current_compute_partition":
            self._set_mode(path, text)
        else:
            super().written(path, text)

    def bind(self, path: Path, address: str) -> None:
        """Do as `FakeEffects.bind`; `amdgpu` shows the GPU undivided."""
        super().bind(path, address)
        if path.parent.name == "amdgpu" and address in self._gpus:
            gpu = self._gpus[address]
            self._files.add(gpu, "spx" if gpu.gpu.compute else "")

    def unbind(self, path: Path, address: str) -> None:
        """Do as `FakeEffects.unbind`; remove what `amdgpu` showed of the GPU."""
        super().unbind(path, address)
        if path.parent.name == "amdgpu" and address in self._gpus:
            self._files.remove(self._gpus[address])

    def _set_mode(self, path: Path, mode: str) -> None:
        available = (path.parent / "available_compute_partition").read_text(encoding="utf-8")
        if mode not in available.replace(",", " ").split():
            raise WriteError(f"cannot write {mode!r} to {path}: Invalid argument")
        gpu = self._gpus[path.parent.resolve().name]
        self._files.remove_kfd(gpu)
        self._files.add_kfd(gpu, mode.lower())
        path.write_text(f"{mode}\n", encoding="utf-8")


@dataclass(frozen=True)
class _Placed:
    """A GPU with its PCI function, those of its virtual functions, and the index of its first DRM device."""

    gpu: FakeAmdGpu
    function: FakePci
    virtual: tuple[FakePci, ...]
    first: int

    @property
    def functions(self) -> tuple[FakePci, ...]:
        return (self.function, *self.virtual)

    @property
    def indices(self) -> range:
        return range(self.first, self.first + self.gpu.drm_devices)

    def device(self, index: int) -> str:
        """Return the path of a DRM device's parent below `/sys`."""
        return _path(self.function) if index == self.first else f"devices/platform/amdgpu_xcp_{index}"


def _path(function: FakePci) -> str:
    return f"devices/{function.root}/{function.address}"


def _placed(gpus: Sequence[FakeAmdGpu]) -> Iterator[_Placed]:
    first = 0
    for number, gpu in enumerate(gpus):
        function = FakePci(
            address=f"0000:{0xC1 + number:02x}:00.0",
            vendor=_AMD,
            device=gpu.device,
            class_code=gpu.class_code,
            root=f"pci0000:{0xC0 + number:02x}",
            driver=gpu.driver,
            numa_node=number % 2,
            iommu_group=FIRST_GROUP + number,
            total_vfs=8 if gpu.vfs else 0,
        )
        virtual = tuple(
            replace(
                function,
                address=f"0000:{0xC1 + number:02x}:02.{vf}",
                device=0x74B5,
                driver=None,
                iommu_group=100 * (number + 1) + vf,
                total_vfs=0,
                physical_function=function.address,
            )
            for vf in range(gpu.vfs)
        )
        yield _Placed(gpu, function, virtual, first)
        first += gpu.drm_devices


class _GpuFiles:
    """Writes and removes files of the node."""

    def __init__(self, host: Host) -> None:
        self._host = host

    def add(self, placed: _Placed, mode: str) -> None:
        """Write what shows of a GPU when `amdgpu` takes it."""
        path, gpu = _path(placed.function), placed.gpu
        self.sys(f"{path}/mem_info_vram_total", str(gpu.vram_bytes))
        if gpu.product:
            self.sys(f"{path}/product_name", gpu.product)
        if gpu.compute:
            self.sys(f"{path}/current_compute_partition", mode.upper())
            self.sys(f"{path}/available_compute_partition", "SPX, DPX, QPX, CPX")
            self.sys(f"{path}/current_memory_partition", gpu.memory.upper())
            self.sys(f"{path}/available_memory_partition", "NPS1, NPS4")
        if gpu.ras:
            for block in ("umc", "gfx", "sdma"):
                self.sys(f"{path}/ras/{block}_err_count", "ue: 0\nce: 0" + ("\nde: 0" if block == "umc" else ""))
            self.sys(f"{path}/ras/gpu_vram_bad_pages", "")
        for index in placed.indices:
            self._add_drm(placed.device(index), index)
        self.add_kfd(placed, mode)

    def remove(self, placed: _Placed) -> None:
        """Remove what the kernel removes when `amdgpu` leaves a GPU."""
        path = self._host.sys / _path(placed.function)
        for pattern in ("mem_info_vram_total", "product_name", "*_partition"):
            for file in path.glob(pattern):
                file.unlink()
        shutil.rmtree(path / "ras", ignore_errors=True)
        for index in placed.indices:
            shutil.rmtree(self._host.sys / placed.device(index) / "drm")
            for name, _ in _drm_names(index):
                (self._host.sys / "class/drm" / name).unlink()
                (self._host.dev / "dri" / name).unlink()
        self.remove_kfd(placed)

    def add_kfd(self, placed: _Placed, mode: str) -> None:
        """Write the nodes of KFD of a GPU in a compute partition mode."""
        for part in range(_PARTS[mode]):
            self._add_node(placed, part, _PARTS[mode])

    def remove_kfd(self, placed: _Placed) -> None:
        """Undo `add_kfd`."""
        for index in placed.indices:
            shutil.rmtree(self._host.sys / f"class/kfd/kfd/topology/nodes/{index + 1}", ignore_errors=True)

    def _add_drm(self, device: str, index: int) -> None:
        for name, minor in _drm_names(index):
            self.sys(f"{device}/drm/{name}/dev", f"{DRM_MAJOR}:{minor}")
            (self._host.sys / device / "drm" / name / "device").symlink_to("../..")
            link = self._host.sys / "class/drm" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../{device}/drm/{name}")
            self.node(f"dri/{name}")

    def _add_node(self, placed: _Placed, part: int, parts: int) -> None:
        gpu, index = placed.gpu, placed.first + part
        domain, bus, _ = placed.function.address.split(":")
        fields = {
            "cpu_cores_count": 0,
            "simd_count": gpu.compute_units * gpu.simd_per_unit // parts,
            "simd_per_cu": gpu.simd_per_unit,
            "gfx_target_version": gpu.gfx,
            "vendor_id": _AMD,
            "device_id": gpu.device,
            "location_id": int(bus, 16) << 8 | (part if parts > 1 else 0),
            "domain": int(domain, 16),
            "drm_render_minor": FIRST_RENDER + index,
        }
        node = f"class/kfd/kfd/topology/nodes/{index + 1}"
        self.sys(f"{node}/properties", "\n".join(f"{name} {value}" for name, value in fields.items()))
        self.sys(f"{node}/mem_banks/0/properties", f"heap_type 1\nsize_in_bytes {gpu.vram_bytes // parts}\nflags 0")

    def sys(self, path: str, content: str) -> None:
        """Write a file below `/sys`."""
        file = self._host.sys / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n", encoding="utf-8")

    def node(self, name: str) -> None:
        """Write a device node as an empty file, because a real one needs root."""
        file = self._host.dev / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()


def _drm_names(index: int) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return the two DRM devices with this index, and their minor numbers."""
    render = FIRST_RENDER + index
    return (f"card{index + 1}", index + 1), (f"renderD{render}", render)
