"""What containerd, the CNI plugins and the kubelet leave outside the cluster's folder, and how to find which is ours.

Their paths are built into the programs: cgroups under `/k8s.io`, shim sockets in `/run/containerd/s`, CNI results in
`/var/lib/cni/results`, links to logs in `/var/log/containers`, the kubelet's device-plugin folder, some sysctls.
"""

from __future__ import annotations

import json
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from . import mounts
from .errors import HarnessError
from .patience import PATIENCE
from .processes import Process

if TYPE_CHECKING:
    from collections.abc import Iterable

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
"""What the kubelet sets for itself and the pod network turns on."""
_SHIM_ADDRESS_FILES = ("bootstrap.json", "address")


def container_ids(tasks: Path) -> list[str]:
    """Returns the ids of the containers and pod sandboxes containerd has a folder for."""
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
    """Returns where cgroup hierarchies are mounted: one with version 2, several with version 1."""
    known = mounts.parse(mounts.MOUNTINFO.read_text())
    return [mount.point for mount in known if mount.kind in {"cgroup", "cgroup2"}]


def processes_in(cgroups: Iterable[Path]) -> list[Process]:
    """Returns the processes of these cgroups: all of a container's, whatever they did to their environment."""
    found: dict[int, Process] = {}
    for cgroup in cgroups:
        with suppress(OSError):  # the cgroup went with its last process; a threaded one refuses the read
            for pid in map(int, (cgroup / "cgroup.procs").read_text().split()):
                process = Process.of(pid)
                if process is not None:
                    found[pid] = process
    return list(found.values())


def remove_cgroups(cgroups: list[Path], roots: Iterable[Path] | None = None) -> None:
    """Removes empty cgroups, children first; a process that was just killed keeps its own for a moment."""
    deadline = time.monotonic() + PATIENCE
    for cgroup in cgroups:
        while cgroup.is_dir():
            try:
                cgroup.rmdir()
            except OSError as error:
                if time.monotonic() > deadline:
                    raise HarnessError(f"cannot remove cgroup {cgroup}: {error.strerror}") from error
                time.sleep(0.05)
    # with containers of another containerd in it, the parent stays
    _remove_empty(*(root / CGROUP_PARENT for root in (cgroup_roots() if roots is None else roots)))


def shim_sockets(tasks: Path) -> list[Path]:
    """Returns the sockets of container shims, whose addresses containerd notes beside each container."""
    found = set()
    for folder in tasks.iterdir() if tasks.is_dir() else ():
        for name in _SHIM_ADDRESS_FILES:
            with suppress(FileNotFoundError):
                found.add(shim_address((folder / name).read_text()))
    return sorted(path for path in found if path is not None)


def shim_address(text: str) -> Path | None:
    """Reads a shim's address, `unix://<path>` or JSON with that as `address`; None for anything else."""
    if text.startswith("{"):
        with suppress(ValueError):
            text = str(json.loads(text).get("address", ""))
    return Path(text.strip().removeprefix("unix://")) if text.startswith("unix:///") else None


def remove_shim_sockets(sockets: list[Path], folder: Path = SHIM_SOCKETS) -> None:
    """Removes sockets of dead shims, and containerd's folder for them if nothing else is in it."""
    for path in sockets:
        path.unlink(missing_ok=True)
    _remove_empty(folder, folder.parent)


def remove_network_results(network: str, ids: Iterable[str], results: Path = CNI_RESULTS) -> None:
    """Removes what the CNI library remembers about `network` and about containers, and its folders if nothing is left.

    The loopback network of all clusters has one name; its files are told apart by the containers' ids.
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
    """Removes the kubelet's device-plugin socket and checkpoint; the kubelet knows no other place for them."""
    for name in _DEVICE_PLUGIN_FILES:
        (folder / name).unlink(missing_ok=True)
    _remove_empty(folder, folder.parent)


def read_sysctls(root: Path = Path("/proc/sys")) -> dict[str, str]:
    """Returns the values of SYSCTLS."""
    return {name: (root / name).read_text().strip() for name in SYSCTLS if (root / name).is_file()}


def restore_sysctls(values: dict[str, str], root: Path = Path("/proc/sys")) -> None:
    """Writes back the values that differ."""
    for name, value in values.items():
        if (root / name).read_text().strip() != value:
            (root / name).write_text(value)


def _remove_empty(*folders: Path) -> None:
    for folder in folders:
        with suppress(OSError):  # in use by others, or already gone
            folder.rmdir()
