"""Allocate for each request of a claim, and its answer as container edits."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, Final

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.client import PluginError
from dra_driver_plugin.plugin import Plugin
from dra_driver_plugin.settings import PluginSettings
from dra_sdk import (
    AllocatedDevice,
    Claim,
    Condition,
    ContainerEdits,
    DeviceNode,
    DeviceStatus,
    HardwareError,
    Mount,
    PermanentError,
    PreparedDevice,
)
from dra_sdk.hardware.host_paths import follow

log = logging.getLogger(__name__)
_PREFERENCE_SECONDS: Final = 1.0
_MARGIN: Final = 1.0  # seconds that the SDK needs after the last answer
_MESSAGE: Final = 1024  # characters
_BIND: Final = ("rbind", "rprivate")


def prepare(
    claim: Claim[Any], plugin: Plugin, devices: Sequence[AllocatedDevice[Any]], number: int, settings: PluginSettings
) -> Iterator[PreparedDevice]:
    """Prepare the devices of one request and resource by one call: variables often list all ids of a container."""
    ids = [each.hardware.id for each in devices]

    def seconds() -> float:
        claim.deadline.check()
        return max(0.1, min(settings.allocate_seconds, claim.deadline.remaining() - _MARGIN))

    told: list[str] = []
    if plugin.registration.prefers:
        told += _preference(claim, plugin, ids, min(_PREFERENCE_SECONDS, seconds()))
    answer = plugin.connection.allocate(ids, seconds())
    edits = container_edits(answer, claim.node.root, settings.allowed_paths, str(plugin))
    if plugin.registration.pre_start:
        plugin.connection.pre_start(ids, seconds())
    if answer.annotations:
        listed = ", ".join(f"{name}={text}" for name, text in sorted(answer.annotations.items()))
        told.append(f"annotations that containers do not get, because CDI has none: {listed}")
    status, message = None, "; ".join(told)[:_MESSAGE]
    if message:
        log.warning("%s: %s: %s", claim, plugin, message)
        condition = Condition(type="Ready", status=True, reason="Allocated", message=message)
        status = DeviceStatus(conditions=[condition])
    for device in devices:
        yield device.prepared(
            edits,
            data={"id": device.hardware.id, "resource": device.hardware.resource},
            cdi_name=f"claim-{claim.uid}_{number}",
            cdi_devices=[each.name for each in answer.cdi_devices],
            status=status,
        )


def container_edits(
    answer: wire.ContainerAllocateResponse, root: Path, allowed: Sequence[str], plugin: str
) -> ContainerEdits:
    """The answer as container edits. PermanentError for a path of the host that is not allowed."""
    paths = _Paths(root, allowed, plugin)
    for each in answer.devices:
        if set(each.permissions) - set("rwm"):
            raise PluginError(f"{plugin} gave {each.host_path} the permissions {each.permissions!r}, not r, w or m")
    nodes = [node for each in answer.devices for node in _device_nodes(each, root, paths)]
    mounts = [
        Mount(paths.checked(each.host_path, "mount"), each.container_path, (*_BIND, "ro" if each.read_only else "rw"))
        for each in answer.mounts
    ]
    return ContainerEdits(env=dict(answer.envs), device_nodes=nodes, mounts=mounts)


def _device_nodes(spec: wire.DeviceSpec, root: Path, paths: _Paths) -> Iterator[DeviceNode]:
    """The device nodes of one entry: a directory stands for all below it.

    The kubelet's way to the container runtime follows links and opens directories, that by CDI does neither.
    """
    host = paths.checked(spec.host_path, "device")
    below = root / host.lstrip("/")
    found = sorted(each for each in below.rglob("*") if not (each.is_dir() or each.is_symlink()))
    for inner in (f"/{each.relative_to(below)}" for each in found) if below.is_dir() else [""]:
        container = f"{spec.container_path or spec.host_path}{inner}"
        yield DeviceNode(container, f"{host}{inner}", permissions=spec.permissions or None)


class _Paths:
    """The paths of the host that a plugin may give to a container."""

    def __init__(self, root: Path, allowed: Sequence[str], plugin: str) -> None:
        self._root, self._plugin, self._listed = root, plugin, allowed
        self._allowed = {PurePosixPath(each) for path in allowed for each in (path, self._target(path))}

    def checked(self, path: str, what: str) -> str:
        """The path to which links lead. PermanentError if a plugin may not give it or what it leads to."""
        plain = PurePosixPath(path)
        if not plain.is_absolute() or ".." in plain.parts or "\0" in path:
            raise PermanentError(f"{self._plugin}: host path {path!r} of a {what} must be absolute, without '..'")
        target = self._target(path)
        for each in (plain, PurePosixPath(target)):
            if not any(each.is_relative_to(allowed) for allowed in self._allowed):
                leads = "" if str(plain) == target else f", which leads to {target},"
                raise PermanentError(
                    f"{self._plugin} asks for {what} {path} of the host{leads} which is not below "
                    f"{', '.join(self._listed) or 'any path'}: the setting allowedPaths (DRA_PLUGIN_ALLOWED_PATHS)"
                )
        return target

    def _target(self, path: str) -> str:
        try:
            return f"/{follow(self._root, path).relative_to(self._root)}"
        except HardwareError as error:
            raise PermanentError(f"{self._plugin}: {error}") from error


def _preference(claim: Claim[Any], plugin: Plugin, ids: Sequence[str], seconds: float) -> Iterator[str]:
    """A sentence if the plugin would have given other devices of those that no other claim holds."""
    held = {device.name for other in claim.held() for device in other.devices}
    free = [each.id for each in plugin.devices.values() if each.name not in held]
    if len(free) <= len(ids):
        return
    try:
        preferred = plugin.connection.preferred(free, len(ids), seconds)
    except PluginError as error:
        log.warning("%s: its preference is not known: %s", claim, error)
        return
    if len(preferred) == len(ids) and set(preferred) != set(ids):
        yield f"the plugin would have preferred {', '.join(preferred)} to {', '.join(ids)}, which kube-scheduler chose"
