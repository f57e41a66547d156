"""The driver: publishes AMD GPUs, gives their device nodes to containers, and notices when they change.

It changes nothing on the node, so there is nothing to undo.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from threading import Event
from typing import Final

from dra_driver_amd.gpus import AmdGpu, DeviceNumber, make_device, read_device_number, read_driver_attributes, read_gpus
from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceNode,
    DriverInfo,
    HardwareError,
    Node,
    OpaqueConfig,
    PreparedDevice,
)
from dra_sdk.hardware import Host, polling

DRIVER_NAME: Final = "gpu.amd.com"
CDI_KIND: Final = "k8s.gpu.amd.com/gpu"
WATCH_SECONDS: Final = 5.0


class GpuConfig(OpaqueConfig, api_version="gpu.resource.amd.com/v1alpha1"):
    """Configuration of a GPU or a partition. It has no fields; existing claims carry it."""


class AmdGpuDriver:
    """DRA driver `gpu.amd.com`. Every `interval` seconds it checks for changes."""

    def __init__(self, interval: float = WATCH_SECONDS) -> None:
        self._interval = interval

    def dra_driver_info(self) -> DriverInfo:
        """Name, configuration and CDI kind."""
        return DriverInfo(DRIVER_NAME, configs=[GpuConfig], cdi_kind=CDI_KIND)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """One device for each GPU, or for each partition of a GPU that is partitioned."""
        driver = read_driver_attributes(node)
        return (make_device(gpu, driver) for gpu in read_gpus(node))

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Check every few seconds: GPUs come and go, and their number changes with the partition mode."""
        polling.watch(lambda: frozenset(read_gpus(node)), changed, stop, self._interval)

    def dra_prepare(self, claim: Claim[GpuConfig]) -> Iterator[PreparedDevice]:
        """The node of KFD, through which all GPUs compute, and the two nodes of each GPU."""
        present = read_gpus(claim.node)
        for device in claim.devices:
            gpu: AmdGpu = device.hardware
            if gpu not in present:
                raise HardwareError(
                    f"GPU {gpu.name} is not on node {claim.node.name}: were its GPUs partitioned differently?"
                )
            yield device.prepared(_edits(claim.node, gpu))


def _edits(host: Host, gpu: AmdGpu) -> ContainerEdits:
    nodes = [
        _node("/dev/kfd", read_device_number(host.sys / "class/kfd/kfd/dev")),
        _node(f"/dev/dri/card{gpu.card}", gpu.card_number),
        _node(f"/dev/dri/renderD{gpu.render}", gpu.render_number),
    ]
    return ContainerEdits(device_nodes=nodes)


def _node(path: str, number: DeviceNumber | None) -> DeviceNode:
    """A node by its numbers; if sysfs does not have them, the container runtime reads them from the host's node."""
    if number is None:
        return DeviceNode(path)
    return DeviceNode(path, type="c", major=number.major, minor=number.minor)
