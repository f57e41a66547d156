"""One registered plugin: its devices, which a thread follows, and their health."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin import limits
from dra_driver_plugin.client import PluginClient
from dra_driver_plugin.devices import PluginDevice, read_devices
from dra_sdk import DeviceHealth, DeviceNode, HealthStatus
from dra_sdk.hardware import Host, pci_address_of_node
from dra_sdk.rpc.follower import Follower

log = logging.getLogger(__name__)
_SHOWN: Final = 5  # problems of a list


@dataclass
class PluginRegistration:
    """What the bridge remembers of a plugin, also through its own restart. All values are JSON.

    resource: the extended resource, `vendor.com/thing`.
    endpoint: name of the plugin's socket in the bridge's directory.
    pre_start: whether the plugin wants PreStartContainer.
    prefers: whether the plugin answers GetPreferredAllocation.
    devices: the NUMA nodes of each device, by id.
    pci: the PCI address of devices whose device nodes have shown it, by id.
    """

    resource: str = ""
    endpoint: str = ""
    pre_start: bool = False
    prefers: bool = False
    devices: dict[str, list[int]] = field(default_factory=dict)
    pci: dict[str, str] = field(default_factory=dict)


class Keeper(Protocol):
    """What a plugin needs of the registry that keeps it."""

    def store(self, plugin: DevicePlugin) -> None:
        """Keep the plugin's registration, which has changed, and publish its devices."""

    def room(self, plugin: DevicePlugin) -> AbstractContextManager[int]:
        """Give how many devices the plugin may have; no other plugin takes some while the context lasts."""

    def left_out(self, plugin: DevicePlugin, number: int, room: int) -> None:
        """Say once that so many devices of the plugin's list are left out."""


class DevicePlugin:
    """A plugin as it has registered itself, or as it is remembered.

    directory: where its socket lies.
    connect: makes a connection to a socket.
    """

    def __init__(
        self,
        registration: PluginRegistration,
        directory: Path,
        connect: Callable[[Path], PluginClient],
        keeper: Keeper,
    ) -> None:
        self.registration, self._keeper = registration, keeper
        self.devices: Mapping[str, PluginDevice] = {
            id_: PluginDevice(registration.resource, id_, tuple(numa)) for id_, numa in registration.devices.items()
        }
        path = directory / registration.endpoint
        self.follower = Follower(str(self), lambda: connect(path), self._open, self._take)

    def __str__(self) -> str:
        return f"device plugin {self.registration.endpoint} of {self.registration.resource}"

    def health(self, tolerated: float) -> list[DeviceHealth]:
        """Return the health of devices as the plugin reports it; unhealthy if it is away longer than `tolerated`."""
        devices, away = self.devices.values(), self.follower.away()
        if away:
            status = HealthStatus.UNHEALTHY if away > tolerated else HealthStatus.UNKNOWN
            return [DeviceHealth(device.name, status, f"{self} is away: {self.follower.why}") for device in devices]
        return [
            DeviceHealth(device.name, HealthStatus.HEALTHY)
            if device.health == "Healthy"
            else DeviceHealth(device.name, HealthStatus.UNHEALTHY, f"{self} reports {device.health or 'no health'!r}")
            for device in devices
        ]

    def learn(self, id_: str, nodes: Sequence[DeviceNode], host: Host) -> None:
        """Remember the PCI function behind the device nodes of a device, which is published with it from now on."""
        addresses = {pci_address_of_node(host, node.host_path or node.path) for node in nodes} - {None}
        address = str(addresses.pop()) if len(addresses) == 1 else None
        if address and self.registration.pci.get(id_) != address:
            self.registration.pci[id_] = address
            self._keeper.store(self)

    def _open(self, connection: PluginClient) -> Iterator[wire.ListAndWatchResponse]:
        options = connection.options()
        if options is not None:  # otherwise those of the registration hold
            self.registration.pre_start = options.pre_start_required
            self.registration.prefers = options.get_preferred_allocation_available
        return connection.watch()

    def _take(self, answer: wire.ListAndWatchResponse, was_away: bool) -> None:
        with self._keeper.room(self) as room:
            devices, problems, left_out = read_devices(
                self.registration.resource, answer.devices, room, self.registration.devices
            )
            numa = {id_: list(device.numa) for id_, device in devices.items()}
            is_new = numa != self.registration.devices
            self.devices, self.registration.devices = devices, numa
        self._keeper.left_out(self, left_out, room)
        if len(self.registration.pci) > limits.LISTED:
            self.registration.pci = {id_: pci for id_, pci in self.registration.pci.items() if id_ in devices}
        if problems:
            log.warning("%s: %d problems: %s", self, len(problems), "; ".join(problems[:_SHOWN]))
        if was_away:
            log.info("%s has %d devices", self, len(devices))
        if is_new or was_away:  # after it was away, its options may differ
            self._keeper.store(self)
