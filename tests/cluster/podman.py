"""podman, run so that it sees CDI specs of one directory and leaves nothing on the machine."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from tests.cluster.harness.runtime import find_busybox

APPLETS = ("cat", "cut", "grep", "ls", "sh", "sort", "tr")
# Releases before 5 look for CDI specs in /etc/cdi and /run/cdi only. So it gets a mount namespace of its own, with an
# empty /run that has nothing but our specs; its locks and cgroups stay out of sight for the same reason.
ARRANGE = """
set -e
mount --make-rprivate /
mount --bind {specs} /mnt
mount -t tmpfs none /run
mkdir /run/cdi
mount --bind /mnt /run/cdi
mount -t tmpfs none /dev/shm
mount -t tmpfs none /sys/fs/cgroup
exec "$@"
"""
PODMAN = ["podman", "--runtime=crun", "--runroot=/run/podman", "--tmpdir=/run/podman-tmp", "--storage-driver=vfs"]
PODMAN += ["--cgroup-manager=cgroupfs", "--events-backend=none", "--network-config-dir=/run/networks"]
RUN = ["run", "--rm", "--cgroups=disabled", "--network=none", "--ulimit=nofile=256:256", "--ulimit=nproc=256:256"]


def run_container(folder: Path, specs: Path, devices: list[str], script: str) -> str:
    """What a shell script prints in a container with these CDI devices; `folder` is for podman's own files."""
    system = root_file_system(folder / "system")
    devices = [f"--device={name}" for name in devices]
    command = [*PODMAN, f"--root={folder / 'storage'}", *RUN, *devices, "--rootfs", str(system), "sh", "-c", script]
    arrange = ARRANGE.format(specs=shlex.quote(str(specs)))
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", arrange, "sh", *command], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def root_file_system(path: Path) -> Path:
    """A directory with busybox in it."""
    busybox = find_busybox()
    assert busybox is not None, "apt-get install busybox-static"
    (path / "bin").mkdir(parents=True)
    shutil.copy(busybox, path / "bin/busybox")
    for name in APPLETS:
        (path / "bin" / name).symlink_to("busybox")
    return path
