"""Merges what several plugins answer to one event, and refuses two plugins that set the same thing.

Source: containerd/nri pkg/adaptation/result.go, pkg/api/owners.go.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from dra_sdk.errors import NriError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb

_CPU_VALUES: Final = ("shares", "quota", "period")
_CPU_LISTS: Final = ("cpus", "mems")
_MEMORY_VALUES: Final = ("limit", "reservation", "swap")


class RefusedError(NriError):
    """A plugin, or a conflict of two, made the runtime fail a pod or a container."""


class PluginConflictError(RefusedError):
    """Two plugins set the same thing of one container, or a plugin updates the container that is being created."""


class MergedAnswers:
    """The answers of all plugins to one event.

    container: the container that is created, with all adjustments so far, as the next plugin sees it; None for other
        events.
    adjustment: all that plugins have adjusted in it.
    updates: what is to be changed in other containers, by id.
    """

    def __init__(self, container: pb.Container | None = None) -> None:
        self.container = container
        self.adjustment = pb.ContainerAdjustment()
        self.updates: dict[str, pb.ContainerUpdate] = {}
        self._owners: dict[tuple[str, str, str], str] = {}

    def adjust(self, plugin: str, adjust: pb.ContainerAdjustment) -> None:
        """Apply what a plugin wants of the container that is created; PluginConflictError."""
        container = self.container
        assert container is not None
        self._annotations(plugin, adjust, container)
        self._mounts(plugin, adjust, container)
        self._env(plugin, adjust, container)
        for device in adjust.CDI_devices:
            self._claim(container.id, "CDI device", device.name, plugin)
            container.CDI_devices.append(device)
        if adjust.linux.HasField("resources"):
            self._resources(plugin, container.id, adjust.linux.resources, container.linux.resources)
        self.adjustment.MergeFrom(adjust)

    def update(self, plugin: str, updates: Iterable[pb.ContainerUpdate]) -> None:
        """Add what a plugin wants to change in other containers.

        PluginConflictError, unless the update ignores failures.
        """
        for update in updates:
            if self.container is not None and update.container_id == self.container.id:
                raise PluginConflictError(
                    f"plugin {plugin} asked for an update of {update.container_id} during its creation"
                )
            merged = pb.ContainerUpdate(container_id=update.container_id, ignore_failure=update.ignore_failure)
            if before := self.updates.get(update.container_id):
                merged.CopyFrom(before)
                merged.ignore_failure = before.ignore_failure and update.ignore_failure
            owners = dict(self._owners)
            try:
                self._resources(plugin, update.container_id, update.linux.resources, merged.linux.resources)
            except PluginConflictError:
                self._owners = owners
                if not update.ignore_failure:
                    raise
            else:
                self.updates[update.container_id] = merged

    def _annotations(self, plugin: str, adjust: pb.ContainerAdjustment, container: pb.Container) -> None:
        for name in sorted(adjust.annotations):  # names with a removal mark come first
            if name.startswith("-"):
                self._release(container.id, "annotation", name[1:])
                container.annotations.pop(name[1:], None)
            else:
                self._claim(container.id, "annotation", name, plugin)
                container.annotations[name] = adjust.annotations[name]

    def _mounts(self, plugin: str, adjust: pb.ContainerAdjustment, container: pb.Container) -> None:
        removed = {mount.destination[1:] for mount in adjust.mounts if mount.destination.startswith("-")}
        added = [mount for mount in adjust.mounts if not mount.destination.startswith("-")]
        for destination in removed:
            self._release(container.id, "mount", destination)
        for mount in added:
            self._claim(container.id, "mount", mount.destination, plugin)
        replaced = removed | {mount.destination for mount in added}
        kept = [mount for mount in container.mounts if mount.destination not in replaced]
        del container.mounts[:]
        container.mounts.extend([*kept, *added])

    def _env(self, plugin: str, adjust: pb.ContainerAdjustment, container: pb.Container) -> None:
        values = dict(variable.partition("=")[::2] for variable in container.env)
        for variable in sorted(adjust.env, key=lambda adjusted: not adjusted.key.startswith("-")):
            if variable.key.startswith("-"):
                self._release(container.id, "environment variable", variable.key[1:])
                values.pop(variable.key[1:], None)
            else:
                self._claim(container.id, "environment variable", variable.key, plugin)
                values[variable.key] = variable.value
        del container.env[:]
        container.env.extend(f"{name}={value}" for name, value in values.items())

    def _resources(self, plugin: str, container: str, wanted: pb.LinuxResources, result: pb.LinuxResources) -> None:
        for name in _CPU_LISTS:
            if value := getattr(wanted.cpu, name):  # empty means unchanged
                self._claim(container, "cpu", name, plugin)
                setattr(result.cpu, name, value)
        self._values(plugin, container, ("cpu", wanted.cpu, result.cpu), _CPU_VALUES)
        self._values(plugin, container, ("memory", wanted.memory, result.memory), _MEMORY_VALUES)
        for limit in wanted.hugepage_limits:
            self._claim(container, "hugepage limit", limit.page_size, plugin)
            others = [other for other in result.hugepage_limits if other.page_size != limit.page_size]
            del result.hugepage_limits[:]
            result.hugepage_limits.extend([*others, limit])
        for key, value in wanted.unified.items():
            self._claim(container, "cgroup v2 file", key, plugin)
            result.unified[key] = value

    def _values(self, plugin: str, container: str, where: tuple[str, Any, Any], names: tuple[str, ...]) -> None:
        group, wanted, result = where
        for name in names:
            if wanted.HasField(name):
                self._claim(container, group, name, plugin)
                getattr(result, name).CopyFrom(getattr(wanted, name))

    def _claim(self, container: str, what: str, name: str, plugin: str) -> None:
        other = self._owners.setdefault((container, what, name), plugin)
        if other != plugin:
            raise PluginConflictError(f"plugins {other} and {plugin} both set {what} {name} of container {container}")

    def _release(self, container: str, what: str, name: str) -> None:
        self._owners.pop((container, what, name), None)
