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
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from dra_sdk import HardwareError
from dra_sdk.hardware import Host, exists, file_status, is_directory, read_text
from dra_sdk.hardware.container_cgroup import ROOT, ContainerCgroup, Hierarchy
from dra_sdk.hardware.node_access import NodeAccess
from dra_sdk.hardware.records import Records
from dra_sdk.nri import PodSandbox

_NO_LIMIT: Final = "max"
_UNLIMITED: Final = 1 << 62  # cgroup v1 writes a number of about 2^63
_RECORD: Final = "hugepages"
_SECONDS: Final = 0.5  # a hook about a pod has one second


@dataclass(frozen=True)
class KubeletLimits:
    """What is remembered of pods whose limits were raised.

    limits: the kubelet's own limit in bytes of each file, by its path and the inode of its cgroup, which no later
        cgroup with that path has.
    """

    limits: Mapping[str, int] = field(default_factory=dict)


class HugepageLimits:
    """Raises the limits of pods by the huge pages that they claim.

    The kubelet's own limit is the first value that a file has. It is recorded before it is changed, so that a limit is
    the same however often the sandbox of a pod or the driver is started again.

    state_dir: the directory of the host where it is recorded.
    """

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir

    def add(self, node: NodeAccess, pod: PodSandbox, claimed: Mapping[str, int]) -> None:
        """Limit a pod to what the kubelet set and `claimed` bytes, by page size such as `2MB`.

        Raises HardwareError if the cgroup is not visible, RecordError if the limit cannot be recorded, WriteError if
        the kernel refuses it.
        """
        directory = node.local(self._state_dir) / "limits"
        records = Records(directory, KubeletLimits, node.boot_id, node.clock.within(_SECONDS))
        limited = [(path, size) for path, size in _files(node.host, pod, claimed) if _read_limit(path) < math.inf]
        if not limited:
            return
        with records.locked(_RECORD) as before:
            known = {key: limit for key, limit in before.limits.items() if _exists(key)}
            for path, _size in limited:
                known.setdefault(_key(path), int(_read_limit(path)))
            if known != before.limits:
                records.save(_RECORD, KubeletLimits(known))
            for path, size in limited:
                wanted = known[_key(path)] + size
                if _read_limit(path) < wanted:
                    node.effects.write(path, str(wanted))


def _key(path: Path) -> str:
    status = file_status(path.parent)
    return f"{path}#{status.st_ino if status else 0}"


def _exists(key: str) -> bool:
    path = Path(key.rpartition("#")[0])
    return exists(path) and _key(path) == key


def _files(host: Host, pod: PodSandbox, claimed: Mapping[str, int]) -> Iterator[tuple[Path, int]]:
    """Yield the files that limit the pod, each with the bytes that are claimed of its page size."""
    hierarchy = Hierarchy.find(host, "hugetlb")
    if hierarchy is None:
        return
    directory = ContainerCgroup(host, pod.cgroup_parent).directory(hierarchy)
    if not is_directory(directory):
        raise HardwareError(f"{pod}: its cgroup {directory} is not visible; mount the host's {ROOT} into the driver")
    last = "max" if hierarchy.is_v2 else "limit_in_bytes"
    for page_size, size in claimed.items():
        for name in (f"hugetlb.{page_size}.{last}", f"hugetlb.{page_size}.rsvd.{last}"):
            if exists(directory / name):
                yield directory / name, size


def _read_limit(path: Path) -> float:
    """Read a limit in bytes; infinity without one."""
    text = read_text(path)
    limit = math.inf if text == _NO_LIMIT else int(text)
    return limit if limit < _UNLIMITED else math.inf
