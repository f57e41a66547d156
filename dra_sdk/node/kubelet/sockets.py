"""The paths of the sockets of one driver, and how to remove those of processes that were killed.

Source: kubelet plugin watcher (plugins_registry, names starting with a dot are ignored).
"""

from __future__ import annotations

import contextlib
import socket
import time
from dataclasses import dataclass
from pathlib import Path

from dra_sdk.errors import SettingsError
from dra_sdk.rpc.sockets import LIMIT, short_hash

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
    """Return the socket paths of a driver; `instance` (the pod's UID) makes them unique for a rolling update.

    The first name that fits is taken, hashed ones last; SettingsError with the numbers if none fits.
    """
    if not instance:
        return SocketPaths(
            _first_fit(registry, [f"{driver}-reg.sock"], driver), _first_fit(plugin_data, ["dra.sock"], driver)
        )
    registration = [
        f"{driver}-{instance}-reg.sock",
        f"{driver}-{short_hash(instance, 8)}-reg.sock",
        f"dra-{short_hash(chr(0).join((driver, instance)), 16)}-reg.sock",
    ]
    service = [f"dra-{instance}.sock", f"dra-{short_hash(instance, 8)}.sock", f"dra-{short_hash(instance, 6)}.sock"]
    return SocketPaths(_first_fit(registry, registration, driver), _first_fit(plugin_data, service, driver))


def remove_dead(paths: SocketPaths, driver: str) -> list[Path]:
    """Remove sockets of this driver that no process listens on, such as those of killed pods.

    Only names that `socket_paths` gives for the driver are looked at. New sockets stay, because their process may be
    about to listen. Returns the removed paths.
    """
    registry, plugin_data = paths.registration.parent, paths.service.parent
    paths_there = list(registry.glob(f"{driver}-*reg.sock"))
    if plugin_data != registry:
        paths_there += plugin_data.glob("dra*.sock")
    removed = []
    for path in paths_there:
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


def _first_fit(directory: Path, names: list[str], driver: str) -> Path:
    for name in names:
        if len(bytes(directory / name)) <= LIMIT:
            return directory / name
    path = directory / names[-1]
    raise SettingsError(
        f"driver {driver}: socket path {path} has {len(bytes(path))} bytes, the limit is {LIMIT}; "
        f"use a shorter directory or driver name"
    )
