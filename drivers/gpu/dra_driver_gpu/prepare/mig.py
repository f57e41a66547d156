"""MIG devices: making one where the scheduler placed it, and removing it again.

A MIG device is a GPU instance and one compute instance of its whole size. Both are found by profile and placement, not
by id or by MIG device: a GPU instance without compute instance, which no MIG device shows, is found as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dra_driver_gpu.describe.names import MigName
from dra_driver_gpu.nvml import ComputeInstance, Gpu, GpuInstance, Nvml
from dra_driver_gpu.nvml.errors import (
    InsufficientResourcesError,
    InUseError,
    InvalidArgumentError,
    NotFoundError,
    NotSupportedError,
    NvmlError,
)
from dra_driver_gpu.nvml.profiles import compute_instances, gpu_instance_profiles, gpu_instances, mig_enabled
from dra_driver_gpu.nvml.values import (
    WHOLE_GPU,
    Architecture,
    ComputeInstanceProfileKind,
    GpuInstanceProfile,
    Placement,
)
from dra_driver_gpu.prepare.holders import holders, own_pid
from dra_driver_gpu.prepare.records import Record, Records
from dra_driver_gpu.site import Clock, Site
from dra_sdk import PermanentError, RetriableError

log = logging.getLogger(__name__)
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


def switches_freely(gpu: Gpu) -> bool:
    """Whether MIG can be switched without a reset: from Hopper on."""
    return Architecture.HOPPER <= gpu.architecture() < Architecture.UNKNOWN


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
        _once_free(compute.destroy, clock, seconds, gpu, number)
    _once_free(instance.destroy, clock, seconds, gpu, number)
    if _instance(gpu, profile_id, start) is not None:
        raise RetriableError(f"the GPU instance at slice {start} was destroyed, and is still there")
    return True


def turn_on(site: Site, nvml: Nvml, uuid: str, record: Record) -> Gpu:
    """Turn MIG on where it is off, and remember that; the GPU, whose handle may be another then."""
    gpu = nvml.device_by_uuid(uuid)
    if mig_enabled(gpu):
        return gpu
    if not switches_freely(gpu):
        raise PermanentError(f"MIG is off on GPU {uuid}, and turning it on needs a reset before Hopper")
    record.mig_mode = True
    Records(site).save(uuid, record)
    try:
        gpu.set_mig_mode(on=True)
    except InUseError as error:
        raise RetriableError(
            f"MIG cannot be turned on while GPU {uuid} is in use{users(site, gpu)}: {error}"
        ) from error
    return nvml.device_by_uuid(uuid)


def turn_off(site: Site, gpu: Gpu, record: Record) -> None:
    """Turn MIG off again where we turned it on and nothing is left; kept on while somebody looks at the GPU."""
    if not record.mig_mode or record.instances:
        return
    if mig_enabled(gpu) and not gpu_instances(gpu):
        try:
            _once_free(lambda: gpu.set_mig_mode(on=False), site.clock, site.settings.busy_seconds, gpu)
        except RetriableError as error:
            log.warning("MIG stays on without MIG devices, until the GPU is wanted as a whole: %s", error)
            return
    record.mig_mode = mig_enabled(gpu)


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


def users(site: Site, gpu: Gpu) -> str:
    """Who holds a GPU besides us, to be appended to a sentence: a monitor too, which runs nothing on it."""
    opened = holders(site, f"/dev/nvidia{gpu.minor_number()}")
    return _by(sorted({*_pids(gpu, WHOLE_GPU), *opened} - {own_pid(site)}))


def _pids(gpu: Gpu, instance: int) -> list[int]:
    """Which processes run on a GPU or a GPU instance, as far as NVML shows them."""
    try:
        return [each.pid for each in gpu.processes() if instance in {WHOLE_GPU, each.gpu_instance_id}]
    except NvmlError as error:
        log.debug("the processes on a GPU cannot be told: %s", error)
        return []


def _by(pids: list[int]) -> str:
    return f" by process {', '.join(map(str, pids))}" if pids else ""


def _once_free(change: Callable[[], None], clock: Clock, seconds: float, gpu: Gpu, instance: int = WHOLE_GPU) -> None:
    """Do it as soon as nobody uses what it changes; what is gone by then is no error."""
    last: list[NvmlError] = []

    def done() -> bool:
        try:
            change()
        except InUseError as error:
            last.append(error)
            return False
        except (InvalidArgumentError, NotFoundError):
            return True
        return True

    if not clock.until(done, seconds):
        raise RetriableError(f"still in use{_by(_pids(gpu, instance))} after {seconds:.0f} s: {last[-1]}")
