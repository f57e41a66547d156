"""A second container runtime, podman with crun, reads the CDI specs of a driver on the real cluster.

podman sees the CDI specs of one directory, and leaves nothing on the machine.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from pathlib import Path

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.debian import find_busybox
from tests.cluster.manifests import claim, container, lamp, pod, request
from tests.cluster.pods import logs

ENVIRONMENT = "tr '\\0' '\\n' < /proc/1/environ | grep -E '^(LAMP|BRIGHTNESS)' | sort"
LOOK = f"{ENVIRONMENT}; ls -l /dev/lamp* | cut -c1-10; ls /dev/lamp*; cat /etc/lamp*"
STAY = f"{LOOK}; echo done; trap 'exit 0' TERM; sleep 3600 & wait"
APPLETS = ("cat", "cut", "grep", "ls", "sh", "sort", "tr")
# podman before 5 reads CDI specs from /etc/cdi and /run/cdi only. So it gets a mount namespace with an empty /run that
# has only the specs of the cluster. Its locks and cgroups are hidden from the machine in the same way.
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


def test_podman_gives_a_container_the_same_as_containerd(
    cluster: Cluster, lamps: DriverUnderTest, tmp_path: Path
) -> None:
    requests = [request("desk", "lamp"), request("wall", "blue-lamp")]
    uses = [{"name": "lamps", "resourceClaimName": "lamps"}]
    desk = container("desk", {"name": "lamps", "request": "desk"}, command=STAY)
    both = container("both", {"name": "lamps"}, command=STAY)
    cluster.apply(claim("lamps", requests, [lamp(10), lamp(80, "wall")]), pod("lit", uses, desk, both))
    cluster.wait_pod("lit")
    (path,) = lamps.specs()
    spec = json.loads(path.read_text())
    names = [f"{spec['kind']}={device['name']}" for device in spec["devices"]]
    assert len(names) == 2
    (of_desk,) = [name for name in names if "desk" in name]

    for container_name, devices in (("desk", [of_desk]), ("both", names)):
        shown = run_container(tmp_path / container_name, cluster.cdi_dir, devices, LOOK)
        assert "BRIGHTNESS_DESK=10" in shown
        assert shown + "done\n" == logs(cluster, "lit", container_name)


def run_container(folder: Path, specs: Path, devices: list[str], script: str) -> str:
    """Returns what a shell script prints in a container with these CDI devices; `folder` is for podman's files."""
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
    """Makes a directory with busybox."""
    busybox = find_busybox()
    assert busybox is not None, "apt-get install busybox-static"
    (path / "bin").mkdir(parents=True)
    shutil.copy(busybox, path / "bin/busybox")
    for name in APPLETS:
        (path / "bin" / name).symlink_to("busybox")
    return path
