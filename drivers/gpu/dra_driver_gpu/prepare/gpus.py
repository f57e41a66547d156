"""Finding the GPU of a device, and what must be true of a GPU that is to be used whole."""

from __future__ import annotations

from dra_driver_gpu.nvml import Gpu, Nvml
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError
from dra_driver_gpu.nvml.profiles import gpu_instances, mig_enabled
from dra_driver_gpu.prepare import mig_mode
from dra_driver_gpu.prepare.in_use import users
from dra_driver_gpu.prepare.plan import Wanted
from dra_driver_gpu.prepare.records import Records
from dra_driver_gpu.site import Site
from dra_sdk import RetriableError


def find(nvml: Nvml, wanted: Wanted) -> Gpu:
    """The GPU of a device, by the UUID that was published. RetriableError where it is lost or gone."""
    try:
        return nvml.device_by_uuid(wanted.gpu_uuid)
    except (NotFoundError, GpuIsLostError) as error:
        raise RetriableError(f"the GPU of device {wanted.device.name} cannot be reached: {error}") from error


def make_whole(site: Site, nvml: Nvml, gpu: Gpu) -> Gpu:
    """A GPU that is to be used whole must not be cut: turns MIG off where that is ours to do.

    RetriableError where it is somebody else's.
    """
    if not mig_enabled(gpu):
        return gpu
    uuid, records = gpu.uuid(), Records(site)
    with records.locked(uuid) as record:
        mig_mode.turn_off(site, gpu, record, site.settings.busy_seconds)
        records.save(uuid, record)
    if mig_enabled(gpu):
        count = len(gpu_instances(gpu))
        by = users(site, gpu)
        raise RetriableError(
            f"GPU {uuid} cannot be used whole: MIG is on, with {count} GPU instances"
            + (f", and it is in use{by}" if by else "")
        )
    return nvml.device_by_uuid(uuid)
