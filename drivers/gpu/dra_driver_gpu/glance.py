"""A cheap look at the GPUs of a node, often enough to notice whatever others do to them.

It asks for nothing that stays as it is, such as names and profiles; what is published is read anew once it differs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from typing import TypeVar

from dra_driver_gpu.nvml import Gpu, GpuInstance, MigDevice, Nvml
from dra_driver_gpu.nvml.errors import InvalidArgumentError, NotFoundError, NvmlError
from dra_driver_gpu.nvml.profiles import gpu_instances, mig_devices, mig_enabled
from dra_driver_gpu.nvml.values import MigAttributes
from dra_driver_gpu.prepare.records import Record, Records

_Handle = TypeVar("_Handle")
_Told = TypeVar("_Told")
Seen = tuple[object, ...]


def glance(nvml: Nvml, records: Records) -> Iterator[Seen]:
    """What each GPU is, MIG that others turned on, and the instances that others made; of a GPU that fails, how.

    Raises NvmlError where the library itself does not answer, RecordError where it is not known what is ours.
    """
    for index in range(nvml.device_count()):
        try:
            yield _gpu(nvml.device_by_index(index), records)
        except NvmlError as error:
            yield index, type(error)


def _gpu(gpu: Gpu, records: Records) -> Seen:
    uuid, mig = gpu.uuid(), mig_enabled(gpu)
    record = records.read(uuid)
    return uuid, gpu.minor_number(), mig and not record.mig_mode, frozenset(_foreign(gpu, record) if mig else ())


def _foreign(gpu: Gpu, record: Record) -> Iterator[Seen]:
    """GPU instances of others, also those with nothing in them, and the MIG devices in them."""
    places = _there(gpu_instances(gpu), _place)
    places = [(number, profile, start) for number, profile, start in places if not record.made(profile, start)]
    yield from places
    numbers = {number for number, *_ in places}
    yield from (device for device in _there(mig_devices(gpu), _device) if device[0] in numbers)


def _place(instance: GpuInstance) -> tuple[int, int, int]:
    info = instance.info()
    return info.id, info.profile_id, info.placement.start


def _device(device: MigDevice) -> tuple[int, str, MigAttributes]:
    """More than its UUID, which may stay when a compute instance is made anew in another size."""
    return device.gpu_instance_id(), device.uuid(), device.attributes()


def _there(handles: Iterable[_Handle], ask: Callable[[_Handle], _Told]) -> list[_Told]:
    """What is told of each that nobody removed meanwhile."""
    found = []
    for each in handles:
        with suppress(NotFoundError, InvalidArgumentError):
            found.append(ask(each))
    return found
