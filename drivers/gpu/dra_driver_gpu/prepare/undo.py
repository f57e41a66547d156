"""What a claim did is undone, latest first, by its journal alone; and what claims left that hold nothing any more.

So a claim that was prepared half, or undone half, is undone by the same way as a whole one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from typing import Any, Final

from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError
from dra_driver_gpu.prepare import instances, uses, vfio
from dra_driver_gpu.prepare.mps import MpsDaemons
from dra_driver_gpu.prepare.mps_daemon import STEP as MPS
from dra_driver_gpu.prepare.mps_daemon import mark
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.site import Site
from dra_sdk import Claim, DraError, HeldClaim

log = logging.getLogger(__name__)
JSON = dict[str, Any]


def unprepare(site: Site, claim: HeldClaim) -> None:
    """Undo what the journal of a claim says, latest first."""
    for entry in reversed(claim.journal):
        _undo(site, claim.uid, dict(entry), rebooted=claim.rebooted)


def sweep(site: Site, claim: Claim[Any]) -> bool:
    """Undo what claims left that hold nothing any more: their state files are lost.

    Whether nothing is left; failures are logged.
    """
    left = list(_left(site))
    # Asked after looking: a claim that is just being prepared was held before it wrote anything.
    live = {claim.uid, *(each.uid for each in claim.held())}
    live |= {mark(uid) for uid in live}
    cleared = [_clear(site, uid, entry) for uid, entry in left if uid not in live]
    return all(cleared)


def _clear(site: Site, uid: str, entry: JSON) -> bool:
    try:
        _undo(site, uid, entry, rebooted=False)
    except Exception as error:  # noqa: BLE001 (an old claim's trouble is not the new one's)
        log.warning("what claim %s left cannot be undone: %s: %s", uid, entry, error)
        return False
    log.warning("undone what claim %s had left: %s", uid, entry)
    return True


def _left(site: Site) -> Iterator[tuple[str, JSON]]:
    """What is on the node because of claims: for each step the claim, and a journal entry that undoes it."""
    yield from ((each.rpartition("-")[0], {"step": MPS, "id": each}) for each in MpsDaemons(site).leftovers())
    records = Records(site)
    for uuid in records.known():
        try:
            yield from _left_on(records, uuid)
        except DraError as error:
            log.warning("what is left on GPU %s cannot be told: %s", uuid, error)


def _undo(site: Site, uid: str, entry: JSON, *, rebooted: bool) -> None:
    """One step. After a reboot only files are left: GPUs forget everything, and boot with what the operator set."""
    if entry["step"] == MPS:
        MpsDaemons(site).stop(entry["id"])
    elif rebooted:
        return
    elif entry["step"] == vfio.STEP:
        vfio.release(site, entry)
    else:
        _undo_by_nvml(site, uid, entry)


_BY_NVML: Final[dict[str, Callable[[Site, Nvml, str, JSON], None]]] = {
    instances.STEP: instances.release,
    uses.STEP: uses.end,
}


def _undo_by_nvml(site: Site, uid: str, entry: JSON) -> None:
    try:
        with site.nvml() as nvml:
            _BY_NVML[entry["step"]](site, nvml, uid, entry)
    except (GpuIsLostError, NotFoundError) as error:
        log.warning("GPU %s is gone, so nothing is left of %s on it: %s", entry["gpu"], entry["step"], error)
        _forget(site, uid, entry["gpu"])


def _forget(site: Site, uid: str, gpu: str) -> None:
    """Take a claim out of the record of a GPU that is gone; when it comes back it has forgotten too.

    MIG mode alone can outlive it, and stays ours.
    """
    records = Records(site)
    with records.locked(gpu) as record:
        record.uses = {key: use for key, use in record.uses.items() if use["claim"] != uid}
        for made in record.instances.values():
            made["claims"] = [each for each in made["claims"] if each != uid]
        record.instances = {key: made for key, made in record.instances.items() if made["claims"]}
        if not record.uses:
            record.compute_mode, record.time_slice = None, ""
        records.save(gpu, record)


def _left_on(records: Records, uuid: str) -> Iterator[tuple[str, JSON]]:
    record = records.read(uuid)
    if record.vfio:
        yield record.vfio["claim"], record.vfio["entry"]
    for use in record.uses.values():
        yield use["claim"], {"step": uses.STEP, "gpu": uuid, "device": use["device"]}
    for key, made in record.instances.items():
        profile, _, start = key.partition("-")
        for uid in made["claims"]:
            yield uid, {"step": instances.STEP, "gpu": uuid, "profile": int(profile), "start": int(start)}
