"""The CDI directories as a container runtime sees them, and what a container would get."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.simulator.cdi import CdiDirectories, CdiSnapshot
from dra_sdk.tools.simulator.oci import HostDevice, host_device

Files = dict[Path, bytes]
_SUFFIXES = {".json", ".yaml"}
EMPTY = {"ociVersion": "1.2.1"}


@dataclass(frozen=True)
class View:
    """What a container has of CDI devices: names of variables, paths of device nodes and mounts, and hooks."""

    env: tuple[str, ...]
    device_nodes: tuple[str, ...]
    mounts: tuple[str, ...]
    hooks: int

    @classmethod
    def of(cls, spec: Mapping[str, Any]) -> View:
        """Of an OCI spec."""
        env = tuple(each.partition("=")[0] for each in (spec.get("process") or {}).get("env") or ())
        linux = spec.get("linux") or {}
        nodes = tuple(each["path"] for each in linux.get("devices") or ())
        nodes += tuple(linux.get("netDevices") or ())
        mounts = tuple(each["destination"] for each in spec.get("mounts") or ())
        return cls(env, nodes, mounts, sum(len(each) for each in (spec.get("hooks") or {}).values()))

    @property
    def size(self) -> tuple[int, int, int, int]:
        """How many there are of each."""
        return len(self.env), len(self.device_nodes), len(self.mounts), self.hooks

    @property
    def empty(self) -> bool:
        """Whether the container has nothing."""
        return not any(self.size)


class Cdi:
    """The directories, in rising priority; host paths are looked up under `host_root`."""

    def __init__(self, directories: Iterable[Path], host_root: Path) -> None:
        self._directories = tuple(directories)
        self._host_root = host_root
        self._runtime = CdiDirectories(self._directories, self._host_device)

    @property
    def directory(self) -> Path:
        """Where drivers write."""
        return self._directories[-1]

    def files(self) -> Files:
        """Every spec file there is now, with its content."""
        found: Files = {}
        for path in self.paths():
            try:
                found[path] = path.read_bytes()
            except FileNotFoundError:
                continue  # gone between being listed and being read
        return found

    def paths(self) -> list[Path]:
        """Every spec file there is now."""
        folders = [each for each in self._directories if each.is_dir()]
        return sorted(path for each in folders for path in each.iterdir() if path.suffix in _SUFFIXES)

    def load(self) -> CdiSnapshot:
        """What a runtime makes of them."""
        return self._runtime.load()

    def unresolved(self, cdi_ids: Iterable[str]) -> list[str]:
        """Those ids that name no device."""
        known = self.load().devices
        return [each for each in cdi_ids if each not in known]

    def container(self, cdi_ids: Iterable[str]) -> JSON:
        """The OCI spec of an empty container with these devices; DraError where a runtime could not make it."""
        return self._runtime.inject(EMPTY, list(cdi_ids))

    def view(self, cdi_ids: Iterable[str]) -> View:
        """What such a container has."""
        return View.of(self.container(cdi_ids))

    def on_host(self, path: str) -> Path:
        """A host path, wherever the host's files are."""
        return self._host_root / path.lstrip("/")

    def _host_device(self, path: str) -> HostDevice:
        return host_device(str(self.on_host(path)))
