"""MIG mode of a GPU: turned on for the first MIG device where that needs no reset, and off again after the last."""

from __future__ import annotations

import logging

from dra_driver_gpu.nvml import Gpu, Nvml
from dra_driver_gpu.nvml.errors import InUseError
from dra_driver_gpu.nvml.profiles import gpu_instances, mig_enabled
from dra_driver_gpu.nvml.values import Architecture
from dra_driver_gpu.prepare.in_use import once_free, users
from dra_driver_gpu.prepare.records import Record, Records
from dra_driver_gpu.site import Site
from dra_sdk import PermanentError, RetriableError

log = logging.getLogger(__name__)


def turn_on(site: Site, nvml: Nvml, uuid: str, record: Record) -> Gpu:
    """Turn MIG on where it is off, and remember that; the GPU, whose handle may be another then."""
    gpu = nvml.device_by_uuid(uuid)
    if mig_enabled(gpu):
        return gpu
    if not _switches_freely(gpu):
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


def turn_off(site: Site, gpu: Gpu, record: Record, seconds: float) -> None:
    """Turn MIG off again where we turned it on and nothing is left; kept on if somebody still looks at the GPU then."""
    if not record.mig_mode or record.instances:
        return
    if mig_enabled(gpu) and not gpu_instances(gpu):
        try:
            once_free(lambda: gpu.set_mig_mode(on=False), site.clock, seconds, gpu)
        except RetriableError as error:
            log.warning("MIG stays on without MIG devices, until the GPU is wanted as a whole: %s", error)
            return
    record.mig_mode = mig_enabled(gpu)


def _switches_freely(gpu: Gpu) -> bool:
    """Whether MIG can be switched without a reset: from Hopper on."""
    return Architecture.HOPPER <= gpu.architecture() < Architecture.UNKNOWN
