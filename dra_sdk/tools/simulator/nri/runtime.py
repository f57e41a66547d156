"""A container runtime without containers: it tells plugins of pods and containers as containerd does.

Events come one at a time, to one plugin after the other in the order of their indices. A plugin that is late is closed,
and the container is created without it. A plugin that answers an error, or two that conflict, fail the creation.
"""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Condition, Thread
from typing import Any, Final

from dra_sdk.errors import NriError
from dra_sdk.node.nri.events import Event, RuntimeInfo
from dra_sdk.node.nri.ttrpc import TtrpcError
from dra_sdk.tools.simulator.nri.merging import MergedAnswers, RefusedError
from dra_sdk.tools.simulator.nri.plugin_connection import PluginCall, PluginConnection
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

log = logging.getLogger(__name__)
_JOIN: Final = 15.0  # seconds
_RELEASES: Final = {(0, 12): "2.3.4", (0, 10): "2.2.1", (0, 8): "2.1.4", (0, 3): "1.7.28"}  # of containerd, by NRI
_ENDED: Final = frozenset({pb.CONTAINER_STOPPED, pb.CONTAINER_UNKNOWN})


class NriRuntime:
    """The runtime's side of NRI at a unix socket.

    path: the socket; a file that is there is replaced.
    nri_version: what it speaks, from `0.3.0` to `0.12.1`; older versions lack calls and events.
    version: of containerd, which is what plugins see before NRI 0.12; None means one that has this version of NRI.
    registration_timeout: seconds that a plugin has to register.
    request_timeout: seconds that a plugin has to answer a call.
    part: pods, and as many containers, in one message of Synchronize; None means as many as fit.
    configure_first: whether Configure comes before the answer to RegisterPlugin.
    changed: called with a container after its creation and after each change of its resources.

    calls: all calls of plugins that have ended.
    problems: why plugins were refused or closed.
    """

    def __init__(
        self,
        path: Path,
        *,
        nri_version: str = "0.12.1",
        version: str | None = None,
        registration_timeout: float = 5.0,
        request_timeout: float = 2.0,
        part: int | None = None,
        configure_first: bool = False,
        changed: Callable[[pb.Container], None] = lambda _container: None,
    ) -> None:
        self.path = path
        self._resources_changed = changed
        nri = RuntimeInfo("containerd", "", nri_version, request_timeout).nri
        release = version or next(name for since, name in _RELEASES.items() if nri >= since)
        self.info = RuntimeInfo("containerd", release, nri_version, request_timeout)
        self.calls: list[PluginCall] = []
        self.problems: list[NriError] = []
        self._registration_timeout, self._part, self._configure_first = registration_timeout, part, configure_first
        self._pods: dict[str, pb.PodSandbox] = {}
        self._containers: dict[str, pb.Container] = {}
        self._started_pods: set[str] = set()
        self._changed = Condition()  # held during an event, as containerd's lock
        self._plugins: list[PluginConnection] = []
        self._starting: set[PluginConnection] = set()
        self._launching: list[Thread] = []
        self._dropped: list[PluginConnection] = []
        self._listener: socket.socket | None = None
        self._thread: Thread | None = None

    def __enter__(self) -> NriRuntime:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Listen. The pods and containers from before a `stop` are still there.

        As with containerd, plugins get no StopPodSandbox or RemovePodSandbox for such pods.
        """
        self._started_pods.clear()
        self.path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.bind(str(self.path))
        self.path.chmod(0o600)
        self._listener.listen()
        self._thread = Thread(target=self._accept, args=(self._listener,), name="nri-accept", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close all connections, as a runtime that ends does."""
        if self._listener is None or self._thread is None:
            return
        self._listener.shutdown(socket.SHUT_RDWR)
        for starting in list(self._starting):  # without the lock, which a plugin that synchronizes may hold
            starting.close()
        for thread in (self._thread, *self._launching):
            thread.join(_JOIN)
        self._launching.clear()
        self._listener.close()
        self._listener = None
        with self._changed:
            plugins, self._plugins = [*self._plugins, *self._dropped], []
            self._changed.notify_all()
        for plugin in plugins:
            _end(plugin)

    def launch(self) -> socket.socket:
        """Begin with a plugin that the runtime starts itself. Returns the socket that the plugin's process inherits."""
        ours, theirs = socket.socketpair()
        thread = Thread(target=self._take_in, args=(ours,), name="nri-launch", daemon=True)
        self._launching.append(thread)
        thread.start()
        return theirs

    @property
    def plugins(self) -> list[str]:
        """The plugins that are connected and synchronized, in the order in which they are called."""
        with self._changed:
            return [plugin.name for plugin in self._plugins if not plugin.is_closed]

    @property
    def pods(self) -> dict[str, pb.PodSandbox]:
        """The pods, by id."""
        with self._changed:
            return dict(self._pods)

    @property
    def containers(self) -> dict[str, pb.Container]:
        """The containers with all that plugins have changed, by id."""
        with self._changed:
            return dict(self._containers)

    def wait_plugins(self, count: int, timeout: float) -> bool:
        """Wait until so many plugins are synchronized; False after `timeout` seconds."""
        with self._changed:
            return self._changed.wait_for(lambda: len(self.plugins) >= count, timeout)

    def call(self, method: str, request: bytes) -> None:
        """Call a method of the last plugin with an encoded request, as no runtime does; NriError."""
        with self._changed:
            if not self._plugins:
                raise NriError("no plugin is connected")
            plugin = self._plugins[-1]
        plugin.call(method, pb.Empty.FromString(request), pb.Empty)  # which keeps what it does not know

    def shut_down_plugins(self) -> None:
        """Tell all plugins that the runtime ends, which containerd never does by itself."""
        with self._changed:
            for plugin in list(self._plugins):
                plugin.shut_down()
                self._drop(plugin)

    def run_pod(self, pod: pb.PodSandbox) -> None:
        """Start a pod's sandbox; RefusedError."""
        with self._changed:
            self._tell(Event.RUN_POD_SANDBOX, pb.PodSandboxEvent(pod=pod))
            self._pods[pod.id] = pod
            self._started_pods.add(pod.id)

    def update_pod(self, pod: str, resources: pb.LinuxResources) -> None:
        """Change the resources of a pod; before NRI 0.10, plugins do not hear of it. RefusedError."""
        with self._changed:
            request = pb.UpdatePodSandboxRequest(pod=self._pods[pod], linux_resources=resources)
            self._tell(Event.UPDATE_POD_SANDBOX, request)
            self._tell(Event.POST_UPDATE_POD_SANDBOX, pb.PodSandboxEvent(pod=self._pods[pod]))

    def stop_pod(self, pod: str) -> None:
        """Stop a pod's sandbox; RefusedError."""
        with self._changed:
            if pod in self._started_pods:
                self._tell(Event.STOP_POD_SANDBOX, pb.PodSandboxEvent(pod=self._pods[pod]))

    def remove_pod(self, pod: str) -> None:
        """Remove a pod's sandbox; RefusedError."""
        with self._changed:
            if pod in self._started_pods:
                self._tell(Event.REMOVE_POD_SANDBOX, pb.PodSandboxEvent(pod=self._pods[pod]))
            del self._pods[pod]

    def create_container(self, container: pb.Container) -> pb.Container:
        """Create a container of a pod; return it with what plugins have adjusted.

        RefusedError if a plugin answers an error, or if two conflict. Plugins then learn that it stops and is
        removed.
        """
        with self._changed:
            pod = self._pods[container.pod_sandbox_id]
            created = pb.Container()
            created.CopyFrom(container)
            merged = MergedAnswers(created)
            try:
                for plugin in list(self._plugins):
                    request = pb.CreateContainerRequest(pod=pod, container=created)
                    answer = self._send(plugin, Event.CREATE_CONTAINER, request)
                    if answer is not None:
                        merged.adjust(plugin.name, answer.adjust)
                        merged.update(plugin.name, answer.update)
                self._validate(pod, container, merged)
                self._apply(merged.updates.values())
            except RefusedError as error:
                self._undo(pod, container)
                raise RefusedError(f"container {container.name} of pod {pod.name}: {error}") from error
            created.state = pb.CONTAINER_CREATED
            self._containers[created.id] = created
            self._resources_changed(created)
            self._tell(Event.POST_CREATE_CONTAINER, pb.ContainerEvent(pod=pod, container=created))
            return created

    def start_container(self, container: str) -> None:
        """Start a created container; RefusedError."""
        with self._changed:
            created = self._containers[container]
            request = pb.ContainerEvent(pod=self._pods[created.pod_sandbox_id], container=created)
            self._tell(Event.START_CONTAINER, request)
            created.state = pb.CONTAINER_RUNNING
            request.container.state = pb.CONTAINER_RUNNING
            self._tell(Event.POST_START_CONTAINER, request)

    def update_container(self, container: str, resources: pb.LinuxResources) -> pb.Container:
        """Change a container's resources, as the kubelet does; return it with what plugins have added. RefusedError."""
        with self._changed:
            updated = self._containers[container]
            pod = self._pods[updated.pod_sandbox_id]
            wanted = pb.ContainerUpdate(container_id=container)
            wanted.linux.resources.CopyFrom(resources)
            request = pb.UpdateContainerRequest(pod=pod, container=updated, linux_resources=resources)
            self._merge(Event.UPDATE_CONTAINER, request, [wanted])
            self._tell(Event.POST_UPDATE_CONTAINER, pb.ContainerEvent(pod=pod, container=updated))
            return updated

    def stop_container(self, container: str) -> None:
        """Stop a container; plugins may update others. RefusedError."""
        with self._changed:
            stopped = self._containers[container]
            stopped.state = pb.CONTAINER_STOPPED
            request = pb.StopContainerRequest(pod=self._pods[stopped.pod_sandbox_id], container=stopped)
            self._merge(Event.STOP_CONTAINER, request, [])

    def remove_container(self, container: str) -> None:
        """Remove a container; RefusedError."""
        with self._changed:
            removed = self._containers[container]
            request = pb.ContainerEvent(pod=self._pods[removed.pod_sandbox_id], container=removed)
            self._tell(Event.REMOVE_CONTAINER, request)
            del self._containers[container]

    # The rest runs with the lock held, but for _accept and _take_in.

    def _tell(self, event: Event, request: Any) -> None:
        for plugin in list(self._plugins):
            self._send(plugin, event, request)

    def _send(self, plugin: PluginConnection, event: Event, request: Any) -> Any:
        try:
            answer = plugin.send(event, request)
        except TtrpcError as error:
            raise RefusedError(f"plugin {plugin.name}: {error}") from error
        if plugin.is_closed or plugin.problem:
            self._drop(plugin)
        return answer

    def _merge(self, event: Event, request: Any, first: list[pb.ContainerUpdate]) -> None:
        """Send an event whose answers have updates, and apply them after `first`."""
        merged = MergedAnswers()
        for plugin in list(self._plugins):
            answer = self._send(plugin, event, request)
            if answer is not None:
                merged.update(plugin.name, answer.update)
        self._apply([*first, *merged.updates.values()])

    def _validate(self, pod: pb.PodSandbox, container: pb.Container, merged: MergedAnswers) -> None:
        request = pb.ValidateContainerAdjustmentRequest(
            pod=pod, container=container, adjust=merged.adjustment, update=merged.updates.values()
        )
        for plugin in list(self._plugins):
            answer = self._send(plugin, Event.VALIDATE_CONTAINER_ADJUSTMENT, request)
            if answer is not None and answer.reject:
                raise RefusedError(f"plugin {plugin.name} rejects the adjustments: {answer.reason}")

    def _undo(self, pod: pb.PodSandbox, container: pb.Container) -> None:
        """Do what containerd does after a creation that failed; errors of plugins change nothing."""
        for event in (Event.STOP_CONTAINER, Event.REMOVE_CONTAINER):
            try:
                self._tell(event, event.call.request(pod=pod, container=container))
            except RefusedError as error:
                log.info("%s", error)

    def _apply(self, updates: Iterable[pb.ContainerUpdate]) -> None:
        """Change containers; unknown ones are skipped."""
        for update in updates:
            if container := self._containers.get(update.container_id):
                merged = MergedAnswers(container)
                adjust = pb.ContainerAdjustment()
                adjust.linux.resources.CopyFrom(update.linux.resources)
                merged.adjust("", adjust)
                self._resources_changed(container)

    def _drop(self, plugin: PluginConnection) -> None:
        self._plugins = [other for other in self._plugins if other is not plugin]
        if plugin.problem:
            self.problems.append(plugin.problem)
        self._dropped.append(plugin)
        plugin.close()
        self._changed.notify_all()

    def _update(self, updates: Iterable[pb.ContainerUpdate]) -> None:
        """Change containers outside an event, as a plugin asks."""
        with self._changed:
            self._apply(updates)

    def _accept(self, listener: socket.socket) -> None:
        """Take in one plugin at a time, as containerd does."""
        while True:
            try:
                sock, _ = listener.accept()
            except OSError:
                return  # stopped
            self._take_in(sock)

    def _take_in(self, sock: socket.socket) -> None:
        """Let a plugin register, and synchronize it."""
        plugin = PluginConnection(sock, str(self.path), self.info, update=self._update, log=self.calls.append)
        self._starting.add(plugin)
        self._end_dropped()
        try:
            plugin.start(self._registration_timeout, configure_first=self._configure_first)
            with self._changed:
                self._synchronize(plugin)
        except NriError as error:
            log.info("%s", error)
            self.problems.append(error)
            _end(plugin)
        finally:
            self._starting.discard(plugin)

    def _end_dropped(self) -> None:
        with self._changed:
            dropped, self._dropped = self._dropped, []
        for plugin in dropped:
            _end(plugin)

    def _synchronize(self, plugin: PluginConnection) -> None:
        running = [container for container in self._containers.values() if container.state not in _ENDED]
        self._apply(plugin.synchronize(list(self._pods.values()), running, self._part))
        self._plugins = sorted([*self._plugins, plugin], key=lambda other: other.name)
        self._changed.notify_all()


def _end(plugin: PluginConnection) -> None:
    plugin.close()
    plugin.join(_JOIN)
