"""A pod with memory of this machine, and a pod with an AMD GPU, which a tree of files stands for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from dra_driver_amd.testing import DRM_MAJOR, KFD_MAJOR, RX7900XTX, write_gpus

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.layout import Layout
from tests.cluster.manifests import JSON, claim, device_class, pod_with, request
from tests.cluster.pods import logs, read_pod

SHOW_NODES = """
for node in /dev/kfd /dev/dri/*; do stat -c '%n %t %T' $node; done
echo done; trap 'exit 0' TERM; sleep 3600 & wait
"""


@pytest.mark.core
def test_a_pod_gets_memory_of_the_numa_node_of_its_claim(cluster: Cluster, drivers: Drivers) -> None:
    driver = drivers.start("memory", "dra.memory", "--nri-socket", str(cluster.nri_socket))
    driver.wait(lambda: "connected to containerd" in driver.log_since_start())
    wanted = request("memory", "dra.memory", capacity={"requests": {"size": "64Mi"}})
    run_with(cluster, driver, "remembering", wanted)
    assert oci_spec(cluster, "remembering")["linux"]["resources"]["cpu"]["mems"] == "0"
    release(cluster, driver, "remembering")


@pytest.mark.core
def test_a_pod_gets_an_amd_gpu(
    cluster: Cluster, drivers: Drivers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = write_gpus(tmp_path / "host", [RX7900XTX])
    boot_id = Path("/proc/sys/kernel/random/boot_id")
    (host.root / boot_id.parent.relative_to("/")).mkdir(parents=True, exist_ok=True)
    shutil.copy(boot_id, host.root / boot_id.relative_to("/"))
    monkeypatch.setenv("DRA_SDK_HOST_ROOT", str(host.root))
    driver = drivers.start("gpu-amd", "gpu.amd.com")
    run_with(cluster, driver, "drawing", request("gpu", "gpu.amd.com"), command=SHOW_NODES)
    numbers = {"/dev/kfd": (KFD_MAJOR, 0), "/dev/dri/card1": (DRM_MAJOR, 1), "/dev/dri/renderD128": (DRM_MAJOR, 128)}
    shown = [f"{path} {major:x} {minor:x}" for path, (major, minor) in numbers.items()]
    assert logs(cluster, "drawing").splitlines() == [*shown, "done"]
    release(cluster, driver, "drawing")


def run_with(cluster: Cluster, driver: DriverUnderTest, name: str, wanted: JSON, **options: str) -> None:
    """Run a pod with a claim of its own for this request; there is a DeviceClass with the driver's name."""
    cluster.apply(device_class(driver.name, driver.name))
    one = claim(name, [wanted])
    cluster.apply(one, pod_with(name, one, **options))  # type: ignore[arg-type]
    cluster.wait_pod(name)
    assert len(driver.held()) == len(driver.specs()) == 1


def release(cluster: Cluster, driver: DriverUnderTest, name: str) -> None:
    """Delete the pod and its claim; the driver holds nothing then."""
    cluster.kubectl("delete", "pod,resourceclaim", name)
    driver.wait_free()


def oci_spec(cluster: Cluster, name: str) -> JSON:
    """What containerd asked the OCI runtime for, of a pod's only container."""
    (status,) = read_pod(cluster, name)["status"]["containerStatuses"]
    bundle = Layout.of(cluster.name).tasks / status["containerID"].removeprefix("containerd://")
    return dict(json.loads((bundle / "config.json").read_text()))
