"""The kubelet's side: plugins register at `kubelet.sock`; what they have registered is remembered on disk.

The kubelet forgets its plugins when it restarts, and plugins notice its new socket. Some do not, and until they do,
their devices would be away. So the bridge remembers which plugin has which socket and devices, until the node reboots.

While a bridge is replaced by a newer one, both processes run. One follows the plugins; the other reads what the first
one has written, and waits for the lock of the directory.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from threading import Event, Lock
from typing import Final

import grpc

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin import limits
from dra_driver_plugin.client import PluginClient
from dra_driver_plugin.devices import resource_problem
from dra_driver_plugin.plugin import DevicePlugin, PluginRegistration
from dra_driver_plugin.settings import PluginSettings
from dra_sdk import DeviceHealth, Node, PermanentError, RetriableError
from dra_sdk.hardware.node_access import NodeAccess, SystemEffects
from dra_sdk.hardware.records import RecordError, Records, alone
from dra_sdk.rpc.server import SocketServer, listen, unary
from dra_sdk.rpc.sockets import LIMIT

log = logging.getLogger(__name__)
SOCKET: Final = "kubelet.sock"
VERSION: Final = "v1beta1"
_KUBELET_FILE: Final = "kubelet_internal_checkpoint"  # which only the kubelet writes
_RECORDS: Final = ".registrations"
_STEP: Final = 1.0  # seconds between two looks at socket and plugins
_JOIN: Final = 5.0  # seconds
_THREADS: Final = 4


class Registry:
    """The plugins of a node.

    settings: the driver's settings.
    connect: makes a connection to a plugin's socket.
    """

    def __init__(self, settings: PluginSettings, connect: Callable[[Path], PluginClient] = PluginClient) -> None:
        self._settings, self._connect, self._directory = settings, connect, Path(settings.directory)
        self._lock, self._taking, self._following = Lock(), Lock(), False
        self._plugins: dict[str, DevicePlugin] = {}
        self._changed: Callable[[], None] = lambda: None
        self._warn: Callable[[str], None] = lambda _note: None
        self._beyond: set[str] = set()  # what is beyond a limit, and was said: names of resources; "" the resources
        self._records: Records[PluginRegistration] | None = None

    def plugins(self, node: Node) -> list[DevicePlugin]:
        """Return all plugins by name of their resource: those that this process follows, or those remembered."""
        with self._lock:
            if not self._following:
                self._remember(node)
            return [self._plugins[resource] for resource in sorted(self._plugins)]

    def plugin(self, resource: str, node: Node) -> DevicePlugin:
        """Return the plugin of a resource. RetriableError if none is registered."""
        for plugin in self.plugins(node):
            if plugin.registration.resource == resource:
                return plugin
        raise RetriableError(f"no device plugin for {resource} is registered in {self._directory}")

    def health(self) -> list[DeviceHealth]:
        """Return the health of all devices; empty while another process follows the plugins."""
        with self._lock:
            plugins = list(self._plugins.values()) if self._following else []
        return [health for plugin in plugins for health in plugin.health(self._settings.away_seconds)]

    def serve(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Follow the plugins until `stop` is set; call `changed` when other devices are to be published."""
        if (self._directory / _KUBELET_FILE).exists():
            raise PermanentError(f"{self._directory} is the kubelet's own: its plugins would be lost to it")
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        (self._directory / _RECORDS).mkdir(mode=0o700, exist_ok=True)
        with alone(self._directory / _RECORDS, stop) as is_alone:
            if is_alone:
                try:
                    self._follow(node, changed)
                    changed()
                    listen(self._socket, stop, _STEP, self._forget)
                finally:
                    self._end()

    def _socket(self) -> SocketServer:
        methods = {"Register": unary(self._register, wire.RegisterRequest, wire.Empty)}
        return SocketServer("register", self._directory / SOCKET, {f"{VERSION}.Registration": methods}, _THREADS)

    def store(self, plugin: DevicePlugin) -> None:
        """Remember a plugin's devices and publish them, unless another plugin has its resource now."""
        with self._lock:
            resource = plugin.registration.resource
            if not self._following or self._plugins.get(resource) is not plugin or self._records is None:
                return
            self._records.save(_key(resource), plugin.registration)
        self._changed()

    @contextmanager
    def room(self, plugin: DevicePlugin) -> Iterator[int]:
        """Give how many devices a plugin may have; no other plugin takes some while the context lasts."""
        with self._taking:
            with self._lock:
                others = sum(len(other.devices) for other in self._plugins.values() if other is not plugin)
            yield max(0, min(limits.LISTED, limits.DEVICES - others))

    def left_out(self, plugin: DevicePlugin, number: int, room: int) -> None:
        """Say once that so many devices of a plugin's list are left out."""
        text = f"{plugin} lists too many devices, and {number} of them are left out: it may have {room} now"
        text += f" (limits: {limits.LISTED} of one plugin, {limits.DEVICES} of all)"
        self._say(plugin.registration.resource, text if number else "")

    def _say(self, subject: str, text: str) -> None:
        """Tell operators once that something is beyond its limit; an empty text: that it no longer is."""
        with self._lock:
            known = subject in self._beyond
            (self._beyond.add if text else self._beyond.discard)(subject)
        if text and not known:
            self._warn(text)

    def _register(self, request: wire.RegisterRequest, context: grpc.ServicerContext) -> wire.Empty:
        if problem := self._problem(request):
            log.warning("a device plugin is refused: %s", problem)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        resource, options = request.resource_name, request.options
        asked = (options.pre_start_required, options.get_preferred_allocation_available)
        with self._lock:
            if not self._following:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the bridge stops")
            old = self._plugins.get(resource)
            full = old is None and len(self._plugins) >= limits.RESOURCES
            known = old.registration if old else PluginRegistration()
            registration = PluginRegistration(resource, request.endpoint, *asked, known.devices, known.pci)
            made = self._plugin(registration)
            if not full:
                self._plugins[resource] = made
        if full:
            problem = f"{made} is refused: the bridge has {limits.RESOURCES} resources already, which is its limit"
            self._say("", problem)
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, problem)
        if old:  # the newest has the resource, as with the kubelet
            if old.registration.endpoint != request.endpoint and not old.follower.away():
                text = "%s replaces %s, which still answers: an update, or two plugins that serve the same resource"
                log.warning(text, made, old)
            old.follower.stop()
            old.follower.join(_JOIN)  # or one that registers again and again would have any number of threads
        log.info("%s is registered", made)
        made.follower.start()
        return wire.Empty()

    def _problem(self, request: wire.RegisterRequest) -> str | None:
        """Return why a plugin is refused; None if it is not."""
        name, endpoint, allowed = request.resource_name, request.endpoint, self._settings.resources
        if request.version != VERSION:
            return f"version {request.version!r} of the device plugin API is not supported; the bridge has {VERSION}"
        if problem := resource_problem(name):
            return f"resource name {name!r} {problem}"
        if allowed and name not in allowed:
            return f"resource {name} is not among those that the bridge is set to take: {', '.join(allowed)}"
        if not endpoint or "/" in endpoint or endpoint in {".", "..", SOCKET, _RECORDS} or "\0" in endpoint:
            return f"endpoint {endpoint!r} must be the name of a socket beside {SOCKET}"
        if len(bytes(self._directory / endpoint)) > LIMIT:
            return f"the path of endpoint {endpoint!r} has more than {LIMIT} bytes; use a shorter directory"
        return None

    def _plugin(self, registration: PluginRegistration) -> DevicePlugin:
        return DevicePlugin(registration, self._directory, self._connect, self)

    def _remember(self, node: Node) -> None:
        """Have the plugins that are remembered, none of them followed."""
        access = NodeAccess(node.root, SystemEffects())
        records = self._records = Records(self._directory / _RECORDS, PluginRegistration, access.boot_id, access.clock)
        before, self._plugins, room = self._plugins, {}, limits.DEVICES
        for key in records.devices():
            try:
                registration = records.read(key)
            except RecordError as error:
                log.warning("a device plugin is not known until it registers again: %s", error)
                continue
            if len(self._plugins) >= limits.RESOURCES:
                break
            listed = islice(registration.devices.items(), min(limits.LISTED, room))
            registration.devices = dict(listed)  # of a release without limits
            room -= len(registration.devices)
            known = before.get(registration.resource)
            if known is not None and known.registration == registration:
                self._plugins[registration.resource] = before.pop(registration.resource)  # with its connection
            elif registration.endpoint:
                self._plugins[registration.resource] = self._plugin(registration)
        for plugin in before.values():
            plugin.follower.stop()

    def _follow(self, node: Node, changed: Callable[[], None]) -> None:
        with self._lock:
            self._remember(node)
            self._changed, self._warn, self._following = changed, node.warn, True
            for plugin in self._plugins.values():
                plugin.follower.start()

    def _forget(self) -> None:
        """Forget plugins that have been away for too long."""
        limit = self._settings.forget_seconds
        with self._lock:
            forgotten = [plugin for plugin in self._plugins.values() if plugin.follower.away() > limit]
            for plugin in forgotten:
                del self._plugins[plugin.registration.resource]
                if self._records is not None:
                    self._records.save(_key(plugin.registration.resource), PluginRegistration())
        for plugin in forgotten:
            log.warning("%s has been away for over %.0f s; its devices are no longer published", plugin, limit)
            plugin.follower.stop()
            self._say(plugin.registration.resource, "")
        if forgotten:
            self._say("", "")
            self._changed()

    def _end(self) -> None:
        with self._lock:
            plugins, self._plugins, self._following = list(self._plugins.values()), {}, False
        for plugin in plugins:
            plugin.follower.stop()
        for plugin in plugins:
            plugin.follower.join(_JOIN)


def _key(resource: str) -> str:
    """Return the name of a resource's record; no domain has an underscore."""
    return resource.replace("/", "_", 1)
