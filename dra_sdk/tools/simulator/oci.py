"""Applies CDI container edits to an OCI runtime spec, as a container runtime does before it starts a container.

Source: the CDI specification 1.1 and its Go library, including the order of mounts.
"""

from __future__ import annotations

import os
import posixpath
import stat
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from dra_sdk.errors import DraError
from dra_sdk.model import JSON
from dra_sdk.tools.node_archive.archive import HostDevice, read_manifest

_HOOKS = ("path", "args", "env", "timeout")
_RDT = ("closID", "schemata", "l3CacheSchema", "memBwSchema", "enableMonitoring")
_FIFO = "p"


class InjectionError(DraError):
    """A container edit cannot be applied; the message names the device and the reason."""


HostLookup = Callable[[str], HostDevice]
"""Finds the device node at a host path; `OSError` if there is none."""


def host_device(path: str) -> HostDevice:
    """Look up a device node on this machine; `OSError` if there is none."""
    status = Path(path).stat()
    for kind, is_kind in (("b", stat.S_ISBLK), ("c", stat.S_ISCHR), (_FIFO, stat.S_ISFIFO)):
        if is_kind(status.st_mode):
            mode = stat.S_IMODE(status.st_mode)
            return HostDevice(kind, os.major(status.st_rdev), os.minor(status.st_rdev), mode)
    raise OSError(f"{path} is not a device node")


class NodeDeviceFiles:
    """Finds the device nodes of a node whose files are below `root`: real ones, or those of an extracted archive.

    It is a HostLookup. SettingsError if the archive's manifest is damaged.
    """

    def __init__(self, root: Path) -> None:
        self._root = root
        self._captured = read_manifest(root).devices

    def __call__(self, host_path: str) -> HostDevice:
        """Return the device node at a path on the node; `OSError` if there is none."""
        return self._captured.get(host_path) or host_device(str(self._root / host_path.lstrip("/")))


def apply_edits(spec: JSON, edits: JSON, host: HostLookup = host_device) -> None:
    """Apply container edits to `spec`, in place.

    `InjectionError` if a device node is missing or of another type, or a network interface would be moved twice.
    """
    if edits.get("env"):
        _add_env(_process(spec).setdefault("env", []), edits["env"])
    for node in edits.get("deviceNodes") or []:
        _add_device(spec, node, host)
    _check_net_devices(edits.get("netDevices") or [])
    for device in edits.get("netDevices") or []:
        _linux(spec).setdefault("netDevices", {})[device["hostInterfaceName"]] = {"name": device["name"]}
    if edits.get("mounts"):
        _add_mounts(spec, edits["mounts"])
    for hook in edits.get("hooks") or []:
        spec.setdefault("hooks", {}).setdefault(hook["hookName"], []).append(_present(hook, _HOOKS))
    if edits.get("intelRdt") is not None:
        _linux(spec)["intelRdt"] = _present(edits["intelRdt"], _RDT)
    for gid in edits.get("additionalGids") or []:
        _add_gid(spec, gid)


def merged_edits(edits: list[JSON]) -> JSON:
    """Return several sets of edits as one: lists are joined, the last intelRdt is used."""
    merged: JSON = {}
    for edit in edits:
        for key, value in edit.items():
            if value is None:
                continue
            merged[key] = [*merged.get(key, []), *value] if isinstance(value, list) else value
    return merged


def overwritten(edits: Mapping[str, JSON]) -> list[str]:
    """Return what two devices set differently in one container, a sentence for each; a runtime uses the last one.

    `edits` are by the name of the device. What two devices set to the same value is no problem: a runtime keeps one.
    """
    values: dict[str, dict[str, list[str]]] = {}
    for device, edit in edits.items():
        for what, value in _settings(edit):
            values.setdefault(what, {}).setdefault(value, []).append(device)
    different = {what: settings for what, settings in values.items() if len(settings) > 1}
    return [
        f"{what} is {' and '.join(f'{value} by {devices[0]}' for value, devices in settings.items())}; the last is used"
        for what, settings in different.items()
    ]


def _settings(edits: JSON) -> Iterator[tuple[str, str]]:
    """Yield what edits set that can be set once, each with its value."""
    for variable in edits.get("env") or []:
        name, _, value = variable.partition("=")
        yield f"environment variable {name}", repr(value)
    for node in edits.get("deviceNodes") or []:
        yield f"device node {node['path']}", str(node.get("hostPath") or node["path"])
    for mount in edits.get("mounts") or []:
        yield f"mount {mount['containerPath']}", str(mount["hostPath"])


def _check_net_devices(devices: list[JSON]) -> None:
    """Raise InjectionError if an interface is moved twice, or two get one name, as the CDI library does."""
    for key, what in (("hostInterfaceName", "interface of the host"), ("name", "name in the container")):
        names = [device[key] for device in devices]
        if twice := next((name for name in names if names.count(name) > 1), None):
            raise InjectionError(f"CDI netDevices: {what} {twice!r} is there twice")


def _present(source: JSON, keys: tuple[str, ...]) -> JSON:
    return {key: source[key] for key in keys if source.get(key)}


def _process(spec: JSON) -> JSON:
    process: JSON = spec.setdefault("process", {"cwd": ""})
    process.setdefault("user", {"uid": 0, "gid": 0})
    return process


def _linux(spec: JSON) -> JSON:
    linux: JSON = spec.setdefault("linux", {})
    return linux


def _add_env(env: list[str], added: list[str]) -> None:
    indexes = {variable.partition("=")[0]: index for index, variable in enumerate(env)}
    for variable in added:
        name = variable.partition("=")[0]
        if name in indexes:
            env[indexes[name]] = variable
        else:
            indexes[name] = len(env)
            env.append(variable)


def _add_gid(spec: JSON, gid: int) -> None:
    if gid == 0:
        return
    gids = _process(spec)["user"].setdefault("additionalGids", [])
    if gid not in gids:
        gids.append(gid)


def _add_device(spec: JSON, node: JSON, host: HostLookup) -> None:
    device = _complete(node, host)
    user = (spec.get("process") or {}).get("user") or {}
    for key in ("uid", "gid"):
        owner = node.get(key) if node.get(key) is not None else user.get(key) or None
        if owner is not None:
            device[key] = owner
    devices = _linux(spec).setdefault("devices", [])
    devices[:] = [other for other in devices if other["path"] != device["path"]]
    devices.append(device)
    if device["type"] in {"b", "c"}:
        rule = {"allow": True, **{key: device[key] for key in ("type", "major", "minor")}}
        access = node.get("permissions") or "rwm"
        if access != "none":
            rule["access"] = access
        _linux(spec).setdefault("resources", {}).setdefault("devices", []).append(rule)


def _complete(node: JSON, host: HostLookup) -> JSON:
    """Return the device as in the OCI spec; fields that the edit leaves out are read from the host."""
    device: dict[str, Any] = {
        "path": node["path"],
        "type": node.get("type", ""),
        "major": node.get("major", 0),
        "minor": node.get("minor", 0),
    }
    if node.get("fileMode") is not None:
        device["fileMode"] = node["fileMode"]
    complete = device["type"] and (device["major"] or device["type"] == _FIFO)
    path = node.get("hostPath") or node["path"]
    try:
        host_node = host(path)
    except OSError as error:
        if complete:
            return device
        raise InjectionError(f"CDI device {node['path']!r}: cannot stat host device {path!r}: {error}") from error
    device.setdefault("fileMode", host_node.mode)
    if complete:
        return device
    device["type"] = device["type"] or host_node.type
    if device["type"] != host_node.type:
        types = f"the edit says type {device['type']!r}, host device {path!r} has {host_node.type!r}"
        raise InjectionError(f"CDI device {node['path']!r}: {types}")
    if device["type"] != _FIFO and not device["major"]:
        device["major"], device["minor"] = host_node.major, host_node.minor
    return device


def _add_mounts(spec: JSON, added: list[JSON]) -> None:
    namespaces = (spec.get("linux") or {}).get("namespaces") or []
    in_user_namespace = any(namespace["type"] == "user" for namespace in namespaces)
    mounts = spec.setdefault("mounts", [])
    for mount in added:
        mounts[:] = [other for other in mounts if other["destination"] != mount["containerPath"]]
        mounts.append(_mount(mount, in_user_namespace=in_user_namespace))
    # Parents before children; the sort is stable.
    mounts.sort(key=lambda mount: posixpath.normpath(mount["destination"]).count("/"))


def _mount(mount: JSON, *, in_user_namespace: bool) -> JSON:
    options = list(mount.get("options") or [])
    if in_user_namespace and not {"idmap", "ridmap"} & set(options):
        last_bind = [option for option in options if option in {"bind", "rbind"}][-1:]
        if last_bind == ["rbind"]:
            options.append("ridmap")
        elif last_bind or mount.get("type") == "bind":
            options.append("idmap")
    result: JSON = {"destination": mount["containerPath"], "source": mount["hostPath"]}
    if mount.get("type"):
        result["type"] = mount["type"]
    if options:
        result["options"] = options
    return result
