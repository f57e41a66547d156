"""MIG devices of claims: which were there before, which we made, and when they can go.

Ours are those that the GPU's record names; every other MIG device is an operator's, is used as it is, and stays.
"""

from __future__ import annotations

from typing import Any, Final

from dra_driver_gpu.nvml import Gpu, Nvml
from dra_driver_gpu.nvml.profiles import mig_enabled
from dra_driver_gpu.prepare import gpus, mig, mig_mode
from dra_driver_gpu.prepare.mig import MigInstance
from dra_driver_gpu.prepare.plan import Wanted
from dra_driver_gpu.prepare.records import Record, Records
from dra_driver_gpu.site import Site
from dra_sdk import Claim, RetriableError

JSON = dict[str, Any]
STEP = "mig"
_LEAVING_SECONDS: Final = 1.0  # for MIG to be turned off: whoever wants the whole GPU next tries again


def look(nvml: Nvml, wanted: Wanted) -> tuple[Gpu, MigInstance | None]:
    """The GPU of a MIG device, and the device itself if it exists; for those who may only look."""
    gpu = gpus.find(nvml, wanted)
    found = mig.existing(gpu, wanted.mig) if wanted.mig and mig_enabled(gpu) else None
    return gpu, found


def obtain(site: Site, nvml: Nvml, claim: Claim[Any], wanted: Wanted) -> tuple[Gpu, MigInstance]:
    """The MIG device, made if need be and allowed.

    RetriableError where it is not there and MIG devices are not made on demand, or there is no room for it.
    """
    name = wanted.mig
    if name is None:
        raise ValueError(f"{wanted.device.name} is not a MIG device")
    gpu = gpus.find(nvml, wanted)
    uuid, records = gpu.uuid(), Records(site)
    with records.locked(uuid) as record:
        found = mig.existing(gpu, name) if mig_enabled(gpu) else None
        made = record.instances.get(mig.key(name))
        if found is not None and made is None:
            return gpu, found
        if (not site.settings.dynamic_mig or name.compute is not None) and made is None:
            raise RetriableError(
                f"MIG device {wanted.device.name} does not exist any more, and none like it is made on demand"
            )
        if made is None and mig.taken(gpu, name):
            raise RetriableError(
                f"MIG device {wanted.device.name} cannot be made: there is a GPU instance of somebody else, which is "
                "empty or divided otherwise"
            )
        claim.journal({"step": STEP, "gpu": uuid, "profile": name.profile_id, "start": name.start})
        claims = [] if made is None else [each for each in made["claims"] if each != claim.uid]
        record.instances[mig.key(name)] = {**(made or {}), "claims": [*claims, claim.uid]}
        records.save(uuid, record)
        if found is None:
            gpu = mig_mode.turn_on(site, nvml, uuid, record)
            if made is not None:  # begun by us, and broken off
                mig.destroy(gpu, name.profile_id, name.start, site.clock, site.settings.busy_seconds)
            found = mig.create(gpu, name)
        _complete(record.instances[mig.key(name)], found)
        records.save(uuid, record)
        return gpu, found


def release(site: Site, nvml: Nvml, uid: str, entry: JSON) -> None:
    """Undo `obtain` for the claim `uid`, whose journal has `entry`; the last claim's end is the MIG device's."""
    uuid, profile, start = entry["gpu"], entry["profile"], entry["start"]
    key, records = f"{profile}-{start}", Records(site)
    with records.locked(uuid) as record:
        made = record.instances.get(key)
        if made is not None:
            made["claims"] = [each for each in made["claims"] if each != uid]
        if made is None or not made["claims"]:
            _remove(site, nvml.device_by_uuid(uuid), record, entry)
        records.save(uuid, record)


def _remove(site: Site, gpu: Gpu, record: Record, entry: JSON) -> None:
    profile, start = entry["profile"], entry["start"]
    mig.destroy(gpu, profile, start, site.clock, site.settings.busy_seconds)
    record.instances.pop(f"{profile}-{start}", None)
    mig_mode.turn_off(site, gpu, record, min(_LEAVING_SECONDS, site.settings.busy_seconds))


def _complete(made: JSON, found: MigInstance) -> None:
    made |= {"uuid": found.uuid, "gi": found.gpu_instance, "ci": found.compute_instance}
