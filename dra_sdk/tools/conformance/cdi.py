"""The CDI directories as a container runtime sees them, and what a container gets from them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dra_sdk.model import JSON
from dra_sdk.tools.simulator.cdi import CdiDirectories, CdiSnapshot
from dra_sdk.tools.simulator.oci import NodeDevices

_SUFFIXES: Final = {".json", ".yaml"}
_EMPTY_CONTAINER: Final = {"ociVersion": "1.2.1"}


@dataclass(frozen=True)
class ContainerEdits:
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
    def of(cls, spec: Mapping[str, Any]) -> ContainerEdits:
        """From the OCI spec of a container that was empty before."""
        env = tuple(each.partition("=")[0] for each in (spec.get("process") or {}).get("env") or ())
        linux = spec.get("linux") or {}
        nodes = tuple(each["path"] for each in linux.get("devices") or ())
        nodes += tuple(linux.get("netDevices") or ())
        mounts = tuple(each["destination"] for each in spec.get("mounts") or ())
        return cls(env, nodes, mounts, sum(len(each) for each in (spec.get("hooks") or {}).values()))

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

    Paths below `kubelet_dir` are looked up as they are: a driver keeps its own files, such as the metadata of a claim,
    in the kubelet's directory, which lies outside a `host_root` that is a tree of files.
    """

    def __init__(self, directories: Iterable[Path], host_root: Path, kubelet_dir: Path | None = None) -> None:
        self._directories = tuple(directories)
        self._host_root = host_root
        self._kubelet_dir = kubelet_dir
        self._runtime = CdiDirectories(self._directories, NodeDevices(host_root))

    @property
    def directory(self) -> Path:
        """The directory that drivers write to."""
        return self._directories[-1]

    def paths(self) -> list[Path]:
        """The spec files."""
        folders = [each for each in self._directories if each.is_dir()]
        return sorted(path for each in folders for path in each.iterdir() if path.suffix in _SUFFIXES)

    def contents(self) -> dict[Path, bytes]:
        """The spec files with their contents."""
        found: dict[Path, bytes] = {}
        for path in self.paths():
            try:
                found[path] = path.read_bytes()
            except FileNotFoundError:
                continue  # removed after it was listed
        return found

    def load(self) -> CdiSnapshot:
        """The specs as a runtime reads them."""
        return self._runtime.load()

    def unresolved(self, cdi_ids: Iterable[str]) -> list[str]:
        """The IDs that no spec defines."""
        known = self.load().devices
        return [each for each in cdi_ids if each not in known]

    def container(self, cdi_ids: Iterable[str]) -> JSON:
        """The OCI spec of an empty container with these devices; DraError or OSError if a runtime would fail."""
        return self._runtime.inject(_EMPTY_CONTAINER, list(cdi_ids))

    def on_host(self, path: str) -> Path:
        """Where a path of the host is."""
        if self._kubelet_dir is not None and Path(path).is_relative_to(self._kubelet_dir):
            return Path(path)
        return self._host_root / path.lstrip("/")
