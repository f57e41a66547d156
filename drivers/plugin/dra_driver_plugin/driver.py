"""The driver: publishes the devices of device plugins, and prepares claims by the plugins' own Allocate.

It has no `dra_unprepare`: the device plugin API has no call for the end of a container.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any, Final

from dra_driver_plugin.client import PluginClient
from dra_driver_plugin.devices import describe, in_order
from dra_driver_plugin.prepare import prepare
from dra_driver_plugin.registry import Registry
from dra_driver_plugin.settings import PluginSettings
from dra_sdk import AllocatedDevice, Claim, Device, DeviceHealth, DriverInfo, Node, PreparedDevice
from dra_sdk.hardware import health

_HEALTH_SECONDS: Final = 1.0


class PluginDriver:
    """DRA driver `plugin.dra.dev`. Without `settings` it has their defaults.

    `connect` makes a connection to a plugin's socket.
    """

    settings_class = PluginSettings

    def __init__(
        self, settings: PluginSettings | None = None, *, connect: Callable[[Path], PluginClient] = PluginClient
    ) -> None:
        self._settings = settings or PluginSettings()
        self._registry = Registry(self._settings, connect)

    def dra_driver_info(self) -> DriverInfo:
        """Return the name; claims have no configuration."""
        return DriverInfo(self._settings.driver_name)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Yield the devices of all plugins that are registered, or that are remembered from before a restart."""
        for plugin in self._registry.plugins(node):
            for device in in_order(plugin.devices):
                yield describe(device, node, self._settings, plugin.registration.pci.get(device.id, ""))

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Serve `kubelet.sock`, and follow the plugins that register there."""
        self._registry.serve(node, changed, stop)

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:  # noqa: ARG002 (the hook's)
        """Return the health that plugins report; the devices of a plugin that is away are unhealthy after a while."""
        return health.watch(self._registry.health, stop, _HEALTH_SECONDS, "devices of plugins")

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        """Call Allocate for the devices of each request, as the kubelet does for those of a container."""
        groups: dict[tuple[str, str], list[AllocatedDevice[Any]]] = {}
        for device in claim.devices:
            groups.setdefault((device.base_request, device.hardware.resource), []).append(device)
        for number, ((_, resource), devices) in enumerate(groups.items()):
            plugin = self._registry.plugin(resource, claim.node)
            yield from prepare(claim, plugin, devices, number, self._settings)
