"""Watches the GPUs of a node, and reports the health of every device that they are published as."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from threading import Event as StopEvent
from typing import Final

from dra_driver_gpu.describe import PublishOptions
from dra_driver_gpu.describe.devices import GpuDevice, GpuKind, slice_units
from dra_driver_gpu.describe.passthrough import PassthroughGpu
from dra_driver_gpu.health.events import BENIGN_XIDS, EventListener, describe_xid
from dra_driver_gpu.health.history import DOUBLE_BIT, GpuHistory, Reachability, read
from dra_driver_gpu.health.inventory import WatchedGpus
from dra_driver_gpu.nvml.api import Gpu, Nvml, NvmlEvent
from dra_driver_gpu.nvml.errors import GpuIsLostError, NvmlError, ResetRequiredError
from dra_driver_gpu.nvml.library import NoDriverError, NvmlLibrary
from dra_driver_gpu.nvml.values import WHOLE_GPU, EventType
from dra_sdk import Device, DeviceHealth, DraError, HealthStatus, Node
from dra_sdk.hardware import Host
from dra_sdk.hardware.health import Units

log = logging.getLogger(__name__)
_STOP_SECONDS: Final = 0.25  # the longest wait without a check whether to stop
_TIMEOUT: Final = 30  # seconds after which a report is too old (KEP-4680)


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthRules:
    """What counts as a fault, and how often GPUs are read. Times are in seconds.

    also_benign: XIDs that leave a GPU healthy, in addition to `BENIGN_XIDS`.
    interval: how often all GPUs are read and reported; events are reported at once.
    settle: how long the driver must say that a GPU needs no recovery until its XIDs and ECC errors are forgotten.
    survey: how often MIG devices are read again.
    trust_counters: a count of uncorrected memory errors is a fault also if the driver names no recovery action.
    """

    also_benign: frozenset[int] = frozenset()
    interval: float = 5.0
    settle: float = 300.0
    survey: float = 30.0
    trust_counters: bool = True

    def is_benign(self, xid: int) -> bool:
        """Return whether this XID is the fault of a program, not of the GPU."""
        return xid in BENIGN_XIDS or xid in self.also_benign


class GpuHealthMonitor:
    """The health of a node's GPUs. It is kept from one call of `watch` to the next; only one may run at a time.

    `options` are what the node publishes; of GPUs that are bound to VFIO, those that `accepts` takes. `troubles` says
    what else is wrong with devices, by UUID, for as long as it is so.
    """

    def __init__(
        self,
        library: NvmlLibrary,
        options: PublishOptions,
        rules: HealthRules | None = None,
        *,
        accepts: Callable[[PassthroughGpu], bool] = lambda _gpu: True,
        troubles: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = time.monotonic,
        listener: EventListener | None = None,
    ) -> None:
        self._library, self._rules, self._clock = library, rules or HealthRules(), clock
        self._watched = WatchedGpus(options, accepts, self._rules.survey, clock, library.optional)
        self._histories: dict[str, GpuHistory] = {}
        self._listener, self._troubles = listener or EventListener(), troubles
        self._lost_before = False
        self._complaint = ""

    def watch(self, node: Node, stop: StopEvent) -> Iterator[list[DeviceHealth]]:
        """Yield all devices at every change and every few seconds until `stop` is set, as `dra_device_health` does.

        If NVML fails it goes on with what it can read; a device about which nothing is known is Unknown.
        """
        while not stop.is_set():
            try:
                yield from self._session(node, stop)
            except NoDriverError as error:  # as on a node whose GPUs are all bound to VFIO
                self._complain(error)
                self._look_without_nvml(node)
                yield self._report()
                stop.wait(self._rules.interval)
            except DraError as error:  # NVML, or a GPU that vanishes from sysfs while it is read
                self._complain(error)
                stop.wait(self._rules.interval)

    def _session(self, host: Host, stop: StopEvent) -> Iterator[list[DeviceHealth]]:
        """Watch until somebody needs NVML closed, because an open NVML holds all GPUs."""
        with self._library.use() as nvml:
            try:
                while not self._must_end(stop):
                    self._look(nvml, host)
                    self._complaint = ""
                    yield self._report()
                    self._listen(stop)
            finally:
                self._listener.close()

    def _must_end(self, stop: StopEvent) -> bool:
        return stop.is_set() or self._library.close_requested

    def _complain(self, error: DraError) -> None:
        """Log an error once, not at every attempt."""
        level = logging.DEBUG if str(error) == self._complaint else logging.WARNING
        log.log(level, "the health of GPUs cannot be read, trying again: %s", error)
        self._complaint = str(error)

    # -- read

    def _look(self, nvml: Nvml, host: Host) -> None:
        gpus = self._watched.look(nvml, host)
        readable = {uuid: gpu for uuid, gpu in gpus.items() if self._read(uuid, gpu)}
        for uuid in self._watched.gpus.keys() - gpus.keys():
            self._missing(uuid, *self._watched.why_missing(nvml, uuid, host))
        self._listener.follow(nvml, readable)

    def _look_without_nvml(self, host: Host) -> None:
        self._watched.look_without_nvml(host)
        for uuid in self._watched.gpus:
            self._missing(uuid, *self._watched.why_missing_without_nvml(uuid, host))

    def _read(self, uuid: str, gpu: Gpu) -> bool:
        try:
            reading = read(uuid, gpu, self._library.optional)
        except GpuIsLostError as error:
            self._missing(uuid, Reachability.LOST, str(error))
            return False
        except ResetRequiredError as error:
            self._missing(uuid, Reachability.RESET, str(error))
            return False
        history = self._history(uuid)
        if history.reach is not Reachability.SEEN:
            log.info("GPU %s is back", uuid)
        history.answered(reading, self._clock())
        return True

    def _missing(self, uuid: str, reach: Reachability, trouble: str) -> None:
        history = self._history(uuid)
        before = history.reach
        history.missing(reach, trouble)
        if history.reach is not before:
            log.warning("GPU %s is %s: %s", uuid, reach.value, trouble)

    def _history(self, uuid: str) -> GpuHistory:
        if uuid not in self._histories:
            self._histories[uuid] = GpuHistory(self._rules.settle, trust_counters=self._rules.trust_counters)
        return self._histories[uuid]

    # -- listen

    def _listen(self, stop: StopEvent) -> None:
        """Wait until an event must be reported, or until it is time to read again."""
        until = self._clock() + self._rules.interval
        while not self._must_end(stop) and (left := until - self._clock()) > 0:
            try:
                event = self._listener.wait(round(min(left, _STOP_SECONDS) * 1000) + 1)
            except GpuIsLostError:
                self._throttle(stop, left)
                return
            self._lost_before = False
            if event is not None and self._record(event):
                return
            if event is None and not self._listener.active:
                stop.wait(min(left, _STOP_SECONDS))

    def _throttle(self, stop: StopEvent, left: float) -> None:
        """Read at once which GPU is lost, but only the first time: NVML answers GPU_IS_LOST for as long as one is."""
        if self._lost_before:
            stop.wait(left)
        self._lost_before = not self._lost_before

    def _record(self, event: NvmlEvent) -> bool:
        """Record an event; True if it makes a device unhealthy that was not.

        An event that repeats is only counted: a storm of events must not be a storm of readings or of log lines.
        """
        try:
            uuid = event.gpu.uuid()
        except NvmlError as error:
            log.warning("an event of a GPU that does not report its UUID: %s", error)
            return True  # the next reading finds out what is wrong with it
        history, now, what = self._history(uuid), self._clock(), DOUBLE_BIT
        if EventType.DOUBLE_BIT_ECC_ERROR in event.type:
            worse = new = history.double_bit(self._units(uuid, event), now)
        elif EventType.XID_CRITICAL_ERROR not in event.type:
            return False  # the next reading counts corrected errors
        elif self._rules.is_benign(event.data):
            what = describe_xid(event.data)
            worse, new = False, history.remark(what)
        else:
            what = describe_xid(event.data)
            worse = new = history.xid(self._units(uuid, event), event.data, now)
        level = logging.DEBUG if not new else logging.WARNING if worse else logging.INFO
        log.log(level, "GPU %s: %s", uuid, what)
        return worse

    def _units(self, uuid: str, event: NvmlEvent) -> Units:
        """Return the slices of an event's MIG device, which may be newer than the last reading; else the whole GPU."""
        if event.gpu_instance_id == WHOLE_GPU:
            return Units()
        try:
            return slice_units(event.gpu.gpu_instance(event.gpu_instance_id).info().placement)
        except NvmlError as error:
            log.debug("GPU instance %d of %s cannot be read: %s", event.gpu_instance_id, uuid, error)
        return self._watched.units_of_instance(uuid, event.gpu_instance_id) or Units()

    # -- report

    def _report(self) -> list[DeviceHealth]:
        return [health for device in self._watched.devices if (health := self._health(device)) is not None]

    def _health(self, device: Device) -> DeviceHealth | None:
        """Return the health of a device; None if it cannot be used because its GPU is with a virtual machine."""
        hardware: GpuDevice = device.hardware
        history, units = self._histories.get(hardware.uuid), hardware.units
        if history is None:  # it was bound to VFIO before the start
            return _health(device, HealthStatus.HEALTHY, "")
        if history.reach is Reachability.AWAY and hardware.kind is not GpuKind.VFIO:
            return None
        if problems := [*history.problems(units), *self._other_troubles(hardware)]:
            return _health(device, HealthStatus.UNHEALTHY, "; ".join(problems), history.taints(units))
        if history.reach is Reachability.UNREADABLE:
            return _health(device, HealthStatus.UNKNOWN, history.trouble)
        return _health(device, HealthStatus.HEALTHY, "; ".join(history.remarks()))

    def _other_troubles(self, device: GpuDevice) -> Iterator[str]:
        """Yield troubles of the device itself, not of others on the same part of the GPU."""
        for uuid, trouble in self._troubles().items():
            if device.kind is not GpuKind.VFIO and self._watched.place_of(uuid) == (device.uuid, device.units):
                yield trouble


def _health(device: Device, status: HealthStatus, message: str, taints: Sequence[str] = ()) -> DeviceHealth:
    return DeviceHealth(device.name, status, message, timeout=_TIMEOUT, taints=taints)
