"""The driver: publishes AMD GPUs, gives their device nodes to containers, and notices when they change.

It changes nothing on the node, so there is nothing to undo.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from threading import Event
from typing import Final

from dra_driver_amd.gpus import AmdGpu, DeviceNumber, make_device, read_device_number, read_driver_attributes, read_gpus
from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceNode,
    DraError,
    DriverInfo,
    HardwareError,
    Node,
    OpaqueConfig,
    PreparedDevice,
)
from dra_sdk.hardware import Host

log = logging.getLogger(__name__)
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
        host = Host(node.root)
        driver = read_driver_attributes(host)
        return (make_device(gpu, driver) for gpu in read_gpus(host))

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Check every few seconds: GPUs come and go, and their number changes with the partition mode."""
        host, last = Host(node.root), None
        while not stop.is_set():
            now = _snapshot(host)
            if last is not None and now is not None and now != last:
                log.info("AMD GPUs or their partitions have changed")
                changed()
            last = now if now is not None else last
            stop.wait(self._interval)

    def dra_prepare(self, claim: Claim[GpuConfig]) -> Iterator[PreparedDevice]:
        """The node of KFD, through which all GPUs compute, and the two nodes of each GPU."""
        host = Host(claim.node.root)
        found = {gpu.name: gpu for gpu in read_gpus(host)}
        for each in claim.devices:
            if each.name not in found:
                raise HardwareError(
                    f"GPU {each.name} is not on node {claim.node.name}: were its GPUs partitioned differently?"
                )
            yield each.prepared(_edits(host, found[each.name]))


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


def _snapshot(host: Host) -> frozenset[AmdGpu] | None:
    try:
        return frozenset(read_gpus(host))
    except DraError as error:  # in the middle of a change of the partition mode
        log.debug("AMD GPUs cannot be read now: %s", error)
        return None
