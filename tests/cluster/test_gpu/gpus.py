"""The GPU driver of a test, the GPUs that its NVML knows, and the parts of their state that a claim may change."""

from __future__ import annotations

from typing import Any, NamedTuple

from dra_driver_gpu.testing.node import GpuNode
from dra_driver_gpu.testing.nvml import MemoryNvml
from dra_driver_gpu.testing.nvml.state import GpuInstanceState, GpuState

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.manifests import config

JSON = dict[str, Any]
NAME = "gpu.nvidia.com"


class Gpus(NamedTuple):
    """A running driver.

    driver: its process.
    nvml: the GPUs behind its NVML, the stub library.
    node: the tree of its node.
    """

    driver: DriverUnderTest
    nvml: MemoryNvml
    node: GpuNode

    def device_state(self) -> dict[str, GpuState]:
        """Returns what a claim may change: modes and MIG instances."""
        return self.nvml.states()

    def gpu_instances(self) -> list[GpuInstanceState]:
        """Returns the GPU instances of all GPUs."""
        return [each for state in self.nvml.states().values() for each in state.instances.values()]

    def slices_set(self) -> dict[str, str]:
        """Returns the time slices that are not the default: UUID of the GPU → number."""
        return {path.name: path.read_text().strip() for path in (self.node.root / "run/time-slices").glob("*")}

    def restart(self) -> None:
        """Kills the driver, starts it again, and waits until the kubelet knows it."""
        self.driver.kill()
        self.driver.start()
        self.driver.wait(self.driver.ready)

    def device(self, name: str) -> JSON:
        """Returns a published device; empty if it is not published."""
        devices = [each for piece in self.driver.slices() for each in piece["spec"].get("devices", [])]
        return next((each for each in devices if each["name"] == name), {})


def parameters(kind: str, **fields: Any) -> JSON:
    """Returns opaque parameters of the driver."""
    return {"apiVersion": "resource.nvidia.com/v1beta1", "kind": kind, **fields}


def shared(strategy: str, **fields: Any) -> JSON:
    """Returns an entry of a claim: how processes share its whole GPUs."""
    return config(NAME, parameters("GpuConfig", sharing={"strategy": strategy, **fields}))
