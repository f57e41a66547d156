"""The GPUs that are watched: which of them answer, why the others do not, and the devices that they are published as.

A fault concerns every device on the faulty part: the MIG device itself, other MIG devices that overlap its memory
slices, the whole GPU and its VFIO sibling. MIG devices on other slices stay healthy.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from dra_driver_gpu.describe import GpuInfo, PublishOptions, make_pool, read_inventory
from dra_driver_gpu.describe.devices import slice_units
from dra_driver_gpu.describe.inventory import GpuReader
from dra_driver_gpu.describe.passthrough import PassthroughGpu, read_passthrough
from dra_driver_gpu.health.history import Reachability
from dra_driver_gpu.nvml.api import Gpu, Nvml
from dra_driver_gpu.nvml.errors import GpuIsLostError, NotFoundError, NvmlError, ResetRequiredError
from dra_driver_gpu.nvml.queries import OptionalQueries, ask_each_gpu
from dra_sdk import Device, HardwareError
from dra_sdk.hardware import Host, read_pci_device
from dra_sdk.hardware.health import Units

log = logging.getLogger(__name__)
_KERNEL_DRIVER = "nvidia"


class WatchedGpus:
    """The GPUs of a node. `gpus` has every GPU that was ever read, as it was then, by UUID.

    `devices` are those that the GPUs are published as, each with a `GpuDevice` as hardware. Of GPUs that are bound to
    VFIO only those that `accepts` takes are published. `survey` is how often MIG devices are read again, in seconds of
    `clock`. `optional` are the queries that may stay without an answer.
    """

    def __init__(
        self,
        options: PublishOptions,
        accepts: Callable[[PassthroughGpu], bool],
        survey: float,
        clock: Callable[[], float],
        optional: OptionalQueries,
    ) -> None:
        self.gpus: dict[str, GpuInfo] = {}
        self.devices: Sequence[Device] = ()
        self._options, self._accepts = options, accepts
        self._survey_seconds, self._clock, self._optional = survey, clock, optional
        self._seen: frozenset[tuple[str, int, bool]] = frozenset()
        self._due = float("-inf")

    def look(self, nvml: Nvml, host: Host) -> dict[str, Gpu]:
        """Return the GPUs that answer, by UUID; read all of them again if one came, went or changed, or if it is time.

        Raises NvmlError if the library itself fails.
        """
        states, errors = ask_each_gpu(nvml, lambda gpu: GpuReader(gpu, self._optional))
        for index, error in errors.items():
            log.debug("the GPU with index %d does not answer: %s", index, error)
        seen = frozenset((state.uuid, state.minor, state.mig) for state in states.values())
        if seen != self._seen or self._clock() >= self._due:
            self._survey(nvml, host)
            self._seen, self._due = seen, self._clock() + self._survey_seconds
        return {state.uuid: state.gpu for state in states.values()}

    def look_without_nvml(self, host: Host) -> None:
        """Find out from sysfs which GPUs are bound to VFIO."""
        gpus_seen = read_passthrough(host) if self._options.passthrough else ()
        passthrough = [gpu for gpu in gpus_seen if self._accepts(gpu)]
        gpus = sorted(self.gpus.values(), key=lambda gpu: gpu.minor)
        self.devices = make_pool("", gpus, passthrough, self._options).devices

    def why_missing(self, nvml: Nvml, uuid: str, host: Host) -> tuple[Reachability, str]:
        """Return why a GPU does not answer, and in which words NVML says so."""
        try:
            nvml.device_by_uuid(uuid).minor_number()
        except GpuIsLostError as error:
            return Reachability.LOST, str(error)
        except ResetRequiredError as error:
            return Reachability.RESET, str(error)
        except NotFoundError as error:
            return (Reachability.AWAY if self._is_away(uuid, host) else Reachability.LOST), str(error)
        except NvmlError as error:
            return Reachability.UNREADABLE, str(error)
        return Reachability.UNREADABLE, "it answers only sometimes"

    def why_missing_without_nvml(self, uuid: str, host: Host) -> tuple[Reachability, str]:
        """Return whether a GPU is with a virtual machine, on a node without NVIDIA driver."""
        reach = Reachability.AWAY if self._is_away(uuid, host) else Reachability.UNREADABLE
        return reach, "there is no NVIDIA driver"

    def units_of_instance(self, uuid: str, gpu_instance: int) -> Units | None:
        """Return the memory slices that a GPU instance had when its GPU was last read."""
        devices = self.gpus[uuid].mig_devices if uuid in self.gpus else ()
        return next((slice_units(mig.placement) for mig in devices if mig.gpu_instance == gpu_instance), None)

    def place_of(self, uuid: str) -> tuple[str, Units] | None:
        """Return the GPU, and the part of it, that the GPU or MIG device with this UUID is."""
        if uuid in self.gpus:
            return uuid, Units()
        devices = ((gpu.uuid, mig) for gpu in self.gpus.values() for mig in gpu.mig_devices)
        return next(((gpu, slice_units(mig.placement)) for gpu, mig in devices if mig.uuid == uuid), None)

    def _survey(self, nvml: Nvml, host: Host) -> None:
        for gpu in read_inventory(nvml, host, self._optional).gpus:
            # A GPU that was reset may have another minor number, which may have been that of the GPU before it.
            self.gpus = {uuid: known for uuid, known in self.gpus.items() if known.pci_address != gpu.pci_address}
            self.gpus[gpu.uuid] = gpu
        self.look_without_nvml(host)

    def _is_away(self, uuid: str, host: Host) -> bool:
        """Return whether the GPU has another kernel driver than NVIDIA's, or none, as in the middle of a change."""
        try:
            return uuid in self.gpus and read_pci_device(host, self.gpus[uuid].pci_address).driver != _KERNEL_DRIVER
        except HardwareError:
            return False
