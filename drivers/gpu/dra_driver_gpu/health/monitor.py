"""Watches the GPUs of a node and yields the health of every device that they are published as."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from threading import Event as Flag
from typing import Final

from dra_driver_gpu.describe import Offer
from dra_driver_gpu.describe.passthrough import PassthroughGpu
from dra_driver_gpu.health.census import Census
from dra_driver_gpu.health.history import DOUBLE_BIT, GpuHistory, Reach
from dra_driver_gpu.health.listener import Listener
from dra_driver_gpu.health.readings import read
from dra_driver_gpu.health.rules import HealthRules
from dra_driver_gpu.health.sites import Site, SitedDevice, existing_site, site_of
from dra_driver_gpu.health.xid import told
from dra_driver_gpu.library import Library, NoDriverError
from dra_driver_gpu.nvml.api import Event, Gpu, Nvml
from dra_driver_gpu.nvml.errors import GpuIsLostError, NvmlError, ResetRequiredError
from dra_driver_gpu.nvml.values import WHOLE_GPU, EventType
from dra_sdk import DeviceHealth, DraError, HealthStatus, Node
from dra_sdk.hardware import Host

log = logging.getLogger(__name__)
_GLANCE: Final = 0.25  # seconds without a look at whether we are to stop
_TIMEOUT: Final = 30


class HealthMonitor:
    """What is known of the GPUs is kept from one call of `watch` to the next; only one may run at a time.

    `offer` is what the node publishes, of GPUs that only VFIO knows those that `gives` accepts. `troubles` tells what
    else is wrong with devices, by UUID, as long as it is so.
    """

    def __init__(
        self,
        library: Library,
        offer: Offer,
        rules: HealthRules | None = None,
        *,
        gives: Callable[[PassthroughGpu], bool] = lambda _gpu: True,
        troubles: Callable[[], Mapping[str, str]] = dict,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._library, self._rules, self._clock = library, rules or HealthRules(), clock
        self._census = Census(offer, gives, self._rules.survey, clock)
        self._histories: dict[str, GpuHistory] = {}
        self._listener, self._troubles = Listener(), troubles
        self._lost_again = False
        self._complaint = ""

    def watch(self, node: Node, stop: Flag) -> Iterator[list[DeviceHealth]]:
        """What `dra_device_health` yields: all devices, at every change and every few seconds, until `stop` is set.

        Goes on where NVML fails, with what it can read; a device of which nothing is known is Unknown.
        """
        host = Host(node.root)
        while not stop.is_set():
            try:
                yield from self._session(host, stop)
            except NoDriverError as error:  # as on a node that has given all its GPUs away
                self._complain(error)
                self._look_without(host)
                yield self._report()
                stop.wait(self._rules.interval)
            except DraError as error:  # NVML, or a GPU that vanishes from sysfs while it is read
                self._complain(error)
                stop.wait(self._rules.interval)

    def _session(self, host: Host, stop: Flag) -> Iterator[list[DeviceHealth]]:
        """Until somebody needs NVML closed, because an open one holds all GPUs."""
        with self._library.use() as nvml:
            try:
                while not self._ending(stop):
                    self._look(nvml, host)
                    self._complaint = ""
                    yield self._report()
                    self._listen(stop)
            finally:
                self._listener.close()

    def _ending(self, stop: Flag) -> bool:
        return stop.is_set() or self._library.close_requested

    def _complain(self, error: DraError) -> None:
        """Once for each thing that is wrong."""
        level = logging.DEBUG if str(error) == self._complaint else logging.WARNING
        log.log(level, "the health of GPUs cannot be read, trying again: %s", error)
        self._complaint = str(error)

    # looking

    def _look(self, nvml: Nvml, host: Host) -> None:
        gpus = self._census.look(nvml, host)
        readable = {uuid: gpu for uuid, gpu in gpus.items() if self._read(uuid, gpu)}
        for uuid in self._census.cards.keys() - gpus.keys():
            self._missing(uuid, *self._census.reach(nvml, uuid, host))
        self._listener.follow(nvml, readable)

    def _look_without(self, host: Host) -> None:
        """What sysfs shows."""
        self._census.look_without(host)
        for uuid in self._census.cards:
            self._missing(uuid, *self._census.reach_without(uuid, host))

    def _read(self, uuid: str, gpu: Gpu) -> bool:
        try:
            reading = read(gpu)
        except (GpuIsLostError, ResetRequiredError) as error:
            self._missing(uuid, Reach.LOST if isinstance(error, GpuIsLostError) else Reach.RESET, str(error))
            return False
        history = self._history(uuid)
        if history.reach is not Reach.SEEN:
            log.info("GPU %s is back", uuid)
        history.read(Site(uuid), reading, self._clock())
        return True

    def _missing(self, uuid: str, reach: Reach, trouble: str) -> None:
        history = self._history(uuid)
        before = history.reach
        history.missing(reach, trouble)
        if history.reach is not before:
            log.warning("GPU %s is %s: %s", uuid, reach.value, trouble)

    def _history(self, uuid: str) -> GpuHistory:
        return self._histories.setdefault(uuid, GpuHistory(self._rules.settle))

    # listening

    def _listen(self, stop: Flag) -> None:
        """Until something happens that is to be told, or it is time to look again."""
        until = self._clock() + self._rules.interval
        while not self._ending(stop) and (left := until - self._clock()) > 0:
            try:
                event = self._listener.wait(round(min(left, _GLANCE) * 1000) + 1)
            except GpuIsLostError:
                self._throttle(stop, left)
                return
            self._lost_again = False
            if event is not None and self._happened(event):
                return
            if event is None and not self._listener.active:
                stop.wait(min(left, _GLANCE))

    def _throttle(self, stop: Flag, left: float) -> None:
        """NVML says that a GPU is lost as long as one is: look which, once; if it is none, wait."""
        if self._lost_again:
            stop.wait(left)
        self._lost_again = not self._lost_again

    def _happened(self, event: Event) -> bool:
        """Note an event; whether it makes anything unhealthy that was not. What comes again is only counted: a storm of
        events is neither a storm of looks nor of lines in the log."""
        try:
            uuid = event.gpu.uuid()
        except NvmlError as error:
            log.warning("an event of a GPU that does not say which one it is: %s", error)
            return True  # the next look will find what is wrong with it
        history, now, what = self._history(uuid), self._clock(), DOUBLE_BIT
        if EventType.DOUBLE_BIT_ECC_ERROR in event.type:
            worse = news = history.double_bit(self._site(uuid, event), now)
        elif EventType.XID_CRITICAL_ERROR not in event.type:
            return False  # corrected errors are counted by the next reading
        elif self._rules.benign(event.data):
            what = told(event.data)
            worse, news = False, history.excused(what)
        else:
            what = told(event.data)
            worse = news = history.error(self._site(uuid, event), what, now)
        level = logging.DEBUG if not news else logging.WARNING if worse else logging.INFO
        log.log(level, "GPU %s: %s", uuid, what)
        return worse

    def _site(self, uuid: str, event: Event) -> Site:
        """The MIG device of an event, which may have been made since the GPUs were last read; else the whole GPU."""
        if event.gpu_instance_id == WHOLE_GPU:
            return Site(uuid)
        try:
            return Site(uuid, event.gpu.gpu_instance(event.gpu_instance_id).info().placement)
        except NvmlError as error:
            log.debug("GPU instance %d of %s cannot be asked: %s", event.gpu_instance_id, uuid, error)
        card = self._census.cards.get(uuid)
        return (card and existing_site(card, event.gpu_instance_id)) or Site(uuid)

    # telling

    def _report(self) -> list[DeviceHealth]:
        return [health for device in self._census.devices if (health := self._health(device)) is not None]

    def _health(self, device: SitedDevice) -> DeviceHealth | None:
        """A device's state; None while it cannot be used because the GPU is passed through, or is not."""
        history = self._histories.get(device.site.gpu)
        if history is None:  # bound to VFIO since before we looked
            return _told(device, HealthStatus.HEALTHY, "")
        if history.reach is Reach.AWAY and not device.passthrough:
            return None
        if problems := [*history.problems(device.site), *self._others(device)]:
            return _told(device, HealthStatus.UNHEALTHY, "; ".join(problems))
        if history.reach is Reach.UNREADABLE:
            return _told(device, HealthStatus.UNKNOWN, history.trouble)
        return _told(device, HealthStatus.HEALTHY, "; ".join(history.remarks()))

    def _others(self, device: SitedDevice) -> Iterator[str]:
        """Of the device itself, not of what else lies on the same part of the GPU."""
        for uuid, trouble in self._troubles().items():
            if not device.passthrough and device.site == site_of(self._census.cards.values(), uuid):
                yield trouble


def _told(device: SitedDevice, status: HealthStatus, message: str) -> DeviceHealth:
    return DeviceHealth(device.name, status, message, timeout=_TIMEOUT)
