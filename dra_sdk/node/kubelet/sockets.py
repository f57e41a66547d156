"""The paths of the sockets, their limit, and how to remove a socket but not that of another process.

Source: kubelet plugin watcher (plugins_registry, names starting with a dot are ignored), unix(7): sun_path holds 108
bytes with the final NUL, so a path has at most 107.
"""

from __future__ import annotations

import contextlib
import socket
import time
from base64 import urlsafe_b64encode
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

from dra_sdk.errors import SettingsError

LIMIT = 107
YOUNG = 10.0  # seconds


@dataclass(frozen=True, slots=True)
class SocketPaths:
    """The sockets of one driver process.

    registration: in the directory that the kubelet watches; it calls GetInfo there.
    service: answers prepare, unprepare and health; GetInfo returns its path.
    """

    registration: Path
    service: Path


def socket_paths(driver: str, registry: Path, plugin_data: Path, instance: str = "") -> SocketPaths:
    """The socket paths of a driver; `instance` (the pod's UID) makes them unique for a rolling update.

    The first name that fits is taken, hashed ones last; SettingsError with the numbers if none fits.
    """
    if not instance:
        return SocketPaths(
            _first_fit(registry, [f"{driver}-reg.sock"], driver), _first_fit(plugin_data, ["dra.sock"], driver)
        )
    registration = [
        f"{driver}-{instance}-reg.sock",
        f"{driver}-{_short(instance, 8)}-reg.sock",
        f"dra-{_short(chr(0).join((driver, instance)), 16)}-reg.sock",
    ]
    service = [f"dra-{instance}.sock", f"dra-{_short(instance, 8)}.sock", f"dra-{_short(instance, 6)}.sock"]
    return SocketPaths(_first_fit(registry, registration, driver), _first_fit(plugin_data, service, driver))


def hidden(path: Path) -> Path:
    """The path at which a socket is bound before it is renamed: not longer than its own, and ignored by the kubelet."""
    return path.with_name(f".{_short(path.name, 4)}")


def refuse_foreign(path: Path) -> None:
    """SettingsError if `path` exists and is not a socket, or if its directory is missing."""
    if not path.parent.is_dir():
        raise SettingsError(f"cannot listen on {path}: {path.parent} is not a directory")
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        raise SettingsError(f"{path} exists and is not a socket; remove it")


def remove_dead(paths: SocketPaths, driver: str) -> list[Path]:
    """Remove sockets of this driver that no process listens on, such as those of killed pods.

    Only names that `socket_paths` gives for the driver are looked at. New sockets stay, because their process may be
    about to listen. Returns the removed paths.
    """
    registry, plugin_data = paths.registration.parent, paths.service.parent
    found = list(registry.glob(f"{driver}-*reg.sock"))
    if plugin_data != registry:
        found += plugin_data.glob("dra*.sock")
    removed = []
    for path in found:
        with contextlib.suppress(FileNotFoundError):
            old = path.is_socket() and time.time() - path.stat().st_mtime > YOUNG
            if path not in {paths.registration, paths.service} and old and not _listening(path):
                path.unlink()
                removed.append(path)
    return removed


def _listening(path: Path) -> bool:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
        client.settimeout(1.0)
        try:
            client.connect(str(path))
        except ConnectionRefusedError:
            return False
        except OSError:
            return True  # busy or forbidden: a process may listen there
    return True


def remove_own(path: Path, inode: int) -> None:
    """Remove our socket, unless another process has already put its own socket at the same path."""
    with contextlib.suppress(FileNotFoundError):
        if path.stat().st_ino == inode:
            path.unlink()


def _first_fit(directory: Path, names: list[str], driver: str) -> Path:
    for name in names:
        if len(bytes(directory / name)) <= LIMIT:
            return directory / name
    path = directory / names[-1]
    raise SettingsError(
        f"driver {driver}: socket path {path} has {len(bytes(path))} bytes, the limit is {LIMIT}; "
        f"use a shorter directory or driver name"
    )


def _short(text: str, size: int) -> str:
    return urlsafe_b64encode(sha256(text.encode()).digest()[:size]).rstrip(b"=").decode()
