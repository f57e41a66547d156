"""A whole claim: first everything is set up, then each device is given out; and all of it undone, latest first.

Every step writes to the claim's journal before it changes anything, and the journal alone says what to undo. So a
claim that was prepared half, or undone half, is undone by the same way as a whole one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

from dra_driver_gpu.edits.container import common
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError
from dra_driver_gpu.prepare import gpus, instances, uses, vfio
from dra_driver_gpu.prepare.limits import MpsDevice, memory_limits
from dra_driver_gpu.prepare.mig import MigInstance
from dra_driver_gpu.prepare.mps import MpsDaemons
from dra_driver_gpu.prepare.mps_daemon import STEP as MPS
from dra_driver_gpu.prepare.mps_daemon import Daemon, mark
from dra_driver_gpu.prepare.plan import Kind, Wanted, mps_groups, plan
from dra_driver_gpu.prepare.ready import Ready
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.site import Site
from dra_sdk import Claim, ContainerEdits, DraError, HeldClaim, PermanentError, PreparedDevice

log = logging.getLogger(__name__)
JSON = dict[str, Any]


def prepare(site: Site, claim: Claim[Any]) -> Iterator[PreparedDevice]:
    """Set up all devices of a claim, then yield them."""
    wanted = plan(claim)
    _refuse(site, wanted)
    ready = [*_to_vfio(site, claim, wanted)]
    version = ""
    if any(each.kind is not Kind.VFIO for each in wanted):
        with site.library.use() as nvml:
            version = nvml.driver_version()
            ready += [_set_up(site, nvml, claim, each) for each in wanted if each.kind is not Kind.VFIO]
    daemons = _start_daemons(site, claim, ready)
    shared = common(site, version) if version else ContainerEdits()
    equipped: set[str] = set()
    for each in ready:
        edits = each.edits(site, daemons.get(id(each.wanted)))
        device = each.wanted.device
        if each.uuid and device.base_request not in equipped:  # containers get all devices of a request
            equipped.add(device.base_request)
            edits = shared + edits
        yield device.prepared(edits, data=each.data)


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


def _refuse(site: Site, wanted: Sequence[Wanted]) -> None:
    for each in wanted:
        if each.mps is not None and not site.settings.mps:
            raise PermanentError(f"device {each.device.name}: MPS is switched off on this node (DRA_GPU_MPS)")


def _to_vfio(site: Site, claim: Claim[Any], wanted: Sequence[Wanted]) -> Iterator[Ready]:
    """First of all, because a GPU must be free for it, and that fails most often."""
    mine = [each for each in wanted if each.kind is Kind.VFIO]
    together = frozenset(vfio.address(site, each) for each in mine if not each.admin)
    for each in mine:
        found = vfio.look(site, each) if each.admin else vfio.obtain(site, claim, each, together)
        yield Ready(wanted=each, address=found.address if found else vfio.address(site, each), vfio=found)


def _set_up(site: Site, nvml: Nvml, claim: Claim[Any], wanted: Wanted) -> Ready:
    found: MigInstance | None = None
    if wanted.kind is Kind.MIG and wanted.admin:
        gpu, found = instances.look(nvml, wanted)
    elif wanted.kind is Kind.MIG:
        gpu, found = instances.obtain(site, nvml, claim, wanted)
    else:
        gpu = gpus.find(nvml, wanted)
        gpu = gpu if wanted.admin else gpus.make_whole(site, nvml, gpu)
    if not wanted.admin:
        uses.begin(site, claim, wanted, gpu)
    return Ready(wanted=wanted, uuid=gpu.uuid(), minor=gpu.minor_number(), address=gpu.pci().address, mig=found)


def _start_daemons(site: Site, claim: Claim[Any], ready: Sequence[Ready]) -> dict[int, str]:
    """MPS daemons for each group of devices; the id of the one for each of them."""
    by_wanted = {id(each.wanted): each for each in ready}
    started: dict[int, str] = {}
    for group in mps_groups([each.wanted for each in ready]):
        for daemon, members in _daemons(claim, [by_wanted[id(each)] for each in group]):
            claim.journal(daemon.journal_entry)
            MpsDaemons(site).start(daemon)
            started |= {id(each.wanted): daemon.id for each in members}
    return started


def _daemons(claim: Claim[Any], members: Sequence[Ready]) -> Iterator[tuple[Daemon, Sequence[Ready]]]:
    """One for all GPUs; but one for each MIG device, because CUDA, and so a daemon, uses the first that it sees."""
    config = members[0].wanted.mps
    if config is None:
        raise ValueError("a group of devices without MPS")
    limits = memory_limits(config, [MpsDevice(each.cuda_uuid, each.wanted.device.request) for each in members])
    whole = [each for each in members if each.mig is None]
    for part in filter(None, [whole, *([each] for each in members if each.mig)]):
        uuids = sorted(each.cuda_uuid for each in part)
        yield (
            Daemon(
                claim=claim.uid,
                devices=uuids,
                percentage=config.default_active_thread_percentage,
                limits={uuid: limits[uuid] for uuid in uuids if uuid in limits},
                multi_user=config.multi_user,
            ),
            part,
        )


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
        with site.library.use() as nvml:
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
