"""MIG devices of claims: created where the scheduler placed them, used as they are, and removed with the last claim.

A MIG device is a GPU instance with one compute instance of its whole size. Both are found by profile and placement, not
by id: so a GPU instance without compute instance, which is no MIG device, is found as well. The GPU's record lists the
instances that we created; every other MIG device belongs to an operator, is used as it is, and stays.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from dra_driver_gpu.describe.devices import MigPlace
from dra_driver_gpu.gpu_record import JSON, MIG_STEP, gpu_records, instance_key
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml import ComputeInstance, Gpu, GpuInstance, Nvml
from dra_driver_gpu.nvml.errors import InsufficientResourcesError, NotFoundError, NotSupportedError
from dra_driver_gpu.nvml.mig import ComputeInstanceProfileKind, GpuInstanceProfile, Placement
from dra_driver_gpu.nvml.queries import compute_instances, gpu_instance_profiles, gpu_instances, mig_enabled
from dra_driver_gpu.prepare.gpus import find_gpu, once_free, turn_mig_off, turn_mig_on
from dra_driver_gpu.prepare.plan import PlannedDevice
from dra_sdk import Claim, HeldClaim, PermanentError, RetriableError
from dra_sdk.hardware.polling import Clock

_WHOLE: Final = {
    1: ComputeInstanceProfileKind.SLICE_1,
    2: ComputeInstanceProfileKind.SLICE_2,
    3: ComputeInstanceProfileKind.SLICE_3,
    4: ComputeInstanceProfileKind.SLICE_4,
    6: ComputeInstanceProfileKind.SLICE_6,
    7: ComputeInstanceProfileKind.SLICE_7,
    8: ComputeInstanceProfileKind.SLICE_8,
}
"""The compute instance that is as large as its GPU instance, by slices; kinds with other engines do not serve here."""
_TURN_OFF_SECONDS: Final = 1.0  # for MIG to be turned off; the next claim for the whole GPU tries again


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device that exists.

    uuid: its UUID.
    gpu_instance: the id of its GPU instance.
    compute_instance: the id of its compute instance.
    """

    uuid: str
    gpu_instance: int
    compute_instance: int


def find_mig_device(nvml: Nvml, planned: PlannedDevice) -> tuple[Gpu, MigInstance | None]:
    """Return the GPU of a MIG device, and the device if it exists: for admin access, which changes nothing."""
    gpu = find_gpu(nvml, planned)
    return gpu, _existing(gpu, planned.mig) if planned.mig and mig_enabled(gpu) else None


def obtain_mig_device(
    node: NvidiaNode, nvml: Nvml, claim: Claim[Any], planned: PlannedDevice
) -> tuple[Gpu, MigInstance]:
    """Return the GPU of a MIG device, and the device, which is created if it is missing and that is allowed.

    Raises RetriableError if it is missing and cannot be created now.
    """
    place = planned.mig
    if place is None:
        raise ValueError(f"{planned.device.name} is not a MIG device")
    gpu = find_gpu(nvml, planned)
    uuid, records = gpu.uuid(), gpu_records(node)
    # We never create one of several compute instances in a GPU instance.
    key = instance_key(place.profile.id, place.placement.start) if place.compute is None else ""
    with records.locked(uuid) as record:
        mig = _existing(gpu, place) if mig_enabled(gpu) else None
        made = record.instances.get(key)
        if mig is not None and made is None:
            return gpu, mig
        if made is None:
            _check_may_create(node, gpu, planned, place)
        claim.journal({"step": MIG_STEP, "gpu": uuid, "profile": place.profile.id, "start": place.placement.start})
        claims = [] if made is None else [holder for holder in made["claims"] if holder != claim.uid]
        record.instances[key] = {**(made or {}), "claims": [*claims, claim.uid]}
        records.save(uuid, record)
        if mig is None:
            gpu = turn_mig_on(node, nvml, uuid, record)
            if made is not None:  # an earlier attempt was interrupted
                _destroy(gpu, place.profile.id, place.placement.start, node.clock, node.settings.busy_seconds)
            mig = _create(gpu, place)
        record.instances[key] |= {"uuid": mig.uuid, "gi": mig.gpu_instance, "ci": mig.compute_instance}
        records.save(uuid, record)
        return gpu, mig


def release_mig_device(node: NvidiaNode, nvml: Nvml, claim: HeldClaim, entry: JSON) -> None:
    """Undo `obtain_mig_device` for a claim with `entry` in its journal; the last claim removes the device."""
    uuid, profile, start = entry["gpu"], entry["profile"], entry["start"]
    key, records = instance_key(profile, start), gpu_records(node)
    with records.locked(uuid) as record:
        made = record.instances.get(key)
        if made is not None:
            made["claims"] = [holder for holder in made["claims"] if holder != claim.uid]
        if made is None or not made["claims"]:
            gpu = nvml.device_by_uuid(uuid)
            _destroy(gpu, profile, start, node.clock, node.settings.busy_seconds)
            record.instances.pop(key, None)
            with claim.undoing(
                f"MIG mode of GPU {uuid}", harmless=True
            ):  # the next claim for the whole GPU tries again
                turn_mig_off(node, gpu, record, min(_TURN_OFF_SECONDS, node.settings.busy_seconds))
        records.save(uuid, record)


def _check_may_create(node: NvidiaNode, gpu: Gpu, planned: PlannedDevice, place: MigPlace) -> None:
    if not node.settings.dynamic_mig or place.compute is not None:
        raise RetriableError(f"MIG device {planned.device.name} no longer exists, and is not created on demand")
    if _instance(gpu, place.profile.id, place.placement.start) is not None:
        raise RetriableError(
            f"MIG device {planned.device.name} cannot be created: somebody else's GPU instance is there, without "
            "compute instance or with several"
        )


def _existing(gpu: Gpu, place: MigPlace) -> MigInstance | None:
    """Return the MIG device with this profile and placement; None if there is none, or if it is divided otherwise."""
    instance = _instance(gpu, place.profile.id, place.placement.start)
    if instance is None:
        return None
    computes = compute_instances(instance)
    if place.compute is not None:
        described = (_describe(instance, compute) for compute in computes)
        return next((mig for mig in described if mig.compute_instance == place.compute), None)
    if len(computes) != 1:
        return None
    attributes = computes[0].info().device.attributes()
    whole = attributes.compute_instance_slices == attributes.gpu_instance_slices
    return _describe(instance, computes[0]) if whole else None


def _create(gpu: Gpu, place: MigPlace) -> MigInstance:
    """Create a MIG device; MIG is on. `_destroy` finds what was created before an error."""
    profile = _profile(gpu, place)
    start = place.placement.start
    placements = [possible for possible in gpu.possible_placements(profile.id) if possible.start == start]
    if not placements:
        raise PermanentError(f"profile {profile.id} of GPU {gpu.uuid()} cannot start at slice {place.placement.start}")
    instance = _create_gpu_instance(gpu, profile, placements[0])
    kind = _WHOLE.get(profile.slices)
    if kind is None:
        raise PermanentError(f"a MIG device of {profile.slices} slices has no compute instance of its size")
    compute = instance.create_compute_instance(instance.compute_instance_profile(kind).id)
    return _describe(instance, compute)


def _destroy(gpu: Gpu, profile_id: int, start: int, clock: Clock, seconds: float) -> None:
    """Remove a MIG device, complete or not, if there is one. Raises RetriableError while processes run on it."""
    instance = _instance(gpu, profile_id, start)
    if instance is None:
        return
    number = instance.info().id
    for compute in compute_instances(instance):
        once_free(compute.destroy, clock, seconds, gpu, number)
    once_free(instance.destroy, clock, seconds, gpu, number)
    if _instance(gpu, profile_id, start) is not None:
        raise RetriableError(f"the GPU instance at slice {start} was destroyed, and is still there")


def _profile(gpu: Gpu, place: MigPlace) -> GpuInstanceProfile:
    for profile in gpu_instance_profiles(gpu):
        if profile.id == place.profile.id:
            return profile
    raise PermanentError(f"GPU {gpu.uuid()} has no MIG profile with id {place.profile.id}")


def _create_gpu_instance(gpu: Gpu, profile: GpuInstanceProfile, placement: Placement) -> GpuInstance:
    try:
        return gpu.create_gpu_instance(profile.id, placement)
    except InsufficientResourcesError as error:
        taken = sorted(gpu_instance.info().placement for gpu_instance in gpu_instances(gpu))
        slices = ", ".join(f"slices {other.start}-{other.start + other.size - 1}" for other in taken) or "nothing"
        raise RetriableError(
            f"there is no room for {profile.name or profile.id} at slice {placement.start}: MIG devices take {slices}"
        ) from error


def _instance(gpu: Gpu, profile_id: int, start: int) -> GpuInstance | None:
    """Return the GPU instance with this profile and placement; None also if MIG is off."""
    try:
        instances = gpu.gpu_instances(profile_id)
    except (NotSupportedError, NotFoundError):
        return None
    return next((instance for instance in instances if instance.info().placement.start == start), None)


def _describe(instance: GpuInstance, compute: ComputeInstance) -> MigInstance:
    info = compute.info()
    return MigInstance(info.device.uuid(), instance.info().id, info.id)
