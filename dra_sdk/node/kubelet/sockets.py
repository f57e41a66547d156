"""Where the sockets lie, whether their paths fit, and how one is removed without touching another process's.

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

    registration: the kubelet watches its directory and asks there who the driver is.
    service: answers prepare, unprepare and health; the registration announces it.
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
    """Where a socket is bound before it takes its name: a path that is no longer and that the kubelet ignores."""
    return path.with_name(f".{_short(path.name, 4)}")


def refuse_foreign(path: Path) -> None:
    """SettingsError if `path` exists and is no socket of an earlier process, or if its directory is missing."""
    if not path.parent.is_dir():
        raise SettingsError(f"cannot listen on {path}: {path.parent} is not a directory")
    if path.is_symlink() or (path.exists() and not path.is_socket()):
        raise SettingsError(f"{path} exists and is not a socket; remove it")


def remove_dead(paths: SocketPaths, driver: str) -> list[Path]:
    """Remove sockets of this driver's other instances that nobody listens on: killed pods leave them behind.

    It looks at names that `socket_paths` gives for the driver only, and spares young sockets, which may be about to
    listen. Returns what it removed.
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
            return True  # full, slow or forbidden: somebody may be there
    return True


def remove_own(path: Path, inode: int) -> None:
    """Remove our socket unless a successor has already put its own in the same place."""
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
