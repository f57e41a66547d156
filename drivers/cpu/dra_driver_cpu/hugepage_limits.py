"""The limits of huge pages that the kubelet sets for a pod as a whole, without knowledge of claims.

The container runtime applies what a driver answers to the cgroups of containers only. The kubelet limits the cgroup of
the pod too: to the huge pages that its containers name as resources, so to none of those that it claims. This limit
must be raised, or that of the container has no effect.

With cgroup v1 each controller has a hierarchy of its own. A file that does not exist belongs to a controller that is
turned off, so it limits nothing. In a container, the host's `/sys/fs/cgroup` must be mounted.

Sources: Documentation/admin-guide/cgroup-v1/hugetlb.rst and cgroup-v2.rst; `hugetlb.<size>.rsvd` limits reservations,
so a program that asks for too much fails in mmap instead of being killed. Kubelet: `ResourceConfigForPod`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from pathlib import Path
from threading import Lock
from typing import Final

from dra_sdk import HardwareError, PodSandbox
from dra_sdk.hardware import Host, read_text
from dra_sdk.hardware.container_cgroup import ContainerCgroup
from dra_sdk.hardware.node_access import NodeAccess

_NO_LIMIT: Final = "max"
_UNLIMITED: Final = 1 << 62  # cgroup v1 writes a number of about 2^63
_CONTROLLERS_OF_V2: Final = "cgroup.controllers"


class HugepageLimits:
    """Raises the limits of pods by the huge pages that they claim.

    The kubelet's own limit is the first value that a file has, and it is remembered as long as the cgroup exists. After
    a restart of the driver, the next sandbox or container of the same pod may raise it once more than needed; the
    limits of its containers are exact all the same.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._of_kubelet: dict[Path, float] = {}

    def add(self, node: NodeAccess, pod: PodSandbox, claimed: Mapping[str, int]) -> None:
        """Limit a pod to what the kubelet set and `claimed` bytes, by page size such as `2MB`.

        Raises HardwareError if the cgroup is not visible, WriteError if the kernel refuses the limit.
        """
        with self._lock:
            self._of_kubelet = {path: limit for path, limit in self._of_kubelet.items() if path.exists()}
            for path, size in _files(node.host, pod, claimed):
                before = self._of_kubelet.setdefault(path, _read_limit(path))
                _raise_to(node, path, before + size)

    def ensure(self, node: NodeAccess, pod: PodSandbox, claimed: Mapping[str, int]) -> None:
        """Limit a pod to at least `claimed` bytes: its sandbox may have started while the driver was away."""
        with self._lock:
            for path, size in _files(node.host, pod, claimed):
                _raise_to(node, path, size)


def _files(host: Host, pod: PodSandbox, claimed: Mapping[str, int]) -> Iterator[tuple[Path, int]]:
    """The files that limit the pod, each with the bytes that are claimed of its page size."""
    root = host.sys / "fs/cgroup"
    is_v2 = (root / _CONTROLLERS_OF_V2).exists()
    hierarchy = root if is_v2 else root / "hugetlb"
    if not is_v2 and root.is_dir() and any(root.iterdir()) and not hierarchy.exists():
        return  # a kernel without this controller
    directory = hierarchy / _below_root(host, pod.cgroup_parent)
    if not directory.is_dir():
        raise HardwareError(
            f"{pod}: its cgroup {directory} is not visible; mount the host's /sys/fs/cgroup into the driver"
        )
    last = "max" if is_v2 else "limit_in_bytes"
    for page_size, size in claimed.items():
        for name in (f"hugetlb.{page_size}.{last}", f"hugetlb.{page_size}.rsvd.{last}"):
            if (directory / name).exists():
                yield directory / name, size


def _raise_to(node: NodeAccess, path: Path, limit: float) -> None:
    if _read_limit(path) < limit:
        node.effects.write(path, f"{limit:.0f}")


def _read_limit(path: Path) -> float:
    """A limit in bytes; infinity without one."""
    text = read_text(path)
    limit = math.inf if text == _NO_LIMIT else int(text)
    return limit if limit < _UNLIMITED else math.inf


def _below_root(host: Host, parent: str) -> str:
    """The path of a pod's cgroup below a hierarchy."""
    found = ContainerCgroup(host, parent).below_root
    if not found or ".." in found.split("/"):
        raise HardwareError(f"cgroup parent {parent!r}: must be a path below the root of the cgroups")
    return found
