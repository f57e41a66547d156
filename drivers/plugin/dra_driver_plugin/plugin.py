"""One registered plugin: a thread follows its list of devices, and connects again when the plugin has restarted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event, Lock, Thread
from time import monotonic
from typing import Final

from dra_driver_plugin.client import PluginClient, PluginError
from dra_driver_plugin.devices import PluginDevice, read_devices
from dra_sdk import DeviceHealth, DraError, HealthStatus

log = logging.getLogger(__name__)
_FIRST_PAUSE: Final = 0.2  # seconds; each further one is twice as long
_LONGEST_PAUSE: Final = 10.0
_SHOWN: Final = 5  # problems of a list


@dataclass
class Registration:
    """What the bridge remembers of a plugin, also through its own restart. All values are JSON.

    resource: the extended resource, `vendor.com/thing`.
    endpoint: name of the plugin's socket in the bridge's directory.
    pre_start: whether the plugin wants PreStartContainer.
    prefers: whether the plugin answers GetPreferredAllocation.
    devices: the NUMA nodes of each device, by id.
    """

    resource: str = ""
    endpoint: str = ""
    pre_start: bool = False
    prefers: bool = False
    devices: dict[str, list[int]] = field(default_factory=dict)


class Plugin:
    """A plugin, its devices and its connection.

    registration: as the plugin has registered itself, or as it is remembered.
    path: the plugin's socket.
    connect: makes a connection to a socket.
    changed: is called with the plugin after the list of devices, or what belongs into the registration, has changed.
    news: is set after the health of a device may have changed.
    """

    def __init__(
        self,
        registration: Registration,
        path: Path,
        connect: Callable[[Path], PluginClient],
        changed: Callable[[Plugin], None],
        news: Event,
    ) -> None:
        self.registration, self.path = registration, path
        self.devices: Mapping[str, PluginDevice] = {
            id_: PluginDevice(registration.resource, id_, tuple(numa)) for id_, numa in registration.devices.items()
        }
        self._connect, self._changed, self._news = connect, changed, news
        self._away: float | None = monotonic()  # since when; None while there is a list from the plugin
        self._why = "it has not been connected yet"
        self._stop, self._lock = Event(), Lock()
        self._connection: PluginClient | None = None
        self._thread = Thread(target=self._follow, name=f"plugin {registration.resource}", daemon=True)

    def __str__(self) -> str:
        return f"device plugin {self.registration.endpoint} of {self.registration.resource}"

    @property
    def connection(self) -> PluginClient:
        """The connection, which is made when it is needed. PluginError after `stop`."""
        with self._lock:
            if self._stop.is_set():
                raise PluginError(f"{self} has been replaced or forgotten, or the bridge stops")
            if self._connection is None:
                self._connection = self._connect(self.path)
            return self._connection

    def start(self) -> None:
        """Follow the plugin's devices."""
        self._thread.start()

    def stop(self) -> None:
        """End the connection, without waiting for the thread."""
        self._stop.set()
        self._disconnect()

    def join(self, seconds: float) -> None:
        """Wait for the thread, which `stop` ends."""
        if self._thread.ident is not None:
            self._thread.join(seconds)

    def away(self) -> float:
        """For how many seconds the plugin has been away; 0 while it is there."""
        since = self._away
        return 0.0 if since is None else monotonic() - since

    def health(self, tolerated: float) -> list[DeviceHealth]:
        """The health of all devices: as the plugin reports it; unhealthy if it is away for longer than `tolerated`."""
        devices = self.devices.values()
        if self._away is not None:
            status = HealthStatus.UNHEALTHY if self.away() > tolerated else HealthStatus.UNKNOWN
            return [DeviceHealth(each.name, status, f"{self} is away: {self._why}") for each in devices]
        return [
            DeviceHealth(each.name, HealthStatus.HEALTHY)
            if each.health == "Healthy"
            else DeviceHealth(each.name, HealthStatus.UNHEALTHY, f"{self} reports {each.health or 'no health'!r}")
            for each in devices
        ]

    def _follow(self) -> None:
        pause = _FIRST_PAUSE
        while not self._stop.is_set():
            try:
                self._ask_options()
                for answer in self.connection.watch():
                    self._take(*read_devices(self.registration.resource, answer.devices))
                    pause = _FIRST_PAUSE
                why = "it has ended its list of devices"
            except DraError as error:  # of the plugin, or of the file that remembers it
                why = str(error)
            self._disconnect()
            if self._stop.is_set():
                return
            if self._away is None:
                log.warning("%s is away: %s", self, why)
                self._away = monotonic()
            self._why = why
            self._news.set()
            self._stop.wait(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _disconnect(self) -> None:
        with self._lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _ask_options(self) -> None:
        options = self.connection.options()
        if options is not None:  # otherwise those of the registration hold
            self.registration.pre_start = options.pre_start_required
            self.registration.prefers = options.get_preferred_allocation_available

    def _take(self, devices: Mapping[str, PluginDevice], problems: list[str]) -> None:
        if problems:
            log.warning("%s: %d problems: %s", self, len(problems), "; ".join(problems[:_SHOWN]))
        if self._away is not None:
            log.info("%s has %d devices", self, len(devices))
        was_away, self._away = self._away is not None, None
        numa = {id_: list(each.numa) for id_, each in devices.items()}
        is_new = numa != self.registration.devices
        self.devices, self.registration.devices = devices, numa
        if is_new or was_away:  # after it was away, its options may differ
            self._changed(self)
        self._news.set()
