"""A second container runtime reads the CDI specs that the driver wrote on the real cluster: podman, with crun."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

from tests.cluster import podman
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, container, lamp, pod, request
from tests.cluster.pods import logs

ENVIRONMENT = "tr '\\0' '\\n' < /proc/1/environ | grep -E '^(LAMP|BRIGHTNESS)' | sort"
LOOK = f"{ENVIRONMENT}; ls -l /dev/lamp* | cut -c1-10; ls /dev/lamp*; cat /etc/lamp*"
STAY = f"{LOOK}; echo done; trap 'exit 0' TERM; sleep 3600 & wait"


def test_podman_makes_of_a_spec_what_containerd_makes_of_it(
    cluster: Cluster, lamps: DriverUnderTest, tmp_path: Path
) -> None:
    assert shutil.which("podman"), "apt-get install podman crun"
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
        shown = podman.run_container(tmp_path / container_name, cluster.cdi_dir, devices, LOOK)
        assert "BRIGHTNESS_DESK=10" in shown
        assert shown + "done\n" == logs(cluster, "lit", container_name)
