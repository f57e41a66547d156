"""A GPU for a claim: finding it, turning its MIG mode on and off, and waiting until nobody uses it.

We turn MIG on for the first MIG device if the GPU needs no reset for that, and off again after the last one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from dra_driver_gpu.gpu_record import GpuRecord, gpu_records
from dra_driver_gpu.nvidia_node import NvidiaNode
from dra_driver_gpu.nvml import Gpu, Nvml, NvmlError
from dra_driver_gpu.nvml.errors import GpuIsLostError, InUseError, InvalidArgumentError, NotFoundError
from dra_driver_gpu.nvml.queries import gpu_instances, mig_enabled
from dra_driver_gpu.nvml.values import WHOLE_GPU
from dra_driver_gpu.prepare.plan import PlannedDevice
from dra_sdk import PermanentError, RetriableError
from dra_sdk.hardware.pci_driver import holders, own_pid
from dra_sdk.hardware.polling import Clock

log = logging.getLogger(__name__)


def find_gpu(nvml: Nvml, planned: PlannedDevice) -> Gpu:
    """Return the GPU of a device, by its UUID. Raises RetriableError if it is lost or gone."""
    try:
        return nvml.device_by_uuid(planned.hardware.uuid)
    except (NotFoundError, GpuIsLostError) as error:
        raise RetriableError(f"the GPU of device {planned.device.name} cannot be reached: {error}") from error


def make_whole(node: NvidiaNode, nvml: Nvml, gpu: Gpu) -> Gpu:
    """Prepare a GPU to be used whole: turn MIG off if we turned it on.

    Raises RetriableError if somebody else uses MIG on it.
    """
    if not mig_enabled(gpu):
        return gpu
    uuid, records = gpu.uuid(), gpu_records(node)
    with records.locked(uuid) as record:
        turn_mig_off(node, gpu, record, node.settings.busy_seconds)
        records.save(uuid, record)
    if mig_enabled(gpu):
        count = len(gpu_instances(gpu))
        by = users(node, gpu)
        raise RetriableError(
            f"GPU {uuid} cannot be used whole: MIG is on, with {count} GPU instances"
            + (f", and it is in use{by}" if by else "")
        )
    return nvml.device_by_uuid(uuid)


def turn_mig_on(node: NvidiaNode, nvml: Nvml, uuid: str, record: GpuRecord) -> Gpu:
    """Turn MIG on if it is off, and record that; return the GPU, whose handle may have changed.

    Raises PermanentError if that needs a reset, RetriableError while the GPU is in use.
    """
    gpu = nvml.device_by_uuid(uuid)
    if mig_enabled(gpu):
        return gpu
    if not gpu.architecture().toggles_mig_live:
        raise PermanentError(f"MIG is off on GPU {uuid}, and turning it on needs a reset before Hopper")
    record.mig_mode = True
    gpu_records(node).save(uuid, record)
    try:
        gpu.set_mig_mode(on=True)
    except InUseError as error:
        raise RetriableError(
            f"MIG cannot be turned on while GPU {uuid} is in use{users(node, gpu)}: {error}"
        ) from error
    return nvml.device_by_uuid(uuid)


def turn_mig_off(node: NvidiaNode, gpu: Gpu, record: GpuRecord, seconds: float) -> None:
    """Turn MIG off if we turned it on and no instance is left; leave it on if the GPU stays in use for `seconds`."""
    if not record.mig_mode or record.instances:
        return
    if mig_enabled(gpu) and not gpu_instances(gpu):
        try:
            once_free(lambda: gpu.set_mig_mode(on=False), node.clock, seconds, gpu)
        except RetriableError as error:
            log.warning("MIG stays on without MIG devices, until a claim needs the whole GPU: %s", error)
            return
    record.mig_mode = mig_enabled(gpu)


def once_free(change: Callable[[], None], clock: Clock, seconds: float, gpu: Gpu, instance: int = WHOLE_GPU) -> None:
    """Make a change as soon as nobody uses what it changes; nothing to do if that is gone by then.

    Raises RetriableError with the processes that still use it after `seconds`.
    """
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
        raise RetriableError(f"still in use{_by(_running(gpu, instance))} after {seconds:.0f} s: {last[-1]}")


def users(node: NvidiaNode, gpu: Gpu) -> str:
    """Return who else has a GPU open, monitors included, as words to append to `in use`; empty if that is not known."""
    opened = holders(node, f"/dev/nvidia{gpu.minor_number()}")
    return _by(sorted({*_running(gpu, WHOLE_GPU), *opened} - {own_pid(node)}))


def _running(gpu: Gpu, instance: int) -> list[int]:
    """Return the processes on a GPU or on a GPU instance, as far as NVML shows them."""
    try:
        return [process.pid for process in gpu.processes() if instance in {WHOLE_GPU, process.gpu_instance_id}]
    except NvmlError as error:
        log.debug("the processes on a GPU cannot be read: %s", error)
        return []


def _by(pids: list[int]) -> str:
    return f" by process {', '.join(map(str, pids))}" if pids else ""
