"""MIG devices: making one where the scheduler placed it, and removing it again.

A MIG device is a GPU instance and one compute instance of its whole size. Both are found by profile and placement, not
by id or by MIG device: a GPU instance without compute instance, which no MIG device shows, is found as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from dra_driver_gpu.describe.names import MigName
from dra_driver_gpu.nvml import ComputeInstance, Gpu, GpuInstance
from dra_driver_gpu.nvml.errors import InsufficientResourcesError, NotFoundError, NotSupportedError
from dra_driver_gpu.nvml.profiles import compute_instances, gpu_instance_profiles, gpu_instances
from dra_driver_gpu.nvml.values import ComputeInstanceProfileKind, GpuInstanceProfile, Placement
from dra_driver_gpu.prepare.in_use import once_free
from dra_driver_gpu.site import Clock
from dra_sdk import PermanentError, RetriableError

_WHOLE: Final = {
    1: ComputeInstanceProfileKind.SLICE_1,
    2: ComputeInstanceProfileKind.SLICE_2,
    3: ComputeInstanceProfileKind.SLICE_3,
    4: ComputeInstanceProfileKind.SLICE_4,
    6: ComputeInstanceProfileKind.SLICE_6,
    7: ComputeInstanceProfileKind.SLICE_7,
    8: ComputeInstanceProfileKind.SLICE_8,
}
"""The compute instance that is as large as its GPU instance, by slices. Kinds with other engines are of other uses."""


@dataclass(frozen=True, slots=True)
class MigInstance:
    """A MIG device that exists."""

    uuid: str
    gpu_instance: int
    compute_instance: int


def key(name: MigName) -> str:
    """How a record knows an instance; one of several compute instances is never ours."""
    return f"{name.profile_id}-{name.start}" if name.compute is None else ""


def existing(gpu: Gpu, name: MigName) -> MigInstance | None:
    """The MIG device of this profile at this place, None where there is none, or another part of it than named."""
    instance = _instance(gpu, name.profile_id, name.start)
    computes = compute_instances(instance) if instance else []
    if instance is not None and name.compute is not None:
        return next(
            (told for each in computes if (told := _told(instance, each)).compute_instance == name.compute), None
        )
    if instance is None or len(computes) != 1:
        return None
    attributes = computes[0].info().device.attributes()
    whole = attributes.compute_instance_slices == attributes.gpu_instance_slices
    return _told(instance, computes[0]) if whole else None


def taken(gpu: Gpu, name: MigName) -> bool:
    """Whether there is a GPU instance of this profile at this place, whatever is in it."""
    return _instance(gpu, name.profile_id, name.start) is not None


def create(gpu: Gpu, name: MigName) -> MigInstance:
    """Make a MIG device; MIG is on. What was made before an error is found by `destroy`."""
    profile = _profile(gpu, name)
    placements = [each for each in gpu.possible_placements(profile.id) if each.start == name.start]
    if not placements:
        raise PermanentError(f"profile {name.profile_id} of GPU {name.minor} cannot start at slice {name.start}")
    instance = _placed(gpu, profile, placements[0])
    kind = _WHOLE.get(profile.slices)
    if kind is None:
        raise PermanentError(f"a MIG device of {profile.slices} slices has no compute instance of its size")
    compute = instance.create_compute_instance(instance.compute_instance_profile(kind).id)
    return _told(instance, compute)


def destroy(gpu: Gpu, profile_id: int, start: int, clock: Clock, seconds: float) -> bool:
    """Remove a MIG device, whole or begun; whether there was one. RetriableError while processes run on it."""
    instance = _instance(gpu, profile_id, start)
    if instance is None:
        return False
    number = instance.info().id
    for compute in compute_instances(instance):
        once_free(compute.destroy, clock, seconds, gpu, number)
    once_free(instance.destroy, clock, seconds, gpu, number)
    if _instance(gpu, profile_id, start) is not None:
        raise RetriableError(f"the GPU instance at slice {start} was destroyed, and is still there")
    return True


def _profile(gpu: Gpu, name: MigName) -> GpuInstanceProfile:
    for profile in gpu_instance_profiles(gpu):
        if profile.id == name.profile_id:
            return profile
    raise PermanentError(f"GPU {name.minor} has no MIG profile with id {name.profile_id}")


def _placed(gpu: Gpu, profile: GpuInstanceProfile, placement: Placement) -> GpuInstance:
    try:
        return gpu.create_gpu_instance(profile.id, placement)
    except InsufficientResourcesError as error:
        taken = ", ".join(f"slices {each.start}-{each.start + each.size - 1}" for each in _taken(gpu)) or "nothing"
        raise RetriableError(
            f"there is no room for {profile.name or profile.id} at slice {placement.start}: MIG devices take {taken}"
        ) from error


def _taken(gpu: Gpu) -> list[Placement]:
    return sorted(each.info().placement for each in gpu_instances(gpu))


def _instance(gpu: Gpu, profile_id: int, start: int) -> GpuInstance | None:
    """The GPU instance of this profile at this place; None also where MIG is off."""
    try:
        found = gpu.gpu_instances(profile_id)
    except (NotSupportedError, NotFoundError):
        return None
    return next((each for each in found if each.info().placement.start == start), None)


def _told(instance: GpuInstance, compute: ComputeInstance) -> MigInstance:
    info = compute.info()
    return MigInstance(info.device.uuid(), instance.info().id, info.id)
