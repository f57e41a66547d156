"""The answer to Allocate as container edits, with checks of all that a plugin says: it may be wrong or hostile.

Each refusal names plugin, field and value. Variables such as `LD_PRELOAD` or `LD_LIBRARY_PATH` are passed on: plugins
have uses for them, the kubelet passes them on too, and they change nothing but the container that has the device.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import Final

from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin import limits
from dra_sdk import ContainerEdits, DeviceNode, Mount, PermanentError
from dra_sdk.hardware.host import exists
from dra_sdk.hardware.host_paths import AllowedPaths

_BIND: Final = ("rbind", "rprivate")
_CLAIMS: Final = "DRA_CLAIM_"
"""The variables by which drivers with container hooks find the claims of a container."""
_KEPT: Final = ("/proc", "/sys", "/run/secrets", "/var/run/secrets")
"""Of the container: what the kernel and the kubelet put there, with all below it."""
_WHOLE: Final = re.compile("/(bin|boot|dev|etc|home|lib(32|64)?|opt|root|run|sbin|tmp|usr|var)?")
"""Directories of the container that something may be put into, but not in place of."""


class _Paths(AllowedPaths):
    """Paths that a plugin may name, if they are there."""

    def __init__(self, root: Path, allowed: Sequence[str]) -> None:
        super().__init__(root, allowed)
        self._at = root

    def checked(self, path: str) -> str:
        """See AllowedPaths. PermanentError for a path that is not seen: links that lead elsewhere could be in it."""
        target = super().checked(path)
        if not exists(self._at / target.lstrip("/")):
            raise PermanentError(
                f"host path {path} is not there, or the bridge's pod does not have it below {self._at}"
            )
        return target


def container_edits(
    answer: wire.ContainerAllocateResponse, root: Path, allowed: Sequence[str], plugin: str
) -> ContainerEdits:
    """Return the answer as container edits. PermanentError names plugin, field and value of what it may not give."""
    try:
        for name, text in answer.envs.items():
            _check_variable(name, text)
        paths = _Paths(root, allowed)
        nodes = [*chain(*(_device_nodes(f"devices[{at}]", one, paths) for at, one in enumerate(answer.devices)))]
        mounts = [_mount(f"mounts[{at}]", one, paths) for at, one in enumerate(answer.mounts)]
        _check_number(len(nodes), len(mounts))
    except PermanentError as error:
        raise PermanentError(f"{plugin} asks for what it may not give: {error}") from error
    return ContainerEdits(env=dict(answer.envs), device_nodes=nodes, mounts=mounts)


def _check_number(nodes: int, mounts: int) -> None:
    if nodes + mounts > limits.EDITS:
        raise PermanentError(f"{nodes} device nodes and {mounts} mounts are more than {limits.EDITS} together")


def _check_variable(name: str, text: str) -> None:
    if not name or "=" in name or "\0" in name + text:
        raise _refused(f"envs[{name!r:.100}]", text, "must have a name without '=', and no NUL character")
    if name.startswith(_CLAIMS):
        raise _refused(f"envs[{name!r:.100}]", text, f"belongs to a DRA driver, as all that begin with {_CLAIMS}")
    if (size := len(f"{name}={text}".encode())) > limits.VARIABLE:
        raise _refused(f"envs[{name!r:.100}]", text, f"has {size} bytes with its name, more than {limits.VARIABLE}")


def _device_nodes(field: str, device: wire.DeviceSpec, paths: _Paths) -> list[DeviceNode]:
    if set(device.permissions) - set("rwm"):
        raise _refused(f"{field}.permissions", device.permissions, "must be of r, w and m")
    host = _path(f"{field}.host_path", device.host_path)
    container = _container_path(f"{field}.container_path", device.container_path or device.host_path)
    with _setting(field):
        return paths.device_nodes(host, container, device.permissions)


def _mount(field: str, mount: wire.Mount, paths: _Paths) -> Mount:
    host = _path(f"{field}.host_path", mount.host_path)
    container = _container_path(f"{field}.container_path", mount.container_path)
    with _setting(field):
        return Mount(paths.checked(host), container, (*_BIND, "ro" if mount.read_only else "rw"))


def _path(field: str, path: str) -> str:
    """Return a path that the kernel takes, as it reads it: without repeated slashes."""
    parts = path.split("/")
    if not path.startswith("/") or ".." in parts or "\0" in path:
        raise _refused(field, path, "must be absolute, without '..' and NUL characters")
    if (size := len(path.encode())) > limits.PATH:
        raise _refused(field, path, f"has {size} bytes, more than {limits.PATH}")
    if (size := max(len(part.encode()) for part in parts)) > limits.FILE_NAME:
        raise _refused(field, path, f"has a name of {size} bytes, more than {limits.FILE_NAME}")
    return str(PurePosixPath("/", path.lstrip("/")))


def _container_path(field: str, path: str) -> str:
    plain = _path(field, path)
    if _WHOLE.fullmatch(plain):
        raise _refused(field, path, "would be put in place of a directory that belongs to the container's image")
    if any(PurePosixPath(plain).is_relative_to(kept) for kept in _KEPT):
        raise _refused(field, path, f"is of the kernel or the kubelet, as all below {', '.join(_KEPT)}")
    return plain


@contextmanager
def _setting(field: str) -> Iterator[None]:
    try:
        yield
    except PermanentError as error:
        setting = "setting allowedPaths, DRA_PLUGIN_ALLOWED_PATHS"
        raise PermanentError(f"{field}.host_path: {error} ({setting})") from error


def _refused(field: str, value: str, problem: str) -> PermanentError:
    return PermanentError(f"{field} {value!r:.200} {problem}")
