"""How processes share a device: compute mode and time slice, set by the first claim, put back after the last.

Claims that hold shares of one device must want the same of it: they cannot all have their way.
"""

from __future__ import annotations

import logging
from typing import Any, Final

from dra_driver_gpu.config import INTERVALS
from dra_driver_gpu.effects import Command, CommandError
from dra_driver_gpu.nvml import Gpu, Nvml
from dra_driver_gpu.nvml.values import ComputeMode
from dra_driver_gpu.prepare.plan import Kind, Wanted
from dra_driver_gpu.prepare.records import Record, Records
from dra_driver_gpu.site import Site
from dra_sdk import Claim, PermanentError, RetriableError

log = logging.getLogger(__name__)
JSON = dict[str, Any]
STEP: Final = "use"
_TIME_SLICES: Final = (7, 0)  # compute capability of Volta, the first whose time slice can be chosen


def begin(site: Site, claim: Claim[Any], wanted: Wanted, gpu: Gpu) -> None:
    """Note what a claim wants of a device, and bring the GPU to it. RetriableError where another wants otherwise."""
    shared = wanted.device.share_id is not None
    if not wanted.policy and not shared:
        return
    _check(wanted, gpu)
    uuid, name, records = gpu.uuid(), wanted.device.name, Records(site)
    with records.locked(uuid) as record:
        users = [each for each in record.uses.values() if each["device"] == name]
        for use in users:
            if use["policy"] != wanted.policy:
                raise RetriableError(
                    f"device {name} is shared with claim {use['claim']}, whose configuration is another: "
                    f"{use['policy'] or 'none'}, not {wanted.policy or 'none'}"
                )
        claim.journal({"step": STEP, "gpu": uuid, "device": name})
        record.uses[_key(claim.uid, name)] = {"claim": claim.uid, "device": name, "policy": wanted.policy}
        records.save(uuid, record)
        if wanted.kind is Kind.GPU and wanted.policy and not users:
            _apply(site, gpu, record, wanted)


def end(site: Site, nvml: Nvml, uid: str, entry: JSON) -> None:
    """Undo `begin` for the claim `uid`, whose journal has `entry`."""
    uuid, name, records = entry["gpu"], entry["device"], Records(site)
    with records.locked(uuid) as record:
        others = [each for each in record.uses.values() if each["device"] == name and each["claim"] != uid]
        if not others and _key(uid, name) in record.uses:
            _restore(site, nvml, uuid, record)
        record.uses.pop(_key(uid, name), None)
        records.save(uuid, record)


def _key(uid: str, device: str) -> str:
    return f"{uid}/{device}"


def _check(wanted: Wanted, gpu: Gpu) -> None:
    name = wanted.device.name
    if wanted.mps is not None and wanted.device.share_id is not None:
        raise PermanentError(f"device {name} is shared by claims, so none of them can have an MPS daemon for it")
    old = gpu.compute_capability() < _TIME_SLICES
    if wanted.mps is not None and wanted.mps.multi_user and old:
        raise PermanentError(f"multiUser needs compute capability 7.0, which device {name} does not have")
    if old and wanted.interval not in {None, "Default"}:
        raise PermanentError(f"time slices need compute capability 7.0, which device {name} does not have")


def _apply(site: Site, gpu: Gpu, record: Record, wanted: Wanted) -> None:
    uuid = gpu.uuid()
    mode = ComputeMode.DEFAULT if wanted.mps is None else ComputeMode.EXCLUSIVE_PROCESS
    if (before := gpu.compute_mode()) is not mode:
        record.compute_mode = int(before)
        Records(site).save(uuid, record)
        gpu.set_compute_mode(mode)
    if wanted.interval is not None and gpu.compute_capability() >= _TIME_SLICES:
        number = INTERVALS[wanted.interval]
        command = _time_slice(site, uuid, number)
        record.time_slice = "tried" if number else ""
        Records(site).save(uuid, record)
        site.run(command)
        record.time_slice = "set" if number else ""
        Records(site).save(uuid, record)


def _restore(site: Site, nvml: Nvml, uuid: str, record: Record) -> None:
    gpu = nvml.device_by_uuid(uuid)
    if record.time_slice:
        gpu.compute_mode()  # tells whether the GPU is lost; the tool would only say that it failed
        _reset_time_slice(site, uuid, certain=record.time_slice == "set")
        record.time_slice = ""
        Records(site).save(uuid, record)
    if record.compute_mode is not None:
        gpu.set_compute_mode(ComputeMode(record.compute_mode))
        record.compute_mode = None


def _reset_time_slice(site: Site, uuid: str, *, certain: bool) -> None:
    """A GPU that refuses every time slice, set or reset, has the default: its claim must not be stuck for it."""
    command = _time_slice(site, uuid, 0)
    try:
        site.run(command)
    except CommandError as error:
        if certain:
            raise
        log.warning("GPU %s takes no time slice, so there is none to reset: %s", uuid, error)


def _time_slice(site: Site, uuid: str, number: int) -> Command:
    """NVML has no call for it; nvidia-smi does it."""
    return site.tool("nvidia-smi", "compute-policy", "-i", uuid, "--set-timeslice", str(number))
