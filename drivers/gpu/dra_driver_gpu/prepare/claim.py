"""A whole claim: first everything is set up, then each device is given out.

Every step writes to the claim's journal before it changes anything; `undo` goes by that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from dra_driver_gpu.edits.container import common
from dra_driver_gpu.nvml import Nvml
from dra_driver_gpu.prepare import gpus, instances, uses, vfio
from dra_driver_gpu.prepare.limits import MpsDevice, memory_limits
from dra_driver_gpu.prepare.mig import MigInstance
from dra_driver_gpu.prepare.mps import MpsDaemons
from dra_driver_gpu.prepare.mps_daemon import Daemon
from dra_driver_gpu.prepare.plan import Kind, Wanted, mps_groups, plan
from dra_driver_gpu.prepare.ready import Ready
from dra_driver_gpu.site import Site
from dra_sdk import Claim, ContainerEdits, PermanentError, PreparedDevice


def prepare(site: Site, claim: Claim[Any]) -> Iterator[PreparedDevice]:
    """Set up all devices of a claim, then yield them."""
    wanted = plan(claim)
    _refuse(site, wanted)
    ready = [*_to_vfio(site, claim, wanted)]
    version = ""
    if any(each.kind is not Kind.VFIO for each in wanted):
        with site.nvml() as nvml:
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


def _refuse(site: Site, wanted: Sequence[Wanted]) -> None:
    shared = [each for each in wanted if each.mps is not None]
    if shared and not site.settings.mps:
        raise PermanentError(f"device {shared[0].device.name}: MPS is switched off on this node (DRA_GPU_MPS)")
    parts = Counter(each.device.base_request for each in shared if each.kind is Kind.MIG and not each.admin)
    for request, count in parts.items():
        if count > 1:
            raise PermanentError(
                f"request {request} has {count} MIG devices with MPS: each has a daemon of its own, and a container, "
                "which gets all devices of a request, can be the client of one only; ask for them by several requests"
            )


def _to_vfio(site: Site, claim: Claim[Any], wanted: Sequence[Wanted]) -> Iterator[Ready]:
    """First of all, because a GPU must be free for it, and that fails most often."""
    mine = [each for each in wanted if each.kind is Kind.VFIO]
    if not mine:
        return
    bus = vfio.Bus.read(site)
    together = frozenset(bus.gpu(each).pci.address for each in mine if not each.admin)
    for each in mine:
        gpu = bus.gpu(each)
        found = vfio.look(gpu) if each.admin else vfio.obtain(site, claim, bus, gpu, together)
        yield Ready(wanted=each, address=gpu.pci.address, vfio=found)


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
