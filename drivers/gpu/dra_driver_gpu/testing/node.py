"""A node with NVIDIA GPUs, made of files: what kernel, driver and container toolkit show of them.

    node = GpuNode(tmp_path, [fake_gpu("A100-40GB", 0), fake_gpu("A100-40GB", 1)])
    nvml = node.nvml()              # GPUs in memory; their MIG instances appear under /proc and /dev
    read_inventory(nvml, node.host)

Device nodes are empty files, because real ones need root. Sources: a node with driver R580, and the MIG user guide.

`write_tools` adds programs of the driver, as shell scripts that do what can be seen of the real ones. `nvidia-smi`
keeps the time slice of each GPU in a file below `/run/time-slices`, which is absent for the default.
`nvidia-cuda-mps-control` is a daemon with `-f`; without, it sends a command to the daemon of its pipe directory, and
lists the command in the log directory. If the daemon is stopped (SIGSTOP), the command waits.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

from dra_driver_gpu.testing.nvml import FakeGpu, MemoryNvml
from dra_driver_gpu.testing.nvml.state import GpuState
from dra_sdk.hardware import Host
from dra_sdk.testing.sysfs import FakeMachine, FakePci, regular_machine

CAPS_MAJOR: Final = 234
GPU_INSTANCES: Final = 15
COMPUTE_INSTANCES: Final = 8
_FIRST_MINOR: Final = 3
_MAJORS: Final = {"nvidia": 195, "nvidia-modeset": 195, "nvidiactl": 195, "nvidia-caps": CAPS_MAJOR, "nvidia-uvm": 510}
_LIBRARIES: Final = ("libcuda", "libnvidia-ml", "libnvidia-ptxjitcompiler", "libnvidia-nvvm", "libnvcuvid")
_BINARIES: Final = (
    "nvidia-smi",
    "nvidia-debugdump",
    "nvidia-persistenced",
    "nvidia-cuda-mps-control",
    "nvidia-cuda-mps-server",
)
_HOOK: Final = "#!/bin/sh\n# create-symlinks enable-cuda-compat update-ldcache disable-device-node-modification\n"
_FIRMWARE: Final = ("gsp_ga10x.bin", "gsp_tu10x.bin")
_LIBRARY_DIR: Final = "usr/lib/x86_64-linux-gnu"
_DISPLAY_CLASS: Final = 0x030200
_SMI: Final = """#!/bin/sh
[ "$1" = compute-policy ] && [ "$2" = -i ] && [ "$4" = --set-timeslice ] || { echo "cannot do: $*" >&2; exit 2; }
mkdir -p "ROOT/run/time-slices"
if [ "$5" = 0 ]; then rm -f "ROOT/run/time-slices/$3"; else echo "$5" > "ROOT/run/time-slices/$3"; fi
"""
_MPS: Final = """#!/bin/sh
control="$CUDA_MPS_PIPE_DIRECTORY/control"
if [ "$1" = -f ]; then
    trap 'rm -f "$control"; exit 0' TERM
    echo "started for $CUDA_VISIBLE_DEVICES with $*"
    echo $$ > "$control"
    while [ -e "$control" ]; do sleep 0.02; done
    exit 0
fi
[ -e "$control" ] && read -r pid < "$control" && kill -0 "$pid" || {
    echo "cannot find MPS control daemon process" >&2
    exit 1
}
while { read -r _ _ state _ < "/proc/$pid/stat"; } 2> /dev/null && [ "$state" = T ]; do sleep 0.02; done
while read -r command; do
    echo "$command" >> "$CUDA_MPS_LOG_DIRECTORY/commands"
    case "$command" in
        quit) rm -f "$control" ;;
        get_*) echo 100.0 ;;
        set_*) ;;
        *) echo "unknown: $command" >&2; exit 1 ;;
    esac
done
"""


def mig_minor(gpu_minor: int, gpu_instance: int, compute_instance: int | None = None) -> int:
    """Return the minor number of a capability: of each of 15 GPU instances, followed by its 8 compute instances."""
    instance = gpu_minor * GPU_INSTANCES + gpu_instance
    number = _FIRST_MINOR + instance * (1 + COMPUTE_INSTANCES)
    return number if compute_instance is None else number + 1 + compute_instance


class GpuNode:
    """The node under `root`; `driver_root` is where the driver is installed, as a path of the node.

    `machine` is everything else of the node, with its PCI functions; two sockets by default.
    """

    def __init__(
        self,
        root: Path,
        gpus: Sequence[FakeGpu],
        *,
        driver_root: str = "/",
        driver_version: str = "580.95.05",
        machine: FakeMachine | None = None,
    ) -> None:
        self.root = root
        self.gpus = tuple(gpus)
        self.driver_version = driver_version
        self.driver_root = root / driver_root.strip("/")
        self._followed: dict[int, dict[int, list[int]]] = {}
        self.host = self._write_machine(machine or regular_machine(sockets=2, cores=4))
        self._write_proc()
        self._write_devices()
        self._write_driver()

    def nvml(self) -> MemoryNvml:
        """Return the GPUs in memory, not initialized; the node's files follow their MIG instances."""
        nvml = MemoryNvml(self.gpus, driver_version=self.driver_version)
        nvml.watch(self._follow)
        return nvml

    def set_instances(self, gpu_minor: int, instances: Mapping[int, Iterable[int]]) -> None:
        """Write the capabilities and nodes of these GPU instances and their compute instances, and of no others."""
        directory = self._capabilities / f"gpu{gpu_minor}" / "mig"
        wanted = {directory / f"gi{instance}" / "access": mig_minor(gpu_minor, instance) for instance in instances}
        for instance, computes in instances.items():
            parts = {directory / f"gi{instance}" / f"ci{compute}" / "access": compute for compute in computes}
            wanted |= {path: mig_minor(gpu_minor, instance, compute) for path, compute in parts.items()}
        for path in {*directory.rglob("access")} - wanted.keys():  # others may be read at the same time
            minor = int(path.read_text(encoding="utf-8").split()[1])
            self._path(f"dev/nvidia-caps/nvidia-cap{minor}").unlink(missing_ok=True)
            path.unlink()
        for path, minor in wanted.items():
            if not path.exists():
                self._capability(path, minor)

    def set_all_instances(self) -> None:
        """Write the capabilities of every possible instance, for an NVML that the node's files do not follow."""
        for gpu in self.gpus:
            if gpu.model.mig:
                self.set_instances(gpu.minor, {instance: range(COMPUTE_INSTANCES) for instance in range(GPU_INSTANCES)})

    def _follow(self, state: GpuState) -> None:
        instances = {number: list(instance.compute_instances) for number, instance in state.instances.items()}
        if self._followed.get(state.gpu.minor, {}) != instances:
            self._followed[state.gpu.minor] = instances
            self.set_instances(state.gpu.minor, instances)

    @property
    def _capabilities(self) -> Path:
        return self.host.proc / "driver/nvidia/capabilities"

    def _capability(self, access: Path, minor: int, mode: int = 0o444) -> None:
        access.parent.mkdir(parents=True, exist_ok=True)
        text = f"DeviceFileMinor: {minor}\nDeviceFileMode: {mode}\nDeviceFileModify: 1\n"
        access.write_text(text, encoding="utf-8")
        self._write(f"dev/nvidia-caps/nvidia-cap{minor}")

    def _write_machine(self, machine: FakeMachine) -> Host:
        functions = tuple(self._pci(number, gpu) for number, gpu in enumerate(self.gpus))
        host = replace(machine, pci=(*machine.pci, *functions)).write(self.root)
        for number, gpu in enumerate(self.gpus):
            device = f"sys/bus/pci/devices/{gpu.pci_address}"
            self._write(f"{device}/driver_override", "(null)\n")
            self._write(
                f"{device}/modalias", f"pci:v000010DEd{gpu.model.product_id:08X}sv000010DEsd00000000bc03sc02i00\n"
            )
            self._write(f"{device}/resource", _resource(gpu))
            for name in (f"card{number + 1}", f"renderD{128 + number}"):
                self._write(f"{device}/drm/{name}/uevent", f"DEVNAME=dri/{name}\n")
                self._write(f"dev/dri/{name}")
        for driver in ("nvidia", "vfio-pci"):
            for name in ("bind", "unbind", "new_id"):
                self._write(f"sys/bus/pci/drivers/{driver}/{name}")
        return host

    def _pci(self, number: int, gpu: FakeGpu) -> FakePci:
        domain, bus, _ = gpu.pci_address.split(":")
        return FakePci(
            address=gpu.pci_address,
            vendor=0x10DE,
            device=gpu.model.product_id,
            class_code=_DISPLAY_CLASS,
            root=f"pci{domain}:{int(bus, 16) - 1:02x}",
            driver="nvidia",
            numa_node=number % 2,
            iommu_group=20 + number,
        )

    def _write_proc(self) -> None:
        characters = "".join(f"{number:3} {name}\n" for name, number in _MAJORS.items())
        self._write("proc/devices", f"Character devices:\n  1 mem\n{characters}\nBlock devices:\n  8 sd\n")
        version = f"NVRM version: NVIDIA UNIX x86_64 Kernel Module  {self.driver_version}\n"
        self._write("proc/driver/nvidia/version", version)
        self._write("proc/sys/kernel/random/boot_id", "9d2c1d3e-6f1b-4c55-8f0e-0f6a3f6f7d10\n")
        for gpu in self.gpus:
            text = f"Model: \t\t {gpu.model.name}\nGPU UUID: \t {gpu.uuid}\nBus Location: \t {gpu.pci_address}\n"
            information = f"{text}Device Minor: \t {gpu.minor}\n"
            self._write(f"proc/driver/nvidia/gpus/{gpu.pci_address}/information", information)
        self._write("proc/driver/nvidia-caps/mig-minors", "".join(self._mig_minors()))
        for minor, name in enumerate(("config", "monitor"), start=1):
            self._capability(self._capabilities / "mig" / name, minor, 0o400 if name == "config" else 0o444)

    def _mig_minors(self) -> Iterable[str]:
        yield "config 1\nmonitor 2\n"
        for gpu in self.gpus:
            for instance in range(GPU_INSTANCES):
                name = f"gpu{gpu.minor}/gi{instance}"
                yield f"{name}/access {mig_minor(gpu.minor, instance)}\n"
                for compute in range(COMPUTE_INSTANCES):
                    yield f"{name}/ci{compute}/access {mig_minor(gpu.minor, instance, compute)}\n"

    def _write_devices(self) -> None:
        for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset", "vfio/vfio", "iommu"):
            self._write(f"dev/{name}")
        for gpu in self.gpus:
            self._write(f"dev/nvidia{gpu.minor}")

    def _write_driver(self) -> None:
        libraries = self.driver_root / _LIBRARY_DIR
        for name in _LIBRARIES:
            self._write(libraries / f"{name}.so.{self.driver_version}")
            (libraries / f"{name}.so.1").symlink_to(f"{name}.so.{self.driver_version}")
        for name in _BINARIES:
            binary = self._write(self.driver_root / "usr/bin" / name, "#!/bin/sh\n")
            binary.chmod(0o755)
        self._write(self.driver_root / "usr/bin/nvidia-cdi-hook", _HOOK).chmod(0o755)
        for name in _FIRMWARE:
            self._write(self.driver_root / "lib/firmware/nvidia" / self.driver_version / name)

    def _write(self, path: str | Path, text: str = "") -> Path:
        full = self._path(path)
        full.parent.mkdir(parents=True, exist_ok=True)
        full.write_text(text, encoding="utf-8")
        return full

    def _path(self, path: str | Path) -> Path:
        return self.root / path


def _resource(gpu: FakeGpu) -> str:
    """Return the file `resource` of sysfs as of an A100: registers (32 bits), memory, one more window (64 bits).

    They are followed by the expansion ROM, and by the windows of virtual functions, which are larger than the others.
    """
    memory = 1 << ((gpu.model.memory_mib or 1) * (1 << 20) - 1).bit_length()
    absent, register, wide, rom = 0, 0x40200, 0x14220C, 0x46200
    windows = [(1 << 24, register), (memory, wide), (0, absent), (1 << 25, wide), (0, absent), (0, absent)]
    windows += [(1 << 19, rom)]
    windows += [(20 << 18, register), (20 * memory, wide), (0, absent), (20 << 25, wide), (0, absent), (0, absent)]
    lines, start = [], 1 << 44
    for size, flags in windows:
        first, last = (start, start + size - 1) if size else (0, 0)
        lines.append(f"{first:#018x} {last:#018x} {flags:#018x}")
        start += size
    return "\n".join(lines) + "\n"


def write_tools(root: Path, driver_root: Path) -> None:
    """Write `nvidia-smi` and `nvidia-cuda-mps-control` below the driver root of a node with this root."""
    for name, text in (("nvidia-smi", _SMI), ("nvidia-cuda-mps-control", _MPS)):
        path = driver_root / "usr/bin" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text.replace("ROOT", str(root)), encoding="utf-8")
        path.chmod(0o755)
