"""A GPU for a virtual machine: from the NVIDIA driver to VFIO and back. In between, the GPU itself is not published."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator

import pytest
from dra_driver_gpu.testing.node import GpuNode

from tests.cluster.features import HEALTH_IS_REPORTED_OF
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, config, pod_with, request, where
from tests.cluster.pods import allocated, device_health, wait_unschedulable
from tests.cluster.test_gpu.gpus import NAME, Gpus, parameters
from tests.cluster.test_gpu.kernel import GROUPS, MAJOR
from tests.cluster.test_gpu.seen import LOOK, VOID, look
from tests.cluster.test_gpu.tree import CONTROL, L4, make_node

METADATA = "cat /var/run/kubernetes.io/dra-device-attributes/*/*/*/*.json\n"
CONTAINER_NODE = (10, 196)
MADE_HERE = GROUPS / "made-by-a-test"


@pytest.fixture
def target() -> str:
    return "tests.cluster.test_gpu.kernel:PassthroughDriver"


@pytest.fixture
def node(node: GpuNode) -> Iterator[GpuNode]:
    """The tree with /dev/vfio/vfio, which is also on this machine, where the container runtime looks for it."""
    if MADE_HERE.exists():  # a test was killed
        shutil.rmtree(GROUPS)
    assert not GROUPS.exists(), f"{GROUPS} of this machine is in use"
    GROUPS.mkdir()
    MADE_HERE.touch()
    (node.root / "dev/vfio/vfio").unlink()
    for place in (GROUPS, node.root / "dev/vfio"):
        make_node(place / "vfio", *CONTAINER_NODE)
    yield node
    shutil.rmtree(GROUPS)


def binding(gpus: Gpus) -> tuple[str, str]:
    """Returns driver and `driver_override` of the GPU's PCI function."""
    function = gpus.node.root / "sys/bus/pci/devices" / L4.pci_address
    return (function / "driver").readlink().name, (function / "driver_override").read_text().strip()


def test_a_pod_gets_a_gpu_for_its_virtual_machine(cluster: Cluster, gpus: Gpus) -> None:
    gpus.nvml.state(L4.uuid).persistence = True
    before = gpus.device_state()
    address = f'device.attributes["resource.kubernetes.io"].pciBusID == "{L4.pci_address}"'
    iommu = {"backendPolicy": "LegacyOnly", "enableAPIDevice": True}
    made = claim(
        "vm",
        [request("gpu", "vfio.gpu.nvidia.com", **where(address))],
        [config(NAME, parameters("VfioDeviceConfig", iommu=iommu))],
    )
    cluster.apply(made, pod_with("vm", made, command=METADATA + LOOK))
    cluster.wait_pod("vm")
    (result,) = allocated(cluster, "vm")
    assert binding(gpus) == ("vfio-pci", "vfio-pci")
    assert gpus.device_state() != before
    seen = look(cluster, "vm")
    assert seen.nodes == {"/dev/vfio/21": (MAJOR, 21), "/dev/vfio/vfio": CONTAINER_NODE}
    assert seen.environment == VOID
    assert seen.files == {}
    assert_metadata(cluster, result["device"])

    whole = claim("whole", [request("gpu", NAME, **where(address))])
    cluster.apply(whole, pod_with("whole", whole, command=LOOK))
    wait_unschedulable(cluster, "whole")
    gpus.driver.wait(lambda: not gpus.device("gpu-1"))
    assert gpus.device(result["device"])
    if "other" in HEALTH_IS_REPORTED_OF:
        cluster.wait_until(lambda: device_health(cluster, "vm") == [("Healthy", "")], "health of vm")

    cluster.kubectl("delete", "pod,resourceclaim", "vm")
    cluster.wait_pod("whole")
    assert binding(gpus) == ("nvidia", "(null)")
    assert gpus.device_state() == before
    assert not (GROUPS / "21").exists()
    assert look(cluster, "whole").nodes == {**CONTROL, "/dev/nvidia1": (195, 1)}


def assert_metadata(cluster: Cluster, device: str) -> None:
    """Asserts that the container's metadata has the PCI address, which a virtual machine monitor needs."""
    metadata, _ = json.JSONDecoder().raw_decode(cluster.kubectl("logs", "vm"))
    (listed,) = metadata["requests"]
    assert [each["name"] for each in listed["devices"]] == [device]
    assert L4.pci_address in json.dumps(listed)
