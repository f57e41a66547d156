"""Finding the GPU of a device, and what must be true of a GPU that is to be used whole."""

from __future__ import annotations

from dra_driver_gpu.nvml import Gpu, Nvml, NvmlError
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError
from dra_driver_gpu.nvml.profiles import gpu_instances, mig_enabled
from dra_driver_gpu.prepare import mig
from dra_driver_gpu.prepare.plan import Wanted
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.site import Site
from dra_sdk import RetriableError


def find(nvml: Nvml, wanted: Wanted) -> Gpu:
    """The GPU of a device: by the UUID that was published, else by the minor number in its name.

    RetriableError where it is lost or gone.
    """
    try:
        if wanted.gpu_uuid:
            return nvml.device_by_uuid(wanted.gpu_uuid)
        found = next((gpu for gpu in _reachable(nvml) if gpu.minor_number() == wanted.minor), None)
    except (NotFoundError, GpuIsLostError) as error:
        raise RetriableError(f"the GPU of device {wanted.device.name} cannot be reached: {error}") from error
    if found is None:
        raise RetriableError(f"the GPU of device {wanted.device.name} is not there")
    return found


def make_whole(site: Site, nvml: Nvml, gpu: Gpu) -> Gpu:
    """A GPU that is to be used whole must not be cut: turns MIG off where that is ours to do.

    RetriableError where it is somebody else's.
    """
    if not mig_enabled(gpu):
        return gpu
    uuid, records = gpu.uuid(), Records(site)
    with records.locked(uuid) as record:
        mig.turn_off(site, gpu, record)
        records.save(uuid, record)
    if mig_enabled(gpu):
        count = len(gpu_instances(gpu))
        users = mig.users(site, gpu)
        raise RetriableError(
            f"GPU {uuid} cannot be used whole: MIG is on, with {count} GPU instances"
            + (f", and it is in use{users}" if users else "")
        )
    return nvml.device_by_uuid(uuid)


def _reachable(nvml: Nvml) -> list[Gpu]:
    found = []
    for index in range(nvml.device_count()):
        try:
            found.append(nvml.device_by_index(index))
        except NvmlError:  # another GPU's trouble
            continue
    return found
