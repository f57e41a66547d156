"""The CDI directories as a container runtime sees them, and what a container gets from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.simulator.cdi import CdiDirectories, CdiSnapshot
from dra_sdk.tools.simulator.oci import NodeDeviceFiles

_SUFFIXES: Final = {".json", ".yaml"}
_EMPTY_CONTAINER: Final = {"ociVersion": "1.2.1"}


@dataclass(frozen=True)
class InjectedEdits:
    """What CDI devices add to a container.

    env: names of environment variables.
    device_nodes: paths of device nodes, and names of network devices.
    mounts: paths of mounts in the container.
    hooks: number of OCI hooks.
    """

    env: tuple[str, ...]
    device_nodes: tuple[str, ...]
    mounts: tuple[str, ...]
    hooks: int

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> InjectedEdits:
        """Read the OCI spec of a container that was empty before."""
        env = tuple(variable.partition("=")[0] for variable in (spec.get("process") or {}).get("env") or ())
        linux = spec.get("linux") or {}
        nodes = tuple(device["path"] for device in linux.get("devices") or ())
        nodes += tuple(linux.get("netDevices") or ())
        mounts = tuple(mount["destination"] for mount in spec.get("mounts") or ())
        return cls(env, nodes, mounts, sum(len(hooks) for hooks in (spec.get("hooks") or {}).values()))

    @property
    def size(self) -> tuple[int, int, int, int]:
        """The number of each kind."""
        return len(self.env), len(self.device_nodes), len(self.mounts), self.hooks

    @property
    def empty(self) -> bool:
        """Whether there are none."""
        return not any(self.size)


class CdiView:
    """The CDI directories in rising priority, with host paths looked up under `host_root`.

    `kubelet_dir` has the files that the driver itself writes, such as device metadata: its paths are not below
    `host_root`.
    """

    def __init__(self, directories: Iterable[Path], host_root: Path, kubelet_dir: Path) -> None:
        self._directories = tuple(directories)
        self._host_root = host_root
        self._kubelet_dir = kubelet_dir
        self._runtime = CdiDirectories(self._directories, NodeDeviceFiles(host_root))

    @property
    def directory(self) -> Path:
        """The directory that drivers write to."""
        return self._directories[-1]

    def paths(self) -> list[Path]:
        """Return the spec files."""
        folders = [directory for directory in self._directories if directory.is_dir()]
        return sorted(path for directory in folders for path in directory.iterdir() if path.suffix in _SUFFIXES)

    def contents(self) -> dict[Path, bytes]:
        """Return the spec files with their contents."""
        contents: dict[Path, bytes] = {}
        for path in self.paths():
            with suppress(FileNotFoundError):  # removed after it was listed
                contents[path] = path.read_bytes()
        return contents

    def load(self) -> CdiSnapshot:
        """Return the specs as a runtime reads them."""
        return self._runtime.load()

    def unresolved(self, cdi_ids: Iterable[str]) -> list[str]:
        """Return the IDs that no spec defines."""
        known = self.load().devices
        return [cdi_id for cdi_id in cdi_ids if cdi_id not in known]

    def container(self, cdi_ids: Iterable[str]) -> JSON:
        """Return the OCI spec of an empty container with these devices; DraError or OSError if a runtime would fail."""
        return self._runtime.inject(_EMPTY_CONTAINER, list(cdi_ids))

    def on_host(self, path: str) -> Path:
        """Return where a path of the host is."""
        return Path(path) if Path(path).is_relative_to(self._kubelet_dir) else self._host_root / path.lstrip("/")
