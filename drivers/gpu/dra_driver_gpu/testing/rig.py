"""The GPU driver on a node made of files, between the SDK's real engine and GPUs in memory or of the stub library.

    rig = GpuRig(tmp_path, [fake_gpu("H100-80GB", 0)], dynamic_mig=True)
    prepared = rig.driver.prepare(claim(request("mig", device_class="mig.nvidia.com")))

Effects on the node do what the kernel would do, and each can be made to fail. Writing to `bind`, `unbind` and
`driver_override` of PCI moves the links that show a function's driver, and creates the node of an IOMMU group. Programs
and daemons really run, except those that would change this machine: `mount`, `umount` and `modprobe`. What should run
in its own mount namespace (`unshare`) runs without one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from dra_driver_gpu.describe.devices import DRIVER_NAME
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.gpu_record import GpuRecord, gpu_records
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.library import NvmlLibrary
from dra_driver_gpu.nvml.memory import FakeGpu, MemoryNvml
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.node import GpuNode, write_tools
from dra_sdk.hardware import link_name
from dra_sdk.hardware.node_access import Command, CommandError, SystemEffects, WriteError
from dra_sdk.hardware.polling import Clock
from dra_sdk.hardware.sharing import Sharing
from dra_sdk.hardware.vfio import is_vfio_driver
from dra_sdk.testing import DriverHarness, FakeNode, PreparedClaim
from dra_sdk.testing.crashes import tree
from dra_sdk.testing.sysfs import regular_machine

_TYPES: Final = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig", "vfio.gpu.nvidia.com": "vfio"}
MAIN: Final = "main"
STATE_DIR: Final = "/s"
"""The state directory: short, because the path of a socket has at most 107 bytes."""
_NODE: Final = "DRA_GPU_TEST_NODE"


class NodeEffects(SystemEffects):
    """`Effects` on the node below `root`. `calls` lists what was done, in order."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.calls: list[str] = []
        self.modules = {"vfio-pci": "vfio-pci"}  # that the kernel can load, each with its PCI driver
        self.fail_at = 0
        self.after = False

    def fail_call(self, nth: int, *, after: bool = False) -> None:
        """Let the `nth` write, run or start from now on fail; with `after` it takes effect before it fails."""
        self.fail_at, self.after = len(self.calls) + nth, after

    def running_daemons(self) -> list[int]:
        """The daemons of this node that run."""
        return self.running(f"{_NODE}={self.root}")

    def write(self, path: Path, text: str) -> None:
        """See `Effects.write`."""
        error = WriteError(f"cannot write {text.strip()!r} to {path}: injected")
        if self._enter(f"write {path.relative_to(self.root)}", error):
            self._written(path, text.strip())
            raise error
        self._written(path, text.strip())

    def run(self, command: Command) -> str:
        """See `Effects.run`."""
        error = CommandError(f"{command}: injected")
        fails = self._enter(f"run {_short(command)}", error)
        output = self._changed(command) if _changes_machine(command) else super().run(_plain(command))
        if fails:
            raise error
        return output

    def start(self, command: Command, log: Path) -> int:
        """See `Effects.start`."""
        error = CommandError(f"{command}: injected")
        fails = self._enter(f"start {_short(command)}", error)
        pid = super().start(replace(_plain(command), env={**command.env, _NODE: str(self.root)}), log)
        if fails:
            raise error
        return pid

    def _enter(self, call: str, error: Exception) -> bool:
        """Record a call; True if it must fail after its effect. Raises `error` if it fails before."""
        self.calls.append(call)
        fails = len(self.calls) == self.fail_at
        if fails and not self.after:
            raise error
        return fails

    def _changed(self, command: Command) -> str:
        """Do to the node what a program would do to this machine, as far as it can be seen."""
        if command.argv[-2:-1] == ["modprobe"] and command.argv[-1] in self.modules:
            name = self.modules[command.argv[-1]]
            driver = self.root / "sys/bus/pci/drivers" / name
            driver.mkdir(parents=True, exist_ok=True)
            for each in ("bind", "unbind"):
                (driver / each).touch()
            listed = self.root / "sys/module" / command.argv[-1].replace("-", "_") / "drivers" / f"pci:{name}"
            listed.parent.mkdir(parents=True, exist_ok=True)
            listed.symlink_to(driver)
        return ""

    def _written(self, path: Path, text: str) -> None:
        name = path.name
        if name == "driver_override":
            path.write_text(f"{text or '(null)'}\n", encoding="utf-8")
        elif name in {"bind", "unbind"} and path.parent.parent.name == "drivers":
            self.bind(path, text) if name == "bind" else self.unbind(path, text)
        else:
            super().write(path, text)

    def bind(self, path: Path, address: str) -> None:
        """What the kernel does when an address is written to the file `bind` of a PCI driver."""
        device, driver = self.root / "sys/bus/pci/devices" / address, path.parent.name
        override = (device / "driver_override").read_text(encoding="utf-8").strip()
        if override != driver and (override != "(null)" or is_vfio_driver(driver)):  # VFIO needs an override
            raise WriteError(f"cannot write {address!r} to {path}: No such device")
        if (device / "driver").is_symlink():
            raise WriteError(f"cannot write {address!r} to {path}: Device or resource busy")
        target = os.path.relpath(path.parent, device.resolve())
        (device / "driver").symlink_to(target)
        if is_vfio_driver(driver):
            self.group_node(device).touch()

    def unbind(self, path: Path, address: str) -> None:
        """What the kernel does when an address is written to the file `unbind` of a PCI driver."""
        device = self.root / "sys/bus/pci/devices" / address
        if not (device / "driver").is_symlink() or (device / "driver").readlink().name != path.parent.name:
            raise WriteError(f"cannot write {address!r} to {path}: No such device")
        (device / "driver").unlink()
        group = self.group_node(device)
        others = (each for each in device.parent.iterdir() if is_vfio_driver(link_name(each / "driver")))
        if not any(self.group_node(each) == group for each in others):
            group.unlink(missing_ok=True)

    def group_node(self, device: Path) -> Path:
        """The device node of a function's IOMMU group."""
        return self.root / "dev/vfio" / (device / "iommu_group").readlink().name


def _plain(command: Command) -> Command:
    """The command without the mount namespace around it."""
    argv = list(command.argv)
    return replace(command, argv=argv[argv.index("--") + 1 :]) if argv[0] == "unshare" else command


def _changes_machine(command: Command) -> bool:
    return command.argv[0] in {"mount", "umount"} or "modprobe" in command.argv


def _short(command: Command) -> str:
    argv: Sequence[str] = [Path(command.argv[0]).name, *command.argv[1:]]
    return " ".join([*argv, *([f"< {command.stdin.strip()}"] if command.stdin else [])])


class GpuRig:
    """`settings` are those of `GpuSettings`; `nvml` makes an NVML other than the one in memory.

    `driver` is the harness, `effects` what is done to the node, `memory` the GPUs in memory.
    """

    def __init__(
        self,
        directory: Path,
        gpus: Sequence[FakeGpu],
        *,
        driver_root: str = "/",
        nvml: Callable[[Path], Nvml] | None = None,
        version: str = "1.36",
        feature_gates: dict[str, bool] | None = None,
        **settings: Any,
    ) -> None:
        self.node = FakeNode(directory)
        machine = regular_machine(sockets=2, cores=1, threads=1)
        self.gpus = GpuNode(self.node.root, gpus, driver_root=driver_root, machine=machine)
        write_tools(self.node.root, self.gpus.driver_root)
        self.register_nodes()
        self.memory = self.gpus.nvml()
        self.effects = NodeEffects(self.node.root)
        if isinstance(settings.get("sharing"), str):
            settings["sharing"] = Sharing.parse(settings["sharing"])
        self.settings = GpuSettings(
            driver_root=driver_root, **{"state_dir": STATE_DIR, "mps_shm": "host", "busy_seconds": 0.3, **settings}
        )
        self._nvml = nvml or (lambda _root: self.memory)
        self.node.file("/dev/shm/.keep")  # noqa: S108 (below the root of the node)
        self.driver = DriverHarness(self.make, self.node, version=version, feature_gates=feature_gates)
        for name, kind in _TYPES.items():
            mine = f'device.driver == "{DRIVER_NAME}" && device.attributes["{DRIVER_NAME}"].type == "{kind}"'
            self.driver.add_class(name, mine)

    def make(self) -> GpuDriver:
        """A fresh driver, like that of a new process."""
        return GpuDriver(self.settings, nvml=self._nvml, effects=self.effects, clock=Clock(interval=0.02))

    @property
    def nvidia_node(self) -> NvidiaNode:
        """The node as the driver works on it, with its own library."""
        library = NvmlLibrary(self._nvml(self.node.root))
        clock = Clock(interval=0.02)
        return NvidiaNode(self.node.root, self.effects, clock, settings=self.settings, library=library)

    def record(self, gpu: str) -> GpuRecord:
        """The driver's record of a GPU, by UUID or PCI address."""
        return gpu_records(self.nvidia_node).read(gpu)

    @contextmanager
    def memory_open(self) -> Iterator[MemoryNvml]:
        """The GPUs in memory, initialized: for what an operator does to them."""
        self.memory.init()
        try:
            yield self.memory
        finally:
            self.memory.shutdown()

    def prepared(self, allocated: dict[str, Any]) -> PreparedClaim:
        """An allocated claim as a prepared one, so that preparing it does not discover again."""
        return PreparedClaim(allocated, (), None, {MAIN: None}, self.node)

    def unprepare(self, claim: PreparedClaim) -> None:
        """Unprepare a claim that keeps its allocation, so that it can be prepared again."""
        self.driver.unprepare(claim)
        self.driver.cluster.adopt(claim.claim)

    def same(self, other: PreparedClaim, **changes: Any) -> PreparedClaim:
        """Another claim that has the same devices, with changes to each result of its allocation."""
        made = deepcopy(other.claim)
        uid = f"{other.ref.uid[:-4]}{len(self.driver.cluster.claims):04}"
        made["metadata"] |= {"uid": uid, "name": f"same-{uid}"}
        for result in made["status"]["allocation"]["devices"]["results"]:
            result.update(changes)
        return self.prepared(self.driver.cluster.adopt(made))

    def register_nodes(self) -> None:
        """Give numbers to the device nodes that the node has now; a container runtime reads them."""
        for minor, path in enumerate(sorted(self.node.path("/dev").rglob("*"))):
            if path.is_file():
                self.node.device_node(f"/{path.relative_to(self.node.root)}", major=195, minor=minor)

    def state(self) -> dict[str, Any]:
        """What the driver can change and must restore: GPUs and files of the node."""
        gpus = {
            gpu.uuid: (
                state.mig.current,
                state.compute_mode,
                state.persistence,
                sorted((each.row.name, each.placement.start) for each in state.instances.values()),
            )
            for gpu in self.memory.gpus
            for state in [self.memory.state(gpu.uuid)]
        }
        files = {name: text for name, text in tree(self.node.root).items() if not name.startswith("dev/nvidia-caps")}
        return {"gpus": gpus, "files": files}
