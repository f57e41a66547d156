"""A claim from beginning to end: its devices are set up and given to containers, and later released by its journal.

Every step is written to the claim's journal before it changes anything. Unpreparing needs the journal alone, so a claim
that was prepared or unprepared only in part is undone in the same way.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

from dra_driver_amd.config import GpuConfig, VfioDeviceConfig, config_for
from dra_driver_amd.gpus import AmdGpu, DeviceNumber, read_device_number
from dra_driver_amd.node import JSON, AmdNode
from dra_driver_amd.partitions import MODE_STEP, divide, partitions_of, undivide
from dra_driver_amd.passthrough import PassthroughFunction, passthrough_functions
from dra_driver_amd.vfio import VFIO_STEP, find_vfio_device, obtain_vfio_device, release_vfio_device
from dra_sdk import (
    AllocatedDevice,
    Claim,
    ConfigError,
    ContainerEdits,
    DeviceNode,
    DraError,
    HardwareError,
    HeldClaim,
    NotNeededError,
    PermanentError,
    PreparedDevice,
)
from dra_sdk.hardware import read_pci_devices

log = logging.getLogger(__name__)


def prepare(node: AmdNode, claim: Claim[Any]) -> Iterator[PreparedDevice]:
    """Set up all devices of a claim, then yield them."""
    _sweep(node.within(0.0), claim)
    machines = [device for device in claim.devices if isinstance(device.hardware, PassthroughFunction)]
    others = [device for device in claim.devices if not isinstance(device.hardware, PassthroughFunction)]
    ready = [*_set_up_vfio(node, claim, machines), *_set_up_gpus(node, claim, others)]
    yield from ready


def unprepare(node: AmdNode, claim: HeldClaim) -> None:
    """Undo the steps in a claim's journal, the latest first; all are tried.

    After a reboot every GPU is as the kernel starts it.
    """
    for entry in [] if claim.rebooted else reversed(claim.journal):
        with claim.undoing(_step_name(entry)):
            _UNDO[entry["step"]](node, claim, dict(entry))


def _step_name(entry: Mapping[str, Any]) -> str:
    """Return what a step brings back, in words."""
    match entry:
        case {"step": "mode", "gpu": gpu}:
            return f"compute partition mode of GPU {gpu}"
        case {"step": "vfio", "gpu": gpu}:
            return f"kernel driver of GPU {gpu}"
    return f"journal entry {dict(entry)}"  # of another version


_UNDO: Final[dict[str, Callable[[AmdNode, HeldClaim, JSON], None]]] = {
    MODE_STEP: undivide,
    VFIO_STEP: release_vfio_device,
}


def _sweep(node: AmdNode, claim: Claim[Any]) -> None:
    """Undo the changes of claims that hold nothing any more, because their state was lost. Failures are logged."""
    records = [(address, record) for address, record in node.recorded().items() if record is not None]
    # Read the held claims last: a claim that is being prepared is held before its first step.
    live = {"", claim.uid, *(other.uid for other in claim.held())} if records else set()
    for address, record in records:
        if record.claim in live:
            continue
        try:
            with suppress(NotNeededError):
                _UNDO[record.entry["step"]](node, HeldClaim("", "", record.claim), record.entry)
        except DraError as error:  # the trouble of an old claim must not fail a new one
            log.warning("the change of GPU %s for claim %s cannot be undone: %s", address, record.claim, error)


def _set_up_gpus(node: AmdNode, claim: Claim[Any], devices: Sequence[AllocatedDevice[Any]]) -> Iterator[PreparedDevice]:
    gpus = {gpu.name: gpu for gpu in node.gpus()} if devices else {}
    for device in devices:
        if device.name not in gpus:
            raise HardwareError(
                f"GPU {device.name} is not on node {claim.node.name}: were its GPUs partitioned differently?"
            )
        yield device.prepared(_gpu_edits(node, _parts(node, claim, device, gpus[device.name])))


def _parts(node: AmdNode, claim: Claim[Any], device: AllocatedDevice[Any], gpu: AmdGpu) -> list[AmdGpu]:
    """Return what a device consists of: a whole GPU can be divided, and then has several partitions.

    A claim with admin access gets the partitions that there are, and changes nothing.
    """
    mode = config_for(device, GpuConfig).compute_partition
    if gpu.partition:
        if mode is not None and mode.lower() != gpu.compute_mode:
            raise ConfigError(
                f"computePartition {mode} cannot apply to device {gpu.name}, a partition of a GPU in mode "
                f"{gpu.compute_mode.upper()}: only a whole GPU can be divided"
            )
        return [gpu]
    if device.admin_access:
        return partitions_of(node, gpu.pci.address)
    if mode is None or mode.lower() == gpu.compute_mode:
        return [gpu]
    if not node.settings.partitioning:
        raise PermanentError(f"computePartition {mode}: DRA_AMD_PARTITIONING is off on this node")
    return divide(node, claim, gpu, mode.lower())


def _set_up_vfio(node: AmdNode, claim: Claim[Any], devices: Sequence[AllocatedDevice[Any]]) -> Iterator[PreparedDevice]:
    functions = read_pci_devices(node.host) if devices else ()
    known = {function.name: function for function in passthrough_functions(node.host, functions)}
    for device in devices:
        if device.name not in known:
            raise HardwareError(f"device {device.name} is not on node {claim.node.name}, or has another driver by now")
    together = frozenset(known[device.name].pci.address for device in devices)
    for device in devices:
        function = known[device.name]
        iommu = config_for(device, VfioDeviceConfig).iommu
        ready = (
            find_vfio_device(function)
            if device.admin_access
            else obtain_vfio_device(node, claim, functions, function, together)
        )
        yield device.prepared(ContainerEdits(device_nodes=iommu.device_nodes(node, ready)))


def _gpu_edits(node: AmdNode, parts: Sequence[AmdGpu]) -> ContainerEdits:
    """Return the node of KFD, through which all GPUs compute, and the two nodes of each partition."""
    nodes = [_device_node("/dev/kfd", read_device_number(node.host.sys / "class/kfd/kfd/dev"))]
    for gpu in parts:
        card, render = gpu.paths
        nodes += [_device_node(card, gpu.card_number), _device_node(render, gpu.render_number)]
    return ContainerEdits(device_nodes=nodes)


def _device_node(path: str, number: DeviceNumber | None) -> DeviceNode:
    """Return a node by its numbers; if sysfs lacks them, the container runtime reads them from the host's node."""
    if number is None:
        return DeviceNode(path)
    return DeviceNode(path, type="c", major=number.major, minor=number.minor)
