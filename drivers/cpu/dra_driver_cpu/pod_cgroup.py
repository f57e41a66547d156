"""The cgroup of a pod: limits that the kubelet sets for a pod as a whole, without knowledge of claims.

The container runtime applies what a driver answers to the cgroups of containers only. The kubelet limits the cgroup of
the pod too: to the huge pages that its containers name as resources, so to none of those that it claims, and to the CPU
time of their limits. These limits must be raised, or those of the containers have no effect.

With cgroup v1 each controller has a hierarchy of its own. A file that does not exist belongs to a controller that is
turned off, so it limits nothing. In a container, the host's `/sys/fs/cgroup` must be mounted.

Sources: Documentation/admin-guide/cgroup-v1/hugetlb.rst and cgroup-v2.rst; `hugetlb.<size>.rsvd` limits reservations,
so a program that asks for too much fails in mmap instead of being killed. Kubelet: `ResourceConfigForPod`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock
from typing import Final

from dra_sdk import HardwareError, PodSandbox
from dra_sdk.hardware import read_text
from dra_sdk.hardware.node_access import NodeAccess

_NO_LIMIT: Final = "max"
_HUGEPAGES: Final = {1: "limit_in_bytes", 2: "max"}
_UNLIMITED: Final = 1 << 62  # cgroup v1 writes a number of about 2^63
_QUOTA: Final = {1: ("cpu.cfs_quota_us", "-1"), 2: ("cpu.max", _NO_LIMIT)}


@dataclass(frozen=True, slots=True)
class PodCgroup:
    """The cgroup of `pod`.

    node: the node.
    pod: the pod, whose `cgroup_parent` is a path, or with systemd also the name of a slice alone.
    """

    node: NodeAccess
    pod: PodSandbox

    def hugepage_files(self, page_size: str) -> Iterator[Path]:
        """The files with the limits of huge pages of a size, such as `2MB`. Raises HardwareError."""
        version, directory = self._directory("hugetlb")
        if directory is not None:
            names = (f"hugetlb.{page_size}.{rsvd}{_HUGEPAGES[version]}" for rsvd in ("", "rsvd."))
            yield from (directory / name for name in names if (directory / name).exists())

    def remove_quota(self) -> None:
        """Remove the CFS quota of the pod. Raises HardwareError and WriteError."""
        version, directory = self._directory("cpu")
        name, text = _QUOTA[version]
        if directory is not None and (directory / name).exists() and read_text(directory / name).split()[0] != text:
            self.node.effects.write(directory / name, text)

    def _directory(self, controller: str) -> tuple[int, Path | None]:
        """The version of cgroups, and the directory with the files of a controller; None if no hierarchy has it."""
        root = self.node.host.sys / "fs/cgroup"
        version = 2 if (root / "cgroup.controllers").exists() else 1
        hierarchy = root if version == 2 else root / controller  # noqa: PLR2004
        if version == 1 and root.is_dir() and any(root.iterdir()) and not hierarchy.exists():
            return version, None
        directory = hierarchy / _relative(self.pod.cgroup_parent)
        if not directory.is_dir():
            raise HardwareError(
                f"{self.pod}: its cgroup {directory} is not visible; mount the host's /sys/fs/cgroup into the driver"
            )
        return version, directory


class HugepageLimits:
    """Raises the limits of pods by the huge pages that they claim.

    The kubelet's own limit is the first value that a file has, and it is remembered as long as the cgroup exists. After
    a restart of the driver, a second sandbox of the same pod may raise the limit once more than needed; the limits of
    its containers are exact all the same.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._of_kubelet: dict[Path, float] = {}

    def add(self, cgroup: PodCgroup, claimed: Mapping[str, int]) -> None:
        """Limit a pod to what the kubelet set and `claimed` bytes by page size. Raises HardwareError and WriteError."""
        with self._lock:
            self._of_kubelet = {path: limit for path, limit in self._of_kubelet.items() if path.exists()}
            for path, size in self._files(cgroup, claimed):
                before = self._of_kubelet.setdefault(path, _read_limit(path))
                self._raise_to(cgroup, path, before + size)

    def ensure(self, cgroup: PodCgroup, claimed: Mapping[str, int]) -> None:
        """Limit a pod to at least `claimed` bytes: its sandbox may have started while the driver was away."""
        with self._lock:
            for path, size in self._files(cgroup, claimed):
                self._raise_to(cgroup, path, size)

    @staticmethod
    def _files(cgroup: PodCgroup, claimed: Mapping[str, int]) -> Iterator[tuple[Path, int]]:
        return ((path, size) for page_size, size in claimed.items() for path in cgroup.hugepage_files(page_size))

    @staticmethod
    def _raise_to(cgroup: PodCgroup, path: Path, limit: float) -> None:
        if _read_limit(path) < limit:
            cgroup.node.effects.write(path, f"{limit:.0f}")


def _read_limit(path: Path) -> float:
    """A limit in bytes; infinity without one."""
    text = read_text(path)
    limit = math.inf if text == _NO_LIMIT else int(text)
    return limit if limit < _UNLIMITED else math.inf


def _relative(parent: str) -> Path:
    """The directory of a pod's cgroup below a hierarchy: systemd keeps `a-b.slice` in `a.slice`."""
    found = Path(parent.strip("/"))
    if not parent.strip("/") or ".." in found.parts:
        raise HardwareError(f"cgroup parent {parent!r}: must be a path below the root of the cgroups")
    if "/" in parent or found.suffix != ".slice":
        return found
    words = found.stem.split("-")
    return Path(*("-".join(words[:count]) + ".slice" for count in range(1, len(words) + 1)))
