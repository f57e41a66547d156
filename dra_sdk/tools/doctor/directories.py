"""The directories that a driver writes to, and how the host's root is mounted."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from dra_sdk.tools.doctor.diagnosis import Diagnosis, NodePaths

_MOUNTS: Final = "proc/1/mountinfo"
_POINT: Final = 4
_OPTIONAL: Final = 6
"""Where a line of mountinfo has the mount point, and where its optional fields begin: proc_pid_mountinfo(5)."""


def directories(paths: NodePaths) -> Iterator[Diagnosis]:
    """Yield the directories that a driver writes to.

    Outside a pod one may be absent, if the directory that it is in is there: it is made when a driver is installed.
    """
    made = not paths.in_pod
    yield _writable(
        paths.registry,
        "the kubelet makes it: name its root directory with --kubelet-dir, or mount it into the pod",
        made=made and paths.registry.name != "plugins_registry",
    )
    yield _writable(
        paths.plugins,
        "mount plugins/DRIVER of the kubelet's directory into the pod, or name it: --kubelet-dir",
        made=made,
    )
    yield _writable(paths.cdi, "mount it into the pod, or name it: --cdi-dir", made=made)


def _writable(path: Path, remedy: str, *, made: bool) -> Diagnosis:
    subject = f"directory {path}"
    try:
        mode = path.stat().st_mode
    except FileNotFoundError:
        if made and path.parent.is_dir():
            return Diagnosis("ok", subject, "does not exist yet; it is made when a driver is installed")
        return Diagnosis("missing", subject, "does not exist", remedy)
    except OSError as error:
        return Diagnosis("unknown", subject, error.strerror or str(error), "run it as root")
    if not stat.S_ISDIR(mode):
        return Diagnosis("missing", subject, "is no directory", remedy)
    if not os.access(path, os.W_OK | os.X_OK):
        return Diagnosis("missing", subject, f"user {os.geteuid()} may not write there", "run the driver as root")
    return Diagnosis("ok", subject, "can be written")


def shared_root(paths: NodePaths, *, needed: bool) -> Iterator[Diagnosis]:
    """Check that the host's / is a shared mount, which a pod must have that mounts for the host (`Bidirectional`).

    Nothing is yielded where the host's mounts are not visible: in a pod without the host's root.
    needed: whether a driver of this node has such a pod.
    """
    if paths.in_pod and paths.root == Path("/"):
        return
    file, subject = paths.root / _MOUNTS, "the host's / as a shared mount"
    try:
        lines = file.read_text().splitlines()
    except OSError as error:
        yield Diagnosis("unknown", subject, f"cannot read {file}: {error.strerror}", "run it as root on the node")
        return
    mounts = [fields for line in lines if len(fields := line.split()) > _OPTIONAL and fields[_POINT] == "/"]
    if any(field.startswith("shared:") for fields in mounts[-1:] for field in fields[_OPTIONAL:]):
        yield Diagnosis("ok", subject, "it is one")
        return
    found = "it is private, so the kubelet starts no pod that mounts for the host, such as that of dra.net"
    if not needed:
        yield Diagnosis("ok", subject, f"{found}; no other driver minds")
        return
    remedy = "mount --make-rshared / on the node, at each boot before the kubelet; systemd does it by itself"
    yield Diagnosis("missing", subject, found, remedy)
