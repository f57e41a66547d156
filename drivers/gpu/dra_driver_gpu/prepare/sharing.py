"""How processes share a device: compute mode and time slice, set for the first claim, restored after the last.

Claims that hold shares of one device must have the same configuration, because a device has only one of each.
"""

from __future__ import annotations

from typing import Any, Final

from dra_driver_gpu.config import INTERVALS
from dra_driver_gpu.describe.devices import GpuKind
from dra_driver_gpu.gpu_record import JSON, USE_STEP, GpuRecord, gpu_records
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml import Gpu, Nvml
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.prepare.plan import PlannedDevice
from dra_sdk import Claim, HeldClaim, NotNeededError, PermanentError, RetriableError
from dra_sdk.hardware.node_access import Command, CommandError

_VOLTA: Final = (7, 0)  # the first compute capability with selectable time slices and several users of MPS


def begin_use(node: NvidiaNode, claim: Claim[Any], planned: PlannedDevice, gpu: Gpu) -> None:
    """Record a claim's configuration of a device, and set the GPU to it.

    Raises RetriableError if another claim on the device has another configuration.
    """
    shared = planned.device.share_id is not None
    if not planned.policy and not shared:
        return
    _check(planned, gpu)
    uuid, name, records = gpu.uuid(), planned.device.name, gpu_records(node)
    with records.locked(uuid) as record:
        users = [use for use in record.uses.values() if use["device"] == name]
        for use in users:
            if use["policy"] != planned.policy:
                raise RetriableError(
                    f"device {name} is shared with claim {use['claim']}, whose configuration differs: "
                    f"{use['policy'] or 'none'}, not {planned.policy or 'none'}"
                )
        claim.journal({"step": USE_STEP, "gpu": uuid, "device": name})
        record.uses[_key(claim.uid, name)] = {"claim": claim.uid, "device": name, "policy": planned.policy}
        records.save(uuid, record)
        if planned.kind is GpuKind.GPU and planned.policy and not users:
            _set(node, gpu, record, planned)


def end_use(node: NvidiaNode, nvml: Nvml, claim: HeldClaim, entry: JSON) -> None:
    """Undo `begin_use` for a claim with `entry` in its journal."""
    uuid, name, uid, records = entry["gpu"], entry["device"], claim.uid, gpu_records(node)
    with records.locked(uuid) as record:
        others = [use for use in record.uses.values() if use["device"] == name and use["claim"] != uid]
        if not others and _key(uid, name) in record.uses:
            _restore(node, nvml.device_by_uuid(uuid), claim, record)
        record.uses.pop(_key(uid, name), None)
        records.save(uuid, record)


def _key(uid: str, device: str) -> str:
    return f"{uid}/{device}"


def _check(planned: PlannedDevice, gpu: Gpu) -> None:
    name = planned.device.name
    if planned.mps is not None and planned.device.share_id is not None:
        raise PermanentError(f"device {name} is shared by claims, so none of them can have an MPS daemon for it")
    old = gpu.compute_capability() < _VOLTA
    if planned.mps is not None and planned.mps.multi_user and old:
        raise PermanentError(f"multiUser needs compute capability 7.0, which device {name} does not have")
    if old and planned.interval not in {None, "Default"}:
        raise PermanentError(f"time slices need compute capability 7.0, which device {name} does not have")


def _set(node: NvidiaNode, gpu: Gpu, record: GpuRecord, planned: PlannedDevice) -> None:
    uuid, records = gpu.uuid(), gpu_records(node)
    mode = ComputeMode.DEFAULT if planned.mps is None else ComputeMode.EXCLUSIVE_PROCESS
    if (before := gpu.compute_mode()) is not mode:
        record.compute_mode = int(before)
        records.save(uuid, record)
        gpu.set_compute_mode(mode)
    if planned.interval is not None and gpu.compute_capability() >= _VOLTA:
        number = INTERVALS[planned.interval]
        command = _time_slice_command(node, uuid, number)
        record.time_slice = "tried" if number else ""
        records.save(uuid, record)
        node.run(command)
        record.time_slice = "set" if number else ""
        records.save(uuid, record)


def _restore(node: NvidiaNode, gpu: Gpu, claim: HeldClaim, record: GpuRecord) -> None:
    """Restore the compute mode, with which the next claim could not work, and the time slice, which only takes time."""
    if record.time_slice:
        gpu.compute_mode()  # fails with GPU_IS_LOST if so; nvidia-smi would only report a failure
        uuid = gpu.uuid()
        with claim.undoing(f"time slice of GPU {uuid}", harmless=True):
            _reset_time_slice(node, uuid, certain=record.time_slice == "set")
        record.time_slice = ""
        gpu_records(node).save(uuid, record)
    if record.compute_mode is not None:
        gpu.set_compute_mode(ComputeMode(record.compute_mode))
        record.compute_mode = None


def _reset_time_slice(node: NvidiaNode, uuid: str, *, certain: bool) -> None:
    """Set the default. A GPU that refuses every time slice has it; that must not keep a claim from being unprepared."""
    command = _time_slice_command(node, uuid, 0)
    try:
        node.run(command)
    except CommandError as error:
        if certain:
            raise
        raise NotNeededError(f"GPU {uuid} accepts no time slice: {error}") from error


def _time_slice_command(node: NvidiaNode, uuid: str, number: int) -> Command:
    """Return a command of nvidia-smi: NVML has no function for time slices."""
    return node.driver_command("nvidia-smi", "compute-policy", "-i", uuid, "--set-timeslice", str(number))
