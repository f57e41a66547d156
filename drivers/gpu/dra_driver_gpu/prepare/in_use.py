"""Who uses a GPU, and waiting until nobody does, where NVML says that it is in use."""

from __future__ import annotations

import logging
from collections.abc import Callable

from dra_driver_gpu.nvml import Gpu, NvmlError
from dra_driver_gpu.nvml.errors import InUseError, InvalidArgumentError, NotFoundError
from dra_driver_gpu.nvml.values import WHOLE_GPU
from dra_driver_gpu.prepare.holders import holders, own_pid
from dra_driver_gpu.site import Clock, Site
from dra_sdk import RetriableError

log = logging.getLogger(__name__)


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


def once_free(change: Callable[[], None], clock: Clock, seconds: float, gpu: Gpu, instance: int = WHOLE_GPU) -> None:
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
