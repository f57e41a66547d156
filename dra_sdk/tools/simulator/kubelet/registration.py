"""One attempt to register a driver over its registration socket.

Connect, ask who it is, check, register, tell it the outcome. The driver is told about failures too, and a driver that
does not take the news of success is deregistered again.
Source: Kubernetes 1.36 pkg/kubelet/pluginmanager/operationexecutor.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, NoReturn

import grpc

from dra_sdk.tools.simulator.kubelet import wire
from dra_sdk.tools.simulator.kubelet.errors import RegistrationError
from dra_sdk.tools.simulator.kubelet.plugins import PluginInfo, chosen_service
from dra_sdk.tools.simulator.kubelet.records import GET_INFO, NOTIFY, Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from dra_sdk.tools.simulator.kubelet.plugins import Plugin, Plugins
    from dra_sdk.tools.simulator.kubelet.records import Records
    from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming

_LOOK = 0.05


class Registrar:
    """Registers drivers into `plugins`; `stopping` ends attempts early."""

    def __init__(self, plugins: Plugins, timing: KubeletTiming, records: Records, stopping: threading.Event) -> None:
        self._plugins = plugins
        self._timing = timing
        self._records = records
        self._stopping = stopping

    def register(self, socket: str, registered: Callable[[Plugin], None]) -> None:
        """One whole attempt, handing the new instance to `registered`; `RegistrationError` where it fails."""
        channel = wire.channel(socket, self._timing)
        try:
            self._dial(channel, socket)
            info = self._who(channel, socket)
            plugin = self._registered(channel, info)
            # Now, because closing the channel takes its time and the socket may vanish meanwhile.
            registered(plugin)
            self._plugins.told(plugin)
        finally:
            wire.close(channel)

    def _dial(self, channel: grpc.Channel, socket: str) -> None:
        ready = threading.Event()

        def observe(state: grpc.ChannelConnectivity) -> None:
            if state is grpc.ChannelConnectivity.READY:
                ready.set()

        channel.subscribe(observe, try_to_connect=True)
        try:
            ends = time.monotonic() + self._timing.dial
            while not ready.wait(_LOOK):
                if self._stopping.is_set() or time.monotonic() > ends:
                    raise RegistrationError("dial", f"cannot connect within {self._timing.dial:g} s", socket=socket)
        finally:
            channel.unsubscribe(observe)

    def _who(self, channel: grpc.Channel, socket: str) -> PluginInfo:
        started = time.monotonic()
        driver, error = "", ""
        try:
            answer = wire.get_info(channel, self._timing.get_info)
            driver = answer.name
        except grpc.RpcError as failure:
            error = wire.failure(failure)[1]
            raise RegistrationError("get-info", f"GetInfo: {error}", socket=socket) from failure
        finally:
            seconds = time.monotonic() - started
            self._records.add(Call(GET_INFO, driver, socket, started, seconds, error))
        if answer.type != wire.PLUGIN_TYPE:
            why = f"no handler registered for plugin type: {answer.type} at socket {socket}"
            self._refuse(channel, RegistrationError("plugin-type", why, driver=driver, socket=socket))
        versions = tuple(answer.supported_versions)
        # No endpoint means that the service is on the registration socket itself.
        return PluginInfo(driver, socket, answer.endpoint or socket, "", versions)

    def _registered(self, channel: grpc.Channel, info: PluginInfo) -> Plugin:
        try:
            service = chosen_service(info.socket, info.driver, info.versions)
            plugin = self._plugins.add(PluginInfo(info.driver, info.socket, info.endpoint, service, info.versions))
        except RegistrationError as error:
            self._refuse(channel, error)
        try:
            self._notify(channel, info, "")
        except RegistrationError:
            self._plugins.remove(plugin)
            raise
        return plugin

    def _refuse(self, channel: grpc.Channel, error: RegistrationError) -> NoReturn:
        """Tells the driver, and raises the error whether or not it listened."""
        try:
            self._notify(channel, PluginInfo(error.driver, error.socket, "", "", ()), error.why)
        except RegistrationError as untold:
            raise error from untold
        raise error

    def _notify(self, channel: grpc.Channel, info: PluginInfo, news: str) -> None:
        started = time.monotonic()
        error = ""
        try:
            wire.notify(channel, news, self._timing.notify)
        except grpc.RpcError as failure:
            error = wire.failure(failure)[1]
            why = f"NotifyRegistrationStatus: {error}"
            raise RegistrationError("notify", why, driver=info.driver, socket=info.socket) from failure
        finally:
            seconds = time.monotonic() - started
            self._records.add(Call(NOTIFY, info.driver, info.socket, started, seconds, error, registered=not news))
