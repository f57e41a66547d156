"""The cgroup of a container: its CPUs, memory nodes, CPU quota and huge pages, with cgroup v1 and v2.

A container runtime states the cgroup as the OCI runtime specification has it: `/kubepods/pod1/abc` for cgroupfs, or
`kubepods-pod1.slice:cri-containerd:abc` for systemd, which is the scope `cri-containerd-abc.scope` in that slice. A
slice alone, such as that of a pod, is a cgroup too.

The host's hierarchies are where systemd and container runtimes have them, in `/sys/fs/cgroup`. In a pod, that is a
mount of the host's: its own is the cgroup of its own container, in which no other container is.

Source: cgroups(7); cpuset(7); Documentation/admin-guide/cgroup-v2.rst; systemd.slice(5); OCI runtime specification.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from dra_sdk.errors import HardwareError
from dra_sdk.hardware.cpuset import format_cpuset
from dra_sdk.hardware.host import entries, exists, is_directory, read_optional, read_text
from dra_sdk.model.container import ContainerResources
from dra_sdk.model.driver import Host

ROOT: Final = "/sys/fs/cgroup"
"""Where a host has its hierarchies."""
_CONTROLLERS: Final = "cgroup.controllers"
_SLICE: Final = ".slice"
_SYSTEMD_PARTS: Final = 3  # slice:prefix:name
_GONE: Final = frozenset({errno.ENOENT, errno.ENODEV})
_NO_LIMIT: Final = -1


@dataclass(frozen=True, slots=True)
class Hierarchy:
    """A hierarchy of cgroups of a host.

    root: its root.
    is_v2: whether it is that of cgroup v2.
    """

    root: Path
    is_v2: bool

    @classmethod
    def find(cls, host: Host, controller: str) -> Self | None:
        """Return the hierarchy that has a controller; None without it. HardwareError if there are no hierarchies.

        With cgroup v1 each controller has one, or several as in `cpu,cpuacct`; cgroup v2 may stand beside them.
        """
        root = host.sys / "fs/cgroup"
        if exists(root / _CONTROLLERS):
            return cls(root, True)
        names = entries(root)
        if not names:
            raise HardwareError(f"{root} has no hierarchies of cgroups: mount the host's {ROOT} into the driver")
        of_v1 = next((name for name in names if controller in name.split(",")), None)
        if of_v1 is not None:
            return cls(root / of_v1, False)
        unified = root / "unified"
        has_it = controller in (read_optional(read_text, unified / _CONTROLLERS) or "").split()
        return cls(unified, True) if has_it else None


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
        hierarchy of a controller or the cgroups of pods in it, or if the path leads out of the hierarchy.
        """
        for controller, of_v1, of_v2, value in _values(resources):
            hierarchy = Hierarchy.find(self.host, controller)
            if hierarchy is None:
                raise HardwareError(f"{self.host.sys}/fs/cgroup has no hierarchy with the controller {controller}")
            directory = self.directory(hierarchy)
            if not is_directory(directory):
                return False
            name, text = (of_v2, value) if hierarchy.is_v2 else (of_v1, str(_NO_LIMIT) if value == "max" else value)
            _write(directory / name, text)
        return True

    def directory(self, hierarchy: Hierarchy) -> Path:
        """Return its directory in a hierarchy, whether it is there or not.

        HardwareError if it would be outside, or if not even the cgroup that has those of all pods is there.
        """
        first, *others = parts = self.below_root.split("/")
        if ".." in parts or not self.below_root:
            raise HardwareError(f"{self.path!r} is not the cgroup of a container or pod")
        if others and not is_directory(hierarchy.root / first):
            raise HardwareError(f"{hierarchy.root} has no {first}: mount the host's {ROOT} into the driver")
        return hierarchy.root / self.below_root


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
        if error.errno in _GONE and not is_directory(path.parent):
            return
        raise HardwareError(f"cannot write {text!r} to {path}: {error.strerror}") from error
