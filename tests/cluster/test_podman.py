"""A second container runtime, podman with crun, reads the CDI specs of a driver on the real cluster.

podman sees the CDI specs of one directory, and leaves nothing on the machine.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.debian import find_busybox
from tests.cluster.manifests import claim, container, lamp, pod, request
from tests.cluster.pods import logs
from tests.podman import run_container

ENVIRONMENT = "tr '\\0' '\\n' < /proc/1/environ | grep -E '^(LAMP|BRIGHTNESS)' | sort"
LOOK = f"{ENVIRONMENT}; ls -l /dev/lamp* | cut -c1-10; ls /dev/lamp*; cat /etc/lamp*"
STAY = f"{LOOK}; echo done; trap 'exit 0' TERM; sleep 3600 & wait"
APPLETS = ("cat", "cut", "grep", "ls", "sh", "sort", "tr")


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
        folder = tmp_path / container_name
        system = root_file_system(folder / "system")
        shown = run_container(folder, cluster.cdi_dir, devices, system, "sh", "-c", LOOK)
        assert "BRIGHTNESS_DESK=10" in shown
        assert shown + "done\n" == logs(cluster, "lit", container_name)


def root_file_system(path: Path) -> Path:
    """Makes a directory with busybox."""
    busybox = find_busybox()
    assert busybox is not None, "apt-get install busybox-static"
    (path / "bin").mkdir(parents=True)
    shutil.copy(busybox, path / "bin/busybox")
    for name in APPLETS:
        (path / "bin" / name).symlink_to("busybox")
    return path
