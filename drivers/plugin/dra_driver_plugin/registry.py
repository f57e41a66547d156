"""The kubelet's side: plugins register at `kubelet.sock`; what they have registered is remembered on disk.

The kubelet forgets its plugins when it restarts, and plugins notice its new socket. Some do not, and until they do,
their devices would be away. So the bridge remembers which plugin has which socket and devices, until the node reboots.

While a bridge is replaced by a newer one, both processes run. One follows the plugins; the other reads what the first
one has written, and waits for the lock of the directory.
"""

from __future__ import annotations

import fcntl
import logging
import os
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Lock
from typing import Any, Final

import grpc

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.client import PluginClient
from dra_driver_plugin.devices import resource_problem
from dra_driver_plugin.plugin import Plugin, Registration
from dra_driver_plugin.settings import PluginSettings
from dra_sdk import DeviceHealth, HardwareError, Node, PermanentError, RetriableError
from dra_sdk.hardware import optional, read_text
from dra_sdk.hardware.polling import Clock
from dra_sdk.hardware.records import RecordError, Records

log = logging.getLogger(__name__)
SOCKET: Final = "kubelet.sock"
VERSION: Final = "v1beta1"
_KUBELET_FILE: Final = "kubelet_internal_checkpoint"  # which only the kubelet writes
_RECORDS: Final = ".registrations"
_PATH: Final = 107  # bytes that the path of a unix socket may have
_STEP: Final = 1.0  # seconds between two looks at sockets and plugins
_REPEAT: Final = 10.0  # seconds after which the same health is reported again
_JOIN: Final = 5.0  # seconds
_Register = Callable[[wire.RegisterRequest, grpc.ServicerContext], wire.Empty]


class Registry:
    """The plugins of a node.

    settings: the driver's settings.
    connect: makes a connection to a plugin's socket.
    """

    def __init__(self, settings: PluginSettings, connect: Callable[[Path], PluginClient] = PluginClient) -> None:
        self._settings, self._connect = settings, connect
        self._directory = Path(settings.directory)
        self._lock = Lock()
        self._plugins: dict[str, Plugin] = {}
        self._serving, self._news = False, Event()
        self._changed: Callable[[], None] = lambda: None
        self._records: Records[Registration] | None = None

    def plugins(self, node: Node) -> list[Plugin]:
        """All plugins by name of their resource: those of this process, or those that are remembered."""
        with self._lock:
            found = list(self._plugins.values()) if self._serving else self._remembered(node)
        return sorted(found, key=lambda each: each.registration.resource)

    @contextmanager
    def plugin(self, resource: str, node: Node) -> Iterator[Plugin]:
        """The plugin of a resource while a claim is prepared. RetriableError if none is registered."""
        with self._lock:
            serving, found = self._serving, self._plugins.get(resource)
            remembered = [] if serving else self._remembered(node)
        found = found or next((each for each in remembered if each.registration.resource == resource), None)
        try:
            if found is None:
                raise RetriableError(f"no device plugin for {resource} is registered in {self._directory}")
            yield found
        finally:
            for each in remembered:
                each.stop()

    def watch_health(self, stop: Event) -> Iterator[list[DeviceHealth]]:
        """A report when the health of a device changes, and every ten seconds; empty while another process runs."""
        last, told = None, 0.0
        while not stop.is_set():
            self._news.clear()
            with self._lock:
                plugins = list(self._plugins.values())
            found = [health for each in plugins for health in each.health(self._settings.away_seconds)]
            if found != last or time.monotonic() - told >= _REPEAT:
                last, told = found, time.monotonic()
                yield found
            self._news.wait(_STEP)

    def serve(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Follow the plugins until `stop` is set; call `changed` when other devices are to be published."""
        if (self._directory / _KUBELET_FILE).exists():
            raise PermanentError(f"{self._directory} is the kubelet's own: its plugins would be lost to it")
        self._directory.mkdir(mode=0o750, parents=True, exist_ok=True)
        (self._directory / _RECORDS).mkdir(mode=0o700, exist_ok=True)
        with _alone(self._directory / _RECORDS, stop) as alone:
            if not alone:
                return
            with self._lock:
                self._changed = changed
                self._plugins = {each.registration.resource: each for each in self._remembered(node)}
                self._serving = True
                for each in self._plugins.values():
                    each.start()
            server = _Socket(self._directory / SOCKET, self._register)
            try:
                server.start()
                changed()
                while not stop.wait(_STEP):
                    self._forget()
                    if not server.is_intact():
                        log.warning("%s was removed or replaced; it is made again", server.path)
                        server.stop()
                        server = _Socket(server.path, self._register)
                        server.start()
            finally:
                server.stop()
                self._end()

    def _register(self, request: wire.RegisterRequest, context: grpc.ServicerContext) -> wire.Empty:
        if problem := self._problem(request):
            log.warning("a device plugin is refused: %s", problem)
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, problem)
        resource, options = request.resource_name, request.options
        asked = (options.pre_start_required, options.get_preferred_allocation_available)
        with self._lock:
            if not self._serving:
                context.abort(grpc.StatusCode.UNAVAILABLE, "the bridge stops")
            old = self._plugins.get(resource)
            devices = old.registration.devices if old else {}
            made = self._plugins[resource] = self._plugin(Registration(resource, request.endpoint, *asked, devices))
        if old:
            self._replaced(old, made)
        log.info("%s is registered", made)
        made.start()
        return wire.Empty()

    def _problem(self, request: wire.RegisterRequest) -> str | None:
        """Why a plugin is refused; None if it is not."""
        name, endpoint, allowed = request.resource_name, request.endpoint, self._settings.resources
        if request.version != VERSION:
            return f"version {request.version!r} of the device plugin API is not supported; the bridge has {VERSION}"
        if problem := resource_problem(name):
            return f"resource name {name!r} {problem}"
        if allowed and name not in allowed:
            return f"resource {name} is not among those that the bridge is set to take: {', '.join(allowed)}"
        if not endpoint or "/" in endpoint or endpoint in {".", "..", SOCKET, _RECORDS} or "\0" in endpoint:
            return f"endpoint {endpoint!r} must be the name of a socket beside {SOCKET}"
        if len(bytes(self._directory / endpoint)) > _PATH:
            return f"the path of endpoint {endpoint!r} has more than {_PATH} bytes; use a shorter directory"
        return None

    def _replaced(self, old: Plugin, new: Plugin) -> None:
        """End the connection to a plugin whose resource another one has now, as the kubelet does."""
        if old.path != new.path and not old.away():
            text = "%s replaces %s, which still answers: an update, or two plugins that serve the same resource"
            log.warning(text, new, old)
        old.stop()

    def _plugin(self, registration: Registration) -> Plugin:
        path = self._directory / registration.endpoint
        return Plugin(registration, path, self._connect, self._store, self._news)

    def _remembered(self, node: Node) -> list[Plugin]:
        """The plugins that are remembered, not started."""
        boot_id = optional(read_text, node.proc / "sys/kernel/random/boot_id") or ""
        records = self._records = Records(self._directory / _RECORDS, Registration, boot_id, Clock())
        found = []
        for key in records.devices():
            try:
                found.append(records.read(key))
            except RecordError as error:
                log.warning("a device plugin is not known until it registers again: %s", error)
        return [self._plugin(each) for each in found if each.endpoint]

    def _store(self, plugin: Plugin) -> None:
        """Remember a plugin's devices and publish them, unless another plugin has its resource now."""
        with self._lock:
            resource = plugin.registration.resource
            if self._plugins.get(resource) is not plugin or self._records is None:
                return
            (self._directory / _RECORDS / _key(resource)).mkdir(exist_ok=True)
            self._records.save(_key(resource), plugin.registration)
        self._changed()

    def _forget(self) -> None:
        """Forget plugins that have been away for too long."""
        with self._lock:
            gone = [each for each in self._plugins.values() if each.away() > self._settings.forget_seconds]
            for each in gone:
                del self._plugins[each.registration.resource]
                if self._records is not None:
                    self._records.save(_key(each.registration.resource), Registration())
        for each in gone:
            log.warning("%s has been away for %.0f s; its devices are no longer published", each, each.away())
            each.stop()
        if gone:
            self._changed()

    def _end(self) -> None:
        with self._lock:
            plugins, self._plugins, self._serving = list(self._plugins.values()), {}, False
        for each in plugins:
            each.stop()
        for each in plugins:
            each.join(_JOIN)


class _Socket:
    """A gRPC server for registrations at `path`, which it takes in one step from an earlier process."""

    def __init__(self, path: Path, register: _Register) -> None:
        self.path, self._inode = path, 0
        self._pool = ThreadPoolExecutor(4, thread_name_prefix="register")
        self._server = grpc.server(self._pool, options=[("grpc.so_reuseport", 0)])
        handler: Any = grpc.unary_unary_rpc_method_handler(
            register,
            request_deserializer=wire.RegisterRequest.FromString,
            response_serializer=wire.Empty.SerializeToString,
        )
        service = grpc.method_handlers_generic_handler(f"{VERSION}.Registration", {"Register": handler})
        self._server.add_generic_rpc_handlers((service,))

    def start(self) -> None:
        """Listen. Plugins see one new file, which answers from the beginning. HardwareError if that is not possible."""
        bound = self.path.with_name(".kubelet")
        try:
            bound.unlink(missing_ok=True)
            self._server.add_insecure_port(f"unix:{bound}")
            bound.chmod(0o600)
            self._inode = bound.stat().st_ino
            self._server.start()
            bound.rename(self.path)
        except (OSError, RuntimeError) as error:
            raise HardwareError(f"cannot listen on {self.path}: {error}") from error

    def is_intact(self) -> bool:
        """Whether the socket is there, and ours."""
        try:
            return self.path.stat().st_ino == self._inode
        except OSError:
            return False

    def stop(self) -> None:
        """Stop listening, and remove the socket unless somebody else has put another there."""
        if self.is_intact():
            with suppress(FileNotFoundError):
                self.path.unlink()
        self._server.stop(0.5).wait()
        self._pool.shutdown(wait=False)


@contextmanager
def _alone(directory: Path, stop: Event) -> Iterator[bool]:
    """Hold the lock of a directory; False if `stop` is set before another process has left it."""
    handle = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        held = False
        while not held and not stop.is_set():
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                held = True
            except BlockingIOError:  # an older process of the driver still follows the plugins
                stop.wait(0.1)
        yield held
    finally:
        os.close(handle)


def _key(resource: str) -> str:
    """The name of a resource's record; no domain has an underscore."""
    return resource.replace("/", "_", 1)
