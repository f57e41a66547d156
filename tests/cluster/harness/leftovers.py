"""What a cluster leaves on the machine: mounts, and what its programs write outside the cluster's folder.

These paths are built into containerd, the CNI plugins and the kubelet: cgroups under `/k8s.io`, shim sockets in
`/run/containerd/s`, CNI results in `/var/lib/cni/results`, links to logs in `/var/log/containers`, the kubelet's
device-plugin folder, and some sysctls. Each function here finds what belongs to one cluster and removes only that.
"""

from __future__ import annotations

import json
import re
import subprocess
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from .errors import HarnessError
from .processes import Process
from .waiting import poll

if TYPE_CHECKING:
    from collections.abc import Iterable

MOUNTINFO = Path("/proc/self/mountinfo")
CGROUP_PARENT = "k8s.io"
SHIM_SOCKETS = Path("/run/containerd/s")
CNI_RESULTS = Path("/var/lib/cni/results")
CONTAINER_LOGS = Path("/var/log/containers")
DEVICE_PLUGINS = Path("/var/lib/kubelet/device-plugins")
_DEVICE_PLUGIN_FILES = ("kubelet.sock", "DEPRECATION", "kubelet_internal_checkpoint")
SYSCTLS = (
    *("kernel/panic", "kernel/panic_on_oops", "kernel/keys/root_maxkeys", "kernel/keys/root_maxbytes"),
    *("vm/overcommit_memory", "vm/panic_on_oom", "net/ipv4/ip_forward"),
)
"""The sysctls that the kubelet sets and the pod network turns on."""
_ESCAPE = re.compile(r"\\([0-7]{3})")
_SHIM_ADDRESS_FILES = ("bootstrap.json", "address")


@dataclass(frozen=True)
class Mount:
    """One line of mountinfo.

    point: where it is mounted.
    kind: the type of the file system.
    options: the options of the file system.
    """

    point: Path
    kind: str
    options: tuple[str, ...]


def parse_mounts(text: str) -> list[Mount]:
    """Reads /proc/<pid>/mountinfo (proc(5)), which writes blanks in paths as octal escapes."""
    mounts = []
    for line in text.splitlines():
        before, _, after = line.partition(" - ")
        point = _ESCAPE.sub(lambda match: chr(int(match[1], 8)), before.split(" ")[4])
        kind, _, options = after.split(" ", 2)
        mounts.append(Mount(Path(point), kind, tuple(options.split(","))))
    return mounts


def mounts_below(root: Path, mounts: list[Mount]) -> list[Path]:
    """Returns the mount points at and below `root`, in the order in which they can be unmounted."""
    return [mount.point for mount in reversed(mounts) if mount.point == root or root in mount.point.parents]


def unmount_all(root: Path) -> None:
    """Unmounts everything at and below `root`; HarnessError if a mount stays.

    Nothing may stay, because the folder is deleted next: through a bind mount of a volume, that would delete the
    machine's own files.
    """
    for point in mounts_below(root, parse_mounts(MOUNTINFO.read_text())):
        if subprocess.run(["umount", str(point)], capture_output=True, check=False).returncode != 0:
            # A process outside the cluster uses it: detach it now, and the kernel frees it when that process leaves.
            subprocess.run(["umount", "--lazy", str(point)], capture_output=True, check=False)
    if left := mounts_below(root, parse_mounts(MOUNTINFO.read_text())):
        raise HarnessError(f"cannot unmount {', '.join(map(str, left))}")


def container_ids(tasks: Path) -> list[str]:
    """Returns the ids of the containers and pod sandboxes for which containerd has a folder."""
    return [folder.name for folder in tasks.iterdir()] if tasks.is_dir() else []


def cgroups_of(ids: Iterable[str], roots: Iterable[Path] | None = None) -> list[Path]:
    """Returns the cgroups of containers in every hierarchy, children first."""
    hierarchies = cgroup_roots() if roots is None else list(roots)
    found: list[Path] = []
    for identity in ids:
        for root in hierarchies:
            top = root / CGROUP_PARENT / identity
            if top.is_dir():
                found += [*sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True), top]
    return found


def cgroup_roots() -> list[Path]:
    """Returns where cgroup hierarchies are mounted: one of version 2, or several of version 1."""
    return [mount.point for mount in parse_mounts(MOUNTINFO.read_text()) if mount.kind in {"cgroup", "cgroup2"}]


def processes_in(cgroups: Iterable[Path]) -> list[Process]:
    """Returns the processes of these cgroups. It finds those of a container that changed their environment, too."""
    found: dict[int, Process] = {}
    for cgroup in cgroups:
        with suppress(OSError):  # the cgroup ended with its last process; a threaded one refuses the read
            for pid in map(int, (cgroup / "cgroup.procs").read_text().split()):
                process = Process.of(pid)
                if process is not None:
                    found[pid] = process
    return list(found.values())


def remove_cgroups(cgroups: list[Path], roots: Iterable[Path] | None = None) -> None:
    """Removes empty cgroups, children first. A process that was just killed keeps its cgroup for a moment."""
    for cgroup in cgroups:
        if not poll(partial(_is_removed, cgroup)):
            raise HarnessError(f"cannot remove cgroup {cgroup}: it still has processes or children")
    # The parent stays if it has containers of another containerd.
    _remove_empty(*(root / CGROUP_PARENT for root in (cgroup_roots() if roots is None else roots)))


def shim_sockets(tasks: Path) -> list[Path]:
    """Returns the sockets of container shims; containerd writes their addresses beside each container."""
    found = set()
    for folder in tasks.iterdir() if tasks.is_dir() else ():
        for name in _SHIM_ADDRESS_FILES:
            with suppress(FileNotFoundError):
                found.add(shim_address((folder / name).read_text()))
    return sorted(path for path in found if path is not None)


def shim_address(text: str) -> Path | None:
    """Reads a shim's address: `unix://<path>`, or JSON with that as `address`. None for anything else."""
    if text.startswith("{"):
        with suppress(ValueError):
            text = str(json.loads(text).get("address", ""))
    return Path(text.strip().removeprefix("unix://")) if text.startswith("unix:///") else None


def remove_shim_sockets(sockets: list[Path], folder: Path = SHIM_SOCKETS) -> None:
    """Removes sockets of dead shims, and containerd's folder for them if it is empty then."""
    for path in sockets:
        path.unlink(missing_ok=True)
    _remove_empty(folder, folder.parent)


def remove_network_results(network: str, ids: Iterable[str], results: Path = CNI_RESULTS) -> None:
    """Removes the results that the CNI library keeps for `network` and for containers, and its folders if empty then.

    The loopback networks of all clusters have one name. The containers' ids tell their files apart.
    """
    ours, known = re.compile(rf"{re.escape(network)}-([0-9a-f]{{64}})-\w+"), set(ids)
    names = [path.name for path in results.glob("*")]
    known.update(match[1] for match in map(ours.fullmatch, names) if match)
    for name in names:
        if any(identity in name for identity in known):
            (results / name).unlink(missing_ok=True)
    _remove_empty(results, results.parent)


def remove_log_links(logs: Path, folder: Path = CONTAINER_LOGS) -> None:
    """Removes links to container logs below `logs`."""
    for link in folder.glob("*.log"):
        if link.is_symlink() and logs in link.readlink().parents:
            link.unlink(missing_ok=True)
    _remove_empty(folder)


def remove_device_plugins(folder: Path = DEVICE_PLUGINS) -> None:
    """Removes the kubelet's device-plugin socket and checkpoint; their path is built into the kubelet."""
    for name in _DEVICE_PLUGIN_FILES:
        (folder / name).unlink(missing_ok=True)
    _remove_empty(folder, folder.parent)


def read_sysctls(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Returns the values of SYSCTLS."""
    return {name: (root / name).read_text().strip() for name in SYSCTLS if (root / name).is_file()}


def restore_sysctls(values: dict[str, str], root: Path = Path("/proc/sys")) -> None:
    """Sets the sysctls that have another value now."""
    for name, value in values.items():
        if (root / name).read_text().strip() != value:
            (root / name).write_text(value)


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):  # not empty, or already removed
            folder.rmdir()


def _is_removed(cgroup: Path) -> bool:
    with suppress(OSError):  # it still has a process
        cgroup.rmdir()
    return not cgroup.is_dir()
