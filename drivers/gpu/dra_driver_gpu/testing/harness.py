"""The GPU driver on a node made of files, between the SDK's real engine and GPUs in memory or behind the stub library.

    harness = GpuHarness(tmp_path, [fake_gpu("H100-80GB", 0)], dynamic_mig=True)
    prepared = harness.driver.prepare(claim(request("mig", device_class="mig.nvidia.com")))

`harness.effects` are the `FakeEffects` of the node, which record what the driver does, and can fail or hang.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any, Final

from dra_driver_gpu.describe.devices import DRIVER_NAME
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.gpu_record import GpuRecord, gpu_records
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.library import NvmlLibrary
from dra_driver_gpu.settings import GpuSettings
from dra_driver_gpu.testing.node import GpuNode, write_tools
from dra_driver_gpu.testing.nvml import FakeGpu, MemoryNvml
from dra_sdk.hardware.polling import Clock
from dra_sdk.hardware.sharing import Sharing
from dra_sdk.testing import DriverHarness, FakeNode, PreparedClaim
from dra_sdk.testing.crashes import tree
from dra_sdk.testing.sysfs import regular_machine

_TYPES: Final = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig", "vfio.gpu.nvidia.com": "vfio"}
MAIN: Final = "main"
STATE_DIR: Final = "/s"
"""The state directory: short, because the path of a socket has at most 107 bytes."""


class GpuHarness:
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
        self.effects = self.node.effects
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
        """Make a fresh driver, like that of a new process."""
        return GpuDriver(self.settings, nvml=self._nvml, effects=self.effects, clock=Clock(interval=0.02))

    @property
    def nvidia_node(self) -> NvidiaNode:
        """The node as the driver works on it, with its own library."""
        library = NvmlLibrary(self._nvml(self.node.root))
        clock = Clock(interval=0.02)
        return NvidiaNode(self.node.root, self.effects, clock, settings=self.settings, library=library)

    def record(self, gpu: str) -> GpuRecord:
        """Return the driver's record of a GPU, by UUID or PCI address."""
        return gpu_records(self.nvidia_node).read(gpu)

    @contextmanager
    def memory_open(self) -> Iterator[MemoryNvml]:
        """Open the GPUs in memory, for what an operator does to them."""
        self.memory.init()
        try:
            yield self.memory
        finally:
            self.memory.shutdown()

    def prepared(self, allocated: dict[str, Any]) -> PreparedClaim:
        """Return an allocated claim as a prepared one, so that preparing it does not discover again."""
        return PreparedClaim(allocated, (), None, {MAIN: None}, self.node)

    def unprepare(self, claim: PreparedClaim) -> None:
        """Unprepare a claim that keeps its allocation, so that it can be prepared again."""
        self.driver.unprepare(claim)
        self.driver.cluster.adopt(claim.claim)

    def copy_of(self, claim: PreparedClaim, **changes: Any) -> PreparedClaim:
        """Return another claim that has the same devices, with changes to each result of its allocation."""
        made = deepcopy(claim.claim)
        uid = f"{claim.ref.uid[:-4]}{len(self.driver.cluster.claims):04}"
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
        """Return what the driver can change and must restore: GPUs and files of the node."""
        gpus = {
            gpu.uuid: (
                state.mig.current,
                state.compute_mode,
                state.persistence,
                sorted((instance.row.name, instance.placement.start) for instance in state.instances.values()),
            )
            for gpu in self.memory.gpus
            for state in [self.memory.state(gpu.uuid)]
        }
        files = {name: text for name, text in tree(self.node.root).items() if not name.startswith("dev/nvidia-caps")}
        return {"gpus": gpus, "files": files}
