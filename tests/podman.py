"""podman with crun: a second container runtime, which reads CDI specs of one directory and leaves nothing behind."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Sequence
from pathlib import Path

# podman before 5 reads CDI specs from /etc/cdi and /run/cdi only. So it gets a mount namespace with an empty /run that
# has only the specs of the test. Its locks and cgroups are hidden from the machine in the same way.
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


def run_container(folder: Path, specs: Path, devices: Sequence[str], system: Path, *command: str) -> str:
    """Returns what a command prints in a container with these CDI devices.

    folder: for podman's files.
    specs: the directory with CDI specs.
    system: the root file system of the container.
    """
    named = [f"--device={name}" for name in devices]
    podman = [*PODMAN, f"--root={folder / 'storage'}", *RUN, *named, "--rootfs", str(system), *command]
    arrange = ARRANGE.format(specs=shlex.quote(str(specs)))
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", arrange, "sh", *podman], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
    return done.stdout
