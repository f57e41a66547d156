"""The cgroup of a container: its CPUs, memory nodes, CPU quota and huge pages, with cgroup v1 and v2.

A container runtime states the cgroup as the OCI runtime specification has it: `/kubepods/pod1/abc` for cgroupfs, or
`kubepods-pod1.slice:cri-containerd:abc` for systemd, which is the scope `cri-containerd-abc.scope` in that slice. A
slice alone, such as that of a pod, is a cgroup too.

The host's hierarchies are those that its first process sees mounted, as in `dra_sdk.hardware.cgroups`.
Source: cgroups(7); cpuset(7); Documentation/admin-guide/cgroup-v2.rst; systemd.slice(5); OCI runtime specification.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import format_cpuset
from dra_sdk.hardware.host import read_large_text
from dra_sdk.hardware.host_paths import follow
from dra_sdk.model.container import ContainerResources
from dra_sdk.model.driver import Host

_SLICE: Final = ".slice"
_SYSTEMD_PARTS: Final = 3  # slice:prefix:name
_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV})
_NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class ContainerCgroup:
    """The cgroup of a container.

    host: the host.
    path: the cgroup as the container runtime states it.
    """

    host: Host
    path: str

    @property
    def below_root(self) -> str:
        """Its path below the root of a hierarchy."""
        parts = self.path.split(":")
        if len(parts) != _SYSTEMD_PARTS:
            is_slice = self.path.endswith(_SLICE) and "/" not in self.path
            return "/".join(_slices(self.path)) if is_slice else self.path.lstrip("/")
        parent, prefix, name = parts
        scope = name if name.endswith(_SLICE) else f"{prefix}-{name}.scope" if prefix else f"{name}.scope"
        return "/".join([*_slices(parent), scope])

    def write(self, resources: ContainerResources) -> bool:
        """Change these resources of the container; False if it has no cgroup: it has gone, or has not started.

        Raises HardwareError with the file and the reason if the kernel refuses a value, if the host does not show the
        hierarchy of a controller, or if the path leads out of the hierarchy.
        """
        if ".." in self.below_root.split("/") or not self.below_root:
            raise HardwareError(f"{self.path!r} is not the cgroup of a container")
        for controller, of_v1, of_v2, value in _values(resources):
            root, is_v2 = self._hierarchy(controller)
            directory = root / self.below_root
            if not directory.is_dir():
                return False
            _write(directory / (of_v2 if is_v2 else of_v1), value if is_v2 or value != "max" else str(_NO_LIMIT))
        return True

    def _hierarchy(self, controller: str) -> tuple[Path, bool]:
        """Return the root of the hierarchy that has a controller, and whether it is that of cgroup v2."""
        mounts = self.host.proc / "1/mounts"
        unified = None
        for line in read_large_text(mounts).splitlines():
            _, place, kind, options, *_ = line.split()
            if kind == "cgroup" and controller in options.split(","):
                return self._local(place), False
            if kind == "cgroup2":
                unified = unified or self._local(place)
        if unified is None:
            raise HardwareError(f"{mounts} shows no cgroup hierarchy with the controller {controller}")
        return unified, True

    def _local(self, place: str) -> Path:
        return Path(place) if self.host.root == Path("/") else follow(self.host.root, place)


def _values(resources: ContainerResources) -> Iterator[tuple[str, str, str, str]]:
    """Yield controller, file of cgroup v1, file of v2 and text of each value."""
    if resources.mems is not None:
        yield "cpuset", "cpuset.mems", "cpuset.mems", format_cpuset(resources.mems)
    if resources.cpus is not None:
        yield "cpuset", "cpuset.cpus", "cpuset.cpus", format_cpuset(resources.cpus)
    if resources.cpu_quota is not None:
        quota = "max" if resources.cpu_quota == _NO_LIMIT else str(resources.cpu_quota)
        yield "cpu", "cpu.cfs_quota_us", "cpu.max", quota  # without a second number the period stays
    for size, limit in resources.hugepage_limits.items():
        yield "hugetlb", f"hugetlb.{size}.limit_in_bytes", f"hugetlb.{size}.max", str(limit)


def _slices(name: str) -> list[str]:
    """Return a slice and its parents, from the root: `a-b.slice` is in `a.slice`."""
    parts = [part for part in name.removesuffix(_SLICE).split("-") if part]
    return ["-".join(parts[: end + 1]) + _SLICE for end in range(len(parts))]


def _write(path: Path, text: str) -> None:
    try:
        handle = os.open(path, os.O_WRONLY | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            os.write(handle, text.encode())
        finally:
            os.close(handle)
    except OSError as error:
        if error.errno in _GONE and not path.parent.is_dir():
            return
        raise HardwareError(f"cannot write {text!r} to {path}: {error.strerror}") from error
