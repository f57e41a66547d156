"""The Fabric Manager of a machine with NVSwitches: its partitions, and its library `libnvfm.so.1`.

In shared NVSwitch mode (`FABRIC_MODE=1`), a partition is a set of GPUs whose NVLinks it connects on demand. Sources:
nv_fm_agent.h and nv_fm_types.h; Fabric Manager user guide, "Shared NVSwitch Virtualization Model".
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Any, Final, Protocol

from dra_sdk import HardwareError, RetriableError
from dra_sdk.hardware.host_paths import find_library

SONAME: Final = "libnvfm.so.1"


class FabricError(RetriableError):
    """The Fabric Manager refuses, or cannot be reached."""


@dataclass(frozen=True, slots=True)
class Partition:
    """A partition that the machine supports.

    id: its number.
    active: its GPUs are connected.
    modules: the module numbers of its GPUs.
    """

    id: int
    active: bool
    modules: frozenset[int]


class FabricManager(Protocol):
    """The Fabric Manager of a node. Each method raises FabricError."""

    def partitions(self) -> list[Partition]:
        """`fmGetSupportedFabricPartitions`."""

    def activate(self, partition: int) -> None:
        """`fmActivateFabricPartition`."""

    def deactivate(self, partition: int) -> None:
        """`fmDeactivateFabricPartition`."""


class _ConnectParams(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("address", ctypes.c_char * 256),
        ("timeout_ms", ctypes.c_uint),
        ("is_unix_socket", ctypes.c_uint),
    )


class _GpuInfo(ctypes.Structure):
    _fields_ = (
        ("physical_id", ctypes.c_uint),
        ("uuid", ctypes.c_char * 80),
        ("pci_bus_id", ctypes.c_char * 32),
        ("links_available", ctypes.c_uint),
        ("links", ctypes.c_uint),
        ("line_rate_mbps", ctypes.c_uint),
    )


class _PartitionInfo(ctypes.Structure):
    _fields_ = (
        ("id", ctypes.c_uint),
        ("active", ctypes.c_uint),
        ("gpu_count", ctypes.c_uint),
        ("gpus", _GpuInfo * 16),
    )


class _PartitionList(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint),
        ("count", ctypes.c_uint),
        ("most", ctypes.c_uint),
        ("partitions", _PartitionInfo * 64),
    )


_MEANINGS: Final[Mapping[int, str]] = {
    -1: "invalid argument",
    -3: "not supported; is FABRIC_MODE=1 set?",
    -5: "timed out",
    -6: "library and Fabric Manager have different versions",
    -7: "in use, or active already",
    -8: "it is still starting",
    -9: "the connection is broken",
    -10: "NVLinks cannot be trained",
}
_CONNECT_MS: Final = 5000
_one_at_a_time: Final = Lock()  # the library has one state for the process


class RealFabricManager:
    """The `FabricManager` over `libnvfm.so.1`, which is part of the Fabric Manager; one connection for each call.

    driver_root: where the library is installed.
    socket: the Fabric Manager's socket, as this process finds it.
    """

    def __init__(self, driver_root: Path, socket: Path) -> None:
        self._driver_root, self._socket = driver_root, socket

    def partitions(self) -> list[Partition]:
        """See `FabricManager.partitions`."""
        answer = _PartitionList(version=_version(_PartitionList))
        self._call("fmGetSupportedFabricPartitions", ctypes.byref(answer))
        return [
            Partition(entry.id, bool(entry.active), frozenset(gpu.physical_id for gpu in entry.gpus[: entry.gpu_count]))
            for entry in answer.partitions[: answer.count]
        ]

    def activate(self, partition: int) -> None:
        """See `FabricManager.activate`."""
        self._call("fmActivateFabricPartition", ctypes.c_uint(partition))

    def deactivate(self, partition: int) -> None:
        """See `FabricManager.deactivate`."""
        self._call("fmDeactivateFabricPartition", ctypes.c_uint(partition))

    def _call(self, name: str, *arguments: Any) -> None:
        library = _load(self._driver_root)
        with _one_at_a_time, self._connected(library) as handle:
            _ask(getattr(library, name), name, handle, *arguments)

    @contextmanager
    def _connected(self, library: ctypes.CDLL) -> Iterator[ctypes.c_void_p]:
        handle, address = ctypes.c_void_p(), str(self._socket).encode()
        parameters = _ConnectParams(_version(_ConnectParams), address, _CONNECT_MS, 1)
        _ask(library.fmLibInit, "fmLibInit")
        try:
            _ask(library.fmConnect, f"fmConnect to {self._socket}", ctypes.byref(parameters), ctypes.byref(handle))
            try:
                yield handle
            finally:
                library.fmDisconnect(handle)
        finally:
            library.fmLibShutdown()


def _load(driver_root: Path) -> ctypes.CDLL:
    path = find_library(driver_root, SONAME)
    if path is None:
        raise HardwareError(f"no {SONAME} under driver root {driver_root}; it comes with the Fabric Manager")
    try:
        return ctypes.CDLL(str(path))
    except OSError as error:
        raise HardwareError(f"{path} cannot be loaded: {error}") from None


def _version(kind: type[ctypes.Structure]) -> int:
    """`MAKE_FM_PARAM_VERSION`: the size, and version 1 in the highest byte; it is 1 for the list `_v2`, too."""
    return ctypes.sizeof(kind) | 1 << 24


def _ask(function: Callable[..., int], name: str, *arguments: Any) -> None:
    if code := function(*arguments):
        raise FabricError(f"Fabric Manager: {name}: {_MEANINGS.get(code, 'failed')} (return value {code})")
