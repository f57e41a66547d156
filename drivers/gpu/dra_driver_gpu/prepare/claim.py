"""A claim from beginning to end: its devices are set up and given to containers, and later released by its journal.

Every step is written to the claim's journal before it changes anything. Unpreparing needs the journal alone, so a claim
that was prepared or unprepared only in part is undone in the same way.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from dra_driver_gpu.config import VfioDeviceConfig, memory_limits
from dra_driver_gpu.describe.devices import GpuKind
from dra_driver_gpu.edits import device_nodes
from dra_driver_gpu.edits.driver_files import driver_edits
from dra_driver_gpu.gpu_record import FABRIC_STEP, JSON, MIG_STEP, MPS_STEP, USE_STEP, VFIO_STEP, gpu_records
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError
from dra_driver_gpu.nvml.library import NotLoadedError
from dra_driver_gpu.prepare import fabric
from dra_driver_gpu.prepare.gpus import find_gpu, make_whole
from dra_driver_gpu.prepare.mig_devices import MigInstance, find_mig_device, obtain_mig_device, release_mig_device
from dra_driver_gpu.prepare.mps import MpsDaemon, claim_id, client_edits, mps_daemons
from dra_driver_gpu.prepare.plan import PlannedDevice, make_plan, mps_groups
from dra_driver_gpu.prepare.sharing import begin_use, end_use
from dra_driver_gpu.prepare.vfio import PciBus, find_vfio_device, obtain_vfio_device, release_vfio_device
from dra_sdk import (
    Capacity,
    Claim,
    ContainerEdits,
    DeviceNode,
    DraError,
    HeldClaim,
    NotNeededError,
    PermanentError,
    PreparedDevice,
    Quantity,
    RetriableError,
)
from dra_sdk.hardware.sharing import MEMORY
from dra_sdk.hardware.vfio import Iommu, VfioDevice

log = logging.getLogger(__name__)
_VOID: Final = ContainerEdits(env={"NVIDIA_VISIBLE_DEVICES": "void"})
"""Keeps an NVIDIA container runtime from adding GPUs by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadyDevice:
    """One device of a claim, set up. With admin access, what does not exist is empty.

    planned: the device as it was planned.
    uuid: the UUID of the GPU; empty for VFIO.
    minor: the minor number of the GPU; -1 for VFIO.
    address: the PCI address of the GPU.
    mig: the MIG device; None for other kinds.
    vfio: the VFIO device; None for other kinds.
    """

    planned: PlannedDevice
    uuid: str = ""
    minor: int = -1
    address: str = ""
    mig: MigInstance | None = None
    vfio: VfioDevice | None = None

    @property
    def cuda_uuid(self) -> str:
        """The UUID by which CUDA and MPS know it."""
        return self.mig.uuid if self.mig else self.uuid

    @property
    def data(self) -> JSON:
        """What is kept with the claim, for people and monitors; unpreparing does not need it."""
        data: JSON = {"type": self.planned.kind.value, "pciBusID": self.address}
        if self.mig:
            data |= {"uuid": self.mig.uuid, "gi": self.mig.gpu_instance, "ci": self.mig.compute_instance}
        if self.uuid:
            data["parentUUID" if self.planned.kind is GpuKind.MIG else "uuid"] = self.uuid
        return data

    def edits(self, node: NvidiaNode, daemon_id: str | None) -> ContainerEdits:
        """Return what containers get for this device, without what they need once for all their GPUs."""
        if self.planned.kind is GpuKind.VFIO:
            config = self.planned.config
            iommu = config.iommu if isinstance(config, VfioDeviceConfig) else Iommu()
            return _VOID + ContainerEdits(device_nodes=iommu.device_nodes(node, self.vfio))
        monitor = device_nodes.monitor_nodes(node) if self.planned.admin else []
        edits = ContainerEdits(device_nodes=[*self._own_nodes(node), *monitor])
        if self.planned.hardware.graphics and (self.mig or self.planned.kind is GpuKind.GPU):
            edits += device_nodes.graphics_edits(node, self.address)
        return edits + client_edits(node, daemon_id) if daemon_id else edits

    def _own_nodes(self, node: NvidiaNode) -> list[DeviceNode]:
        if self.mig is None:
            return device_nodes.gpu_nodes(node, self.minor)
        return device_nodes.mig_nodes(node, self.minor, self.mig.gpu_instance, self.mig.compute_instance)


# -- prepare


def prepare(node: NvidiaNode, claim: Claim[Any]) -> Iterator[PreparedDevice]:
    """Set up all devices of a claim, then yield them."""
    plan = make_plan(claim)
    _check_mps(node, plan)
    ready = [*_to_vfio(node, claim, plan)]
    others = [planned for planned in plan if planned.kind is not GpuKind.VFIO]
    once = ContainerEdits()
    daemons: dict[int, str] = {}
    if others:
        with node.nvml() as nvml:
            version = nvml.driver_version()
            ready += [_set_up(node, nvml, claim, planned) for planned in others]
        daemons = _start_daemons(node, claim, ready)
        once = _VOID + ContainerEdits(device_nodes=device_nodes.control_nodes(node)) + driver_edits(node, version)
    equipped: set[str] = set()
    for ready_device in ready:
        edits = ready_device.edits(node, daemons.get(id(ready_device.planned)))
        device = ready_device.planned.device
        if ready_device.uuid and device.base_request not in equipped:  # a container gets all devices of a request
            equipped.add(device.base_request)
            edits = once + edits
        yield device.prepared(edits, data=ready_device.data)


def _check_mps(node: NvidiaNode, plan: Sequence[PlannedDevice]) -> None:
    shared = [planned for planned in plan if planned.mps is not None]
    if shared and not node.settings.mps:
        raise PermanentError(f"device {shared[0].device.name}: MPS is disabled on this node (DRA_GPU_MPS)")
    mig = Counter(
        planned.device.base_request for planned in shared if planned.kind is GpuKind.MIG and not planned.admin
    )
    for request, count in mig.items():
        if count > 1:
            raise PermanentError(
                f"request {request} has {count} MIG devices with MPS: each has its own daemon, but a container gets "
                "all devices of a request and can be the client of only one daemon; ask for them by several requests"
            )


def _to_vfio(node: NvidiaNode, claim: Claim[Any], plan: Sequence[PlannedDevice]) -> Iterator[ReadyDevice]:
    """Bind GPUs to VFIO first: they must be free for that, so this fails most often."""
    mine = [planned for planned in plan if planned.kind is GpuKind.VFIO]
    if not mine:
        return
    bus = PciBus.read(node)
    together = frozenset(bus.gpu(planned).pci.address for planned in mine if not planned.admin)
    if node.fabric and together:
        fabric.activate(node, node.fabric, claim, together)
    for planned in mine:
        gpu = bus.gpu(planned)
        vfio = find_vfio_device(gpu) if planned.admin else obtain_vfio_device(node, claim, bus, gpu, together)
        yield ReadyDevice(planned=planned, address=gpu.pci.address, vfio=vfio)


def _set_up(node: NvidiaNode, nvml: Nvml, claim: Claim[Any], planned: PlannedDevice) -> ReadyDevice:
    mig: MigInstance | None = None
    if planned.kind is GpuKind.MIG and planned.admin:
        gpu, mig = find_mig_device(nvml, planned)
    elif planned.kind is GpuKind.MIG:
        gpu, mig = obtain_mig_device(node, nvml, claim, planned)
    else:
        gpu = find_gpu(nvml, planned)
        gpu = gpu if planned.admin else make_whole(node, nvml, gpu)
    if not planned.admin:
        begin_use(node, claim, planned, gpu)
    return ReadyDevice(planned=planned, uuid=gpu.uuid(), minor=gpu.minor_number(), address=gpu.pci().address, mig=mig)


def _start_daemons(node: NvidiaNode, claim: Claim[Any], ready: Sequence[ReadyDevice]) -> dict[int, str]:
    """Start the MPS daemons of each group of devices; the daemon's id by `id` of the planned device."""
    by_plan = {id(device.planned): device for device in ready}
    started: dict[int, str] = {}
    for group in mps_groups([device.planned for device in ready]):
        for daemon, members in _daemons(claim, [by_plan[id(planned)] for planned in group]):
            claim.journal(daemon.journal_entry)
            mps_daemons(node).start(daemon)
            started |= {id(member.planned): daemon.id for member in members}
    return started


def _daemons(claim: Claim[Any], members: Sequence[ReadyDevice]) -> Iterator[tuple[MpsDaemon, Sequence[ReadyDevice]]]:
    """Yield one daemon for all GPUs, and one for each MIG device: of several MIG devices CUDA uses only the first."""
    config = members[0].planned.mps
    if config is None:
        raise ValueError("a group of devices without MPS")
    limits = memory_limits(config, {member.cuda_uuid: member.planned.device.request for member in members})
    _check_limits(limits, members)
    whole = [member for member in members if member.mig is None]
    for part in filter(None, [whole, *([member] for member in members if member.mig)]):
        uuids = sorted(member.cuda_uuid for member in part)
        daemon = MpsDaemon(
            claim=claim.uid,
            devices=uuids,
            percentage=config.default_active_thread_percentage,
            limits={uuid: limits[uuid] for uuid in uuids if uuid in limits},
            multi_user=config.multi_user,
        )
        yield daemon, part


def _check_limits(limits: Mapping[str, str], members: Iterable[ReadyDevice]) -> None:
    """Refuse a limit above the memory of its device: no client could ever reach it. Raises PermanentError."""
    for member in members:
        published, limit = member.planned.device.device, limits.get(member.cuda_uuid)
        memory = published.capacity.get(MEMORY) if published is not None else None
        amount = memory.value if isinstance(memory, Capacity) else memory
        if limit is not None and amount is not None and Quantity(f"{limit.removesuffix('M')}Mi") > Quantity(amount):
            raise PermanentError(
                f"device {member.planned.device.name}: the limit of {limit.removesuffix('M')}Mi in mpsConfig "
                f"(defaultPinnedDeviceMemoryLimit, defaultPerDevicePinnedMemoryLimit) exceeds its memory, {amount}"
            )


# -- unprepare


def unprepare(node: NvidiaNode, claim: HeldClaim) -> None:
    """Undo the steps in a claim's journal, the latest first. All are tried."""
    for entry in reversed(claim.journal):
        with claim.undoing(_step_name(entry)):
            _undo(node, claim, dict(entry))


def sweep(node: NvidiaNode, claim: Claim[Any]) -> bool:
    """Undo the steps of claims that hold nothing any more, because their state was lost; True if nothing is left.

    Failures are logged.
    """
    remaining = list(_remaining_steps(node))
    # Read the held claims last: a claim that is being prepared is held before its first step.
    live = {claim.uid, *(other.uid for other in claim.held())}
    live |= {claim_id(uid) for uid in live}
    undone = [_try_undo(node, uid, entry) for uid, entry in remaining if uid not in live]
    return all(undone)


def _try_undo(node: NvidiaNode, uid: str, entry: JSON) -> bool:
    try:
        with suppress(NotNeededError):
            _undo(node, HeldClaim("", "", uid), entry)
    except Exception as error:  # noqa: BLE001 (the trouble of an old claim must not fail a new one)
        log.warning("a step of claim %s, which holds nothing, cannot be undone: %s: %s", uid, entry, error)
        return False
    log.warning("undid a step of claim %s, which holds nothing: %s", uid, entry)
    return True


def _remaining_steps(node: NvidiaNode) -> Iterator[tuple[str, JSON]]:
    """Yield what claims changed on the node: for each change the claim, and a step that undoes it."""
    yield from ((daemon.rpartition("-")[0], {"step": MPS_STEP, "id": daemon}) for daemon in mps_daemons(node).ids())
    records = gpu_records(node)
    for gpu in records.devices():
        try:
            yield from records.read(gpu).steps(gpu)
        except DraError as error:
            log.warning("what claims changed on GPU %s is not known: %s", gpu, error)
    if node.fabric:  # last, as their GPUs must have their driver again
        yield from fabric.fabric_steps(node)


def _step_name(entry: Mapping[str, Any]) -> str:
    """Return what a step brings back, in words."""
    match entry:
        case {"step": "mps", "id": daemon}:
            return f"MPS daemon {daemon}"
        case {"step": "vfio", "gpu": gpu}:
            return f"kernel driver of GPU {gpu}"
        case {"step": "fabric", "partition": number}:
            return f"partition {number} of the NVSwitch fabric"
        case {"step": "mig", "gpu": gpu, "profile": profile, "start": start}:
            return f"MIG device of profile {profile} at slice {start} of GPU {gpu}"
        case {"step": "use", "device": device}:
            return f"sharing of device {device}"
    return f"journal entry {dict(entry)}"  # of another version


def _undo(node: NvidiaNode, claim: HeldClaim, entry: JSON) -> None:
    """Undo one step. After a reboot only files are left: GPUs forget everything, and start as the operator set them."""
    if entry["step"] == MPS_STEP:
        _end_daemon(node, claim, entry["id"])
    elif claim.rebooted:
        return
    elif entry["step"] == VFIO_STEP:
        release_vfio_device(node, claim, entry)
    elif entry["step"] == FABRIC_STEP:
        _release_partition(node, claim.uid, entry)
    else:
        _undo_by_nvml(node, claim, entry)


def _end_daemon(node: NvidiaNode, claim: HeldClaim, daemon_id: str) -> None:
    daemons = mps_daemons(node)
    daemons.end(daemon_id)
    with claim.undoing(f"directory of MPS daemon {daemon_id}", harmless=True):  # the next `sweep` tries again
        daemons.clear(daemon_id)


def _release_partition(node: NvidiaNode, uid: str, entry: JSON) -> None:
    if node.fabric is None:
        raise RetriableError(
            "the claim has a partition of the NVSwitch fabric; set DRA_GPU_FABRIC_MANAGER to release it"
        )
    fabric.deactivate(node, node.fabric, uid, entry)


_BY_NVML: Final[dict[str, Callable[[NvidiaNode, Nvml, HeldClaim, JSON], None]]] = {
    MIG_STEP: release_mig_device,
    USE_STEP: end_use,
}


def _undo_by_nvml(node: NvidiaNode, claim: HeldClaim, entry: JSON) -> None:
    try:
        with node.nvml() as nvml:
            _BY_NVML[entry["step"]](node, nvml, claim, entry)
    except (GpuIsLostError, NotFoundError, NotLoadedError) as error:
        records = gpu_records(node)
        with records.locked(entry["gpu"]) as record:
            record.forget(claim.uid)
            records.save(entry["gpu"], record)
        raise NotNeededError(f"GPU {entry['gpu']} is gone, and with it what was set: {error}") from error
