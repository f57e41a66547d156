"""The registered instances of all drivers: one channel each, watched for connection; the newest connected is used."""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import grpc

from dra_sdk.tools.simulator.kubelet import wire
from dra_sdk.tools.simulator.kubelet.errors import NotRegisteredError, RegistrationError

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
    from dra_sdk.tools.simulator.kubelet.wipes import SliceWiper


@dataclass(frozen=True)
class PluginInfo:
    """What is known of one registered instance.

    `socket` is the registration socket, `endpoint` the service socket; `service` is the version the kubelet chose;
    `told` whether the driver has been told that it is registered.
    """

    driver: str
    socket: str
    endpoint: str
    service: str
    versions: tuple[str, ...]
    told: bool = False
    connected: bool = False


class Plugin:
    """One registered instance with its channel. `info.connected` changes with the channel's state."""

    def __init__(self, info: PluginInfo, channel: grpc.Channel) -> None:
        self.info = info
        self.channel = channel
        self.observe: Callable[[grpc.ChannelConnectivity], None] | None = None


def chosen_service(socket: str, driver: str, versions: tuple[str, ...]) -> str:
    """The first version in the driver's own order that the kubelet knows; `RegistrationError` where there is none."""
    for version in versions:
        if version in wire.PLUGIN_SERVICES:
            return version
    why = (
        f"none of services supported by the plugin ({list(versions)}) are supported by the kubelet "
        f"({list(wire.PLUGIN_SERVICES)})"
        if versions
        else "empty list of supported gRPC services (aka supported versions)"
    )
    raise RegistrationError("supported-versions", why, driver=driver, socket=socket)


class Plugins:
    """The registry. `watch_health` is called with each new instance and returns what stops watching it."""

    def __init__(
        self, timing: KubeletTiming, wiper: SliceWiper, watch_health: Callable[[Plugin], Callable[[], None]]
    ) -> None:
        self._timing = timing
        self._wiper = wiper
        self._watch_health = watch_health
        self._changed = threading.Condition()
        self._plugins: dict[str, list[Plugin]] = {}
        self._health: dict[Plugin, Callable[[], None]] = {}

    def add(self, info: PluginInfo) -> Plugin:
        """Registers an instance and connects to it; `RegistrationError` where its endpoint is taken."""
        with self._changed:
            others = self._plugins.setdefault(info.driver, [])
            if any(other.info.endpoint == info.endpoint for other in others):
                why = f"endpoint {info.endpoint} already registered for DRA driver plugin {info.driver}"
                raise RegistrationError("endpoint-taken", why, driver=info.driver, socket=info.socket)
            plugin = Plugin(info, wire.channel(info.endpoint, self._timing))
            others.append(plugin)
            self._health[plugin] = self._watch_health(plugin)
            self._sync(info.driver)
        plugin.observe = lambda state: self._observed(plugin, state)
        # Connecting before the first call is how the kubelet notices early that a driver is there.
        plugin.channel.subscribe(plugin.observe, try_to_connect=True)
        return plugin

    def remove(self, plugin: Plugin) -> None:
        """Deregisters an instance and closes its channel; calls in flight fail."""
        driver = plugin.info.driver
        with self._changed:
            self._plugins[driver].remove(plugin)
            if not self._plugins[driver]:
                del self._plugins[driver]
            plugin.info = replace(plugin.info, connected=False)
            stop_health = self._health.pop(plugin)
            self._sync(driver)
        if plugin.observe:
            plugin.channel.unsubscribe(plugin.observe)
        wire.close(plugin.channel)
        stop_health()

    def told(self, plugin: Plugin) -> None:
        """Notes that the driver has taken the news of its registration."""
        with self._changed:
            plugin.info = replace(plugin.info, told=True)
            self._changed.notify_all()

    def get(self, driver: str) -> Plugin:
        """The instance to call: the newest that is connected, else the newest; `NotRegisteredError` without any."""
        with self._changed:
            plugins = self._plugins.get(driver, [])
            if not plugins:
                raise NotRegisteredError("registered", f"DRA driver {driver} is not registered", driver=driver)
            connected = [plugin for plugin in plugins if plugin.info.connected]
            return (connected or plugins)[-1]

    def all(self) -> list[PluginInfo]:
        """Every registered instance, per driver in the order of registration."""
        with self._changed:
            return self._infos()

    def wait(self, predicate: Callable[[list[PluginInfo]], bool], timeout: float) -> bool:
        """Waits until the instances satisfy `predicate`; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: predicate(self._infos()), timeout)

    def _infos(self) -> list[PluginInfo]:
        return [plugin.info for plugins in self._plugins.values() for plugin in plugins]

    def _observed(self, plugin: Plugin, state: grpc.ChannelConnectivity) -> None:
        driver = plugin.info.driver
        with self._changed:
            if plugin not in self._plugins.get(driver, []):
                return
            plugin.info = replace(plugin.info, connected=state is grpc.ChannelConnectivity.READY)
            self._sync(driver)
            if state is grpc.ChannelConnectivity.IDLE:
                # gRPC would wait for the next call; the kubelet wants to know when the driver is back. Under the lock,
                # because a subscription must not come after `remove`.
                plugin.channel.subscribe(_nothing, try_to_connect=True)
                plugin.channel.unsubscribe(_nothing)

    def _sync(self, driver: str) -> None:
        if any(plugin.info.connected for plugin in self._plugins.get(driver, [])):
            self._wiper.cancel(driver)
        else:
            self._wiper.schedule(driver)
        self._changed.notify_all()


def _nothing(_: grpc.ChannelConnectivity) -> None:
    return
