"""Claims that the release 5134cc5 has prepared are continued: `samples/state-5134cc5` is what it kept on a node."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from dra_driver_amd import AmdGpuDriver
from dra_driver_amd.settings import AmdSettings
from dra_driver_amd.testing import KernelEffects, mi300x, write_gpus
from dra_driver_gpu.driver import GpuDriver
from dra_driver_gpu.nvml.mig import Placement
from dra_driver_gpu.nvml.queries import compute_instance_profiles
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.testing.fabric import MemoryFabricManager
from dra_driver_gpu.testing.harness import GpuHarness
from dra_driver_gpu.testing.nvml import fake_gpu

from dra_sdk.hardware.polling import Clock
from dra_sdk.testing import DriverHarness, FakeEffects, FakeNode
from dra_sdk.testing.crashes import differences, tree
from dra_sdk.testing.node_state import NodeState

pytest_plugins = ["dra_sdk.testing.plugin"]
SAMPLES = Path(__file__).parent / "samples/state-5134cc5"
CLOCK = Clock(interval=0.01)
PARTITION = 6
"""The partition of the fabric that has only the last of four GPUs."""
MODULES = "s/fabric/0000:"
"""The records of where GPUs are on the fabric, which belong to no claim."""


class NvidiaHarness(GpuHarness):
    """A node with four H100 on NVSwitches, and everything allowed."""

    def __init__(self, directory: Path) -> None:
        self.fabric = MemoryFabricManager(4)
        gpus = [fake_gpu("H100-80GB", minor) for minor in range(4)]
        super().__init__(
            directory, gpus, passthrough=True, dynamic_mig=True, vfio_seconds=0.2, fabric_manager="/run/fm"
        )

    def make(self) -> GpuDriver:
        return GpuDriver(
            self.settings,
            nvml=lambda _root: self.memory,
            effects=self.effects,
            clock=CLOCK,
            fabric=lambda *_: self.fabric,
        )

    def create_mig(self, profile: int, place: Placement) -> None:
        """Create a MIG device on the first GPU."""
        with self.memory_open() as nvml:
            gpu = nvml.device_by_index(0)
            if not gpu.mig_mode().current:
                gpu.set_mig_mode(True)
            instance = gpu.create_gpu_instance(profile, place)
            instance.create_compute_instance(
                max(compute_instance_profiles(instance), key=lambda profile: profile.slices).id
            )

    def set_exclusive(self, index: int) -> None:
        """Set the compute mode in which the server of an MPS daemon has a GPU for itself."""
        with self.memory_open() as nvml:
            nvml.device_by_index(index).set_compute_mode(ComputeMode.EXCLUSIVE_PROCESS)


@pytest.fixture
def nvidia(tmp_path: Path) -> Iterator[NvidiaHarness]:
    harness = NvidiaHarness(tmp_path)
    yield harness
    harness.effects.kill(harness.effects.running_daemons(), force=True)


def bind_vfio(node: FakeNode, effects: FakeEffects, address: str, driver: str) -> None:
    """Bind a PCI function to VFIO in place of its driver."""
    functions = node.path("/sys/bus/pci")
    effects.write(functions / "drivers" / driver / "unbind", address)
    effects.write(functions / "devices" / address / "driver_override", "vfio-pci")
    effects.write(functions / "drivers/vfio-pci/bind", address)


def test_mig_devices_time_slices_an_mps_daemon_and_a_passed_through_gpu(nvidia: NvidiaHarness) -> None:
    """The daemon has ended, with the former driver's container, and removed its socket."""
    before = nvidia.state()
    state = NodeState(SAMPLES / "nvidia")
    state.restore(nvidia.node)
    nvidia.create_mig(19, Placement(6, 1))
    nvidia.create_mig(14, Placement(4, 2))
    nvidia.set_exclusive(2)
    bind_vfio(nvidia.node, nvidia.effects, "0000:13:00.0", "nvidia")
    nvidia.fabric.activate(PARTITION)
    state.assert_continued(nvidia.driver)
    assert not any(partition.active for partition in nvidia.fabric.partitions())
    after = nvidia.state()
    left = differences(before.pop("files"), after.pop("files"))
    assert [path for path in left if not path.startswith(MODULES)] == []
    assert after == before


def test_a_divided_amd_gpu_and_one_of_a_virtual_machine(dra_node: FakeNode) -> None:
    gpus = (mi300x(),) * 3
    write_gpus(dra_node.root, gpus)
    effects = KernelEffects(
        dra_node.root, gpus, device_node=lambda path, minor: dra_node.device_node(path, major=511, minor=minor)
    )
    settings = AmdSettings(state_dir="/s", busy_seconds=0.1, partitioning=True, passthrough=True)
    state = NodeState(SAMPLES / "amd")
    state.restore(dra_node)
    before = {path: content for path, content in tree(dra_node.root).items() if not path.startswith("s/")}
    effects.write(dra_node.path("/sys/bus/pci/devices/0000:c1:00.0/current_compute_partition"), "CPX")
    bind_vfio(dra_node, effects, "0000:c2:00.0", "amdgpu")
    state.assert_continued(DriverHarness(lambda: AmdGpuDriver(settings, effects=effects, clock=CLOCK), dra_node))
    assert differences(before, tree(dra_node.root)) == []
