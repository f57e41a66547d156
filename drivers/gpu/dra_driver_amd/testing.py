"""A node with AMD GPUs, made of files: what KFD, DRM and PCI show of them in sysfs.

    write_gpus(tmp_path, [mi300x(), mi300x("cpx", "nps4"), RX7900XTX])

Source: `/sys` of a node with MI300X in these modes, kernel 6.8 with amdgpu 6.12.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from dra_sdk.hardware import Host
from dra_sdk.testing.sysfs import FakeMachine, FakePci, regular_machine

DRM_MAJOR: Final = 226
KFD_MAJOR: Final = 235
FIRST_RENDER: Final = 128
_DISPLAY: Final = 0x038000
_PARTS: Final = {"": 1, "spx": 1, "dpx": 2, "qpx": 4, "cpx": 8}
_AMD: Final = 0x1002


@dataclass(frozen=True, kw_only=True)
class FakeAmdGpu:
    """One GPU.

    device: its PCI device id.
    compute_units: its compute units.
    simd_per_unit: SIMD units per compute unit.
    vram_bytes: its memory.
    product: its product name; empty if the board does not report it.
    compute: its compute partition mode, such as `cpx`; empty if it cannot be partitioned.
    memory: its memory partition mode, such as `nps4`; empty likewise.
    """

    device: int
    compute_units: int
    simd_per_unit: int
    vram_bytes: int
    product: str = ""
    compute: str = ""
    memory: str = ""

    @property
    def parts(self) -> int:
        """The number of its partitions."""
        return _PARTS[self.compute]


RX7900XTX: Final = FakeAmdGpu(device=0x744C, compute_units=96, simd_per_unit=2, vram_bytes=25_753_026_560)
_MI300X: Final = FakeAmdGpu(
    device=0x74A1,
    compute_units=304,
    simd_per_unit=4,
    vram_bytes=206_141_652_992,
    product="AMD Instinct MI300X OAM",
    compute="spx",
    memory="nps1",
)


def mi300x(compute: str = "spx", memory: str = "nps1") -> FakeAmdGpu:
    """An MI300X with 304 compute units and 192 GB, in these modes."""
    return replace(_MI300X, compute=compute, memory=memory)


def write_gpus(root: Path, gpus: Sequence[FakeAmdGpu], *, machine: FakeMachine | None = None) -> Host:
    """Write a machine with these GPUs, the first as card 1 with renderD128; partitions follow their GPU.

    GPU n is at 0000:(c1 + n):00.0 below a root of its own, on NUMA node n modulo 2.
    """
    functions = tuple(_function(number, gpu) for number, gpu in enumerate(gpus))
    found = machine or regular_machine(sockets=2, cores=4)
    host = replace(found, pci=(*found.pci, *functions)).write(root)
    writer = _Writer(host)
    writer.text("module/amdgpu/version", "6.12.12.60401")
    writer.text("module/amdgpu/srcversion", "1A2B3C4D5E6F708192A3B4C")
    writer.text("class/kfd/kfd/dev", f"{KFD_MAJOR}:0")
    writer.text("class/kfd/kfd/topology/nodes/0/properties", "cpu_cores_count 8\nsimd_count 0\ndrm_render_minor 0")
    writer.node("kfd")
    for function, gpu in zip(functions, gpus, strict=True):
        writer.gpu(function, gpu)
    return host


def _function(number: int, gpu: FakeAmdGpu) -> FakePci:
    return FakePci(
        address=f"0000:{0xC1 + number:02x}:00.0",
        vendor=_AMD,
        device=gpu.device,
        class_code=_DISPLAY,
        root=f"pci0000:{0xC0 + number:02x}",
        driver="amdgpu",
        numa_node=number % 2,
    )


class _Writer:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._next = 0

    def gpu(self, function: FakePci, gpu: FakeAmdGpu) -> None:
        """A GPU, with a node of KFD and a DRM device for each of its partitions."""
        path = f"devices/{function.root}/{function.address}"
        self.text(f"{path}/mem_info_vram_total", str(gpu.vram_bytes))
        for name, value in (
            ("product_name", gpu.product),
            ("current_compute_partition", gpu.compute.upper()),
            ("current_memory_partition", gpu.memory.upper()),
        ):
            if value:
                self.text(f"{path}/{name}", value)
        for part in range(gpu.parts):
            index, self._next = self._next, self._next + 1
            self._drm(path if part == 0 else f"devices/platform/amdgpu_xcp_{index}", index)
            self._kfd(function, gpu, index, part)

    def _drm(self, device: str, index: int) -> None:
        for name, minor in ((f"card{index + 1}", index + 1), (f"renderD{FIRST_RENDER + index}", FIRST_RENDER + index)):
            self.text(f"{device}/drm/{name}/dev", f"{DRM_MAJOR}:{minor}")
            (self._host.sys / device / "drm" / name / "device").symlink_to("../..")
            link = self._host.sys / "class/drm" / name
            link.parent.mkdir(parents=True, exist_ok=True)
            link.symlink_to(f"../../{device}/drm/{name}")
            self.node(f"dri/{name}")

    def _kfd(self, function: FakePci, gpu: FakeAmdGpu, index: int, part: int) -> None:
        domain, bus, _ = function.address.split(":")
        location = int(bus, 16) << 8 | (part if gpu.parts > 1 else 0)
        simds = gpu.compute_units * gpu.simd_per_unit // gpu.parts
        node = f"class/kfd/kfd/topology/nodes/{index + 1}"
        fields = {
            "cpu_cores_count": 0,
            "simd_count": simds,
            "simd_per_cu": gpu.simd_per_unit,
            "vendor_id": _AMD,
            "device_id": gpu.device,
            "location_id": location,
            "domain": int(domain, 16),
            "drm_render_minor": FIRST_RENDER + index,
        }
        self.text(f"{node}/properties", "\n".join(f"{name} {value}" for name, value in fields.items()))
        bank = f"heap_type 1\nsize_in_bytes {gpu.vram_bytes // gpu.parts}\nflags 0"
        self.text(f"{node}/mem_banks/0/properties", bank)

    def text(self, path: str, content: str) -> None:
        """A file below `/sys`."""
        file = self._host.sys / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(content + "\n", encoding="utf-8")

    def node(self, name: str) -> None:
        """A device node as an empty file, because a real one needs root."""
        file = self._host.dev / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
