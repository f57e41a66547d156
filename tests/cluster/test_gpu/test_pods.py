"""A pod gets a whole GPU, two by the extended resource, or a MIG device; others wait, and a monitor sees all."""

from __future__ import annotations

import json

import pytest
from dra_driver_gpu.testing.node import CAPS_MAJOR, mig_minor

from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import ADMINS, JSON, claim, container, pod, pod_with, request, where
from tests.cluster.pods import allocated, started_at, wait_unschedulable
from tests.cluster.test_gpu.gpus import NAME, Gpus, shared
from tests.cluster.test_gpu.seen import DRIVER, LOOK, Seen, look
from tests.cluster.test_gpu.tree import CONTROL, H100, L4

MONITOR = (CAPS_MAJOR, 2)


@pytest.mark.core
def test_a_pod_gets_a_gpu(cluster: Cluster, gpus: Gpus) -> None:
    before = gpus.device_state()
    wanted = request("gpu", NAME, **where(f'device.attributes["{NAME}"].architecture == "Ada Lovelace"'))
    made = claim("one-gpu", [wanted], [shared("TimeSlicing", timeSlicingConfig={"interval": "Long"})])
    cluster.apply(made, pod_with("whole", made, command=LOOK))
    cluster.wait_pod("whole")

    (result,) = allocated(cluster, "one-gpu")
    assert result["device"] == "gpu-1"
    assert gpus.device("gpu-1")["attributes"]["uuid"] == {"string": L4.uuid}
    assert gpus.slices_set() == {L4.uuid: "3"}
    seen = look(cluster, "whole")
    assert seen.nodes == {**CONTROL, "/dev/nvidia1": (195, 1)}
    assert seen.environment == DRIVER
    seen.assert_driver_files(gpus.node)

    cluster.kubectl("delete", "pod,resourceclaim", "--all")
    gpus.driver.wait_free()
    assert gpus.device_state() == before
    assert gpus.slices_set() == {}


@pytest.mark.parametrize("settings", [{"DRA_GPU_DYNAMIC_MIG": "false", "DRA_GPU_PASSTHROUGH": "false"}])
def test_a_pod_gets_gpus_by_the_extended_resource_and_a_monitor_sees_them(cluster: Cluster, gpus: Gpus) -> None:
    wanted = pod("plain", [], container("main", command=LOOK))
    wanted["spec"]["containers"][0]["resources"] = {"limits": {"nvidia.com/gpu": "2"}}
    cluster.apply(wanted)
    cluster.wait_pod("plain")
    seen = look(cluster, "plain")
    assert seen.nodes == {**CONTROL, "/dev/nvidia0": (195, 0), "/dev/nvidia1": (195, 1)}
    assert seen.environment == DRIVER
    seen.assert_driver_files(gpus.node)

    start_monitor(cluster)
    since = started_at(cluster, "plain")
    cluster.kubectl("delete", f"--namespace={ADMINS}", "pod", "monitor")
    gpus.driver.wait(lambda: len(gpus.driver.held()) == 1)
    assert started_at(cluster, "plain") == since


def test_a_gpu_is_a_mig_device_for_a_pod_and_whole_for_the_next(cluster: Cluster, gpus: Gpus) -> None:
    start_monitor(cluster)  # first, because the scheduler counts a GPU's free capacity for a monitor as well
    before = gpus.device_state()
    assert not gpus.gpu_instances()
    small = where(f'device.attributes["{NAME}"].profile == "1g.10gb"')
    part = claim("part", [request("mig", "mig.nvidia.com", **small)])
    cluster.apply(part, pod_with("part", part, command=LOOK))
    cluster.wait_pod("part")
    assert_mig_device(gpus, *allocated(cluster, "part"), look(cluster, "part"))

    whole = claim("whole", [request("gpu", NAME, **where(f'device.attributes["{NAME}"].uuid == "{H100.uuid}"'))])
    cluster.apply(whole, pod_with("whole", whole, command=LOOK))
    wait_unschedulable(cluster, "whole")
    cluster.kubectl("delete", "pod,resourceclaim", "part")
    cluster.wait_pod("whole")
    assert gpus.device_state() == before
    assert look(cluster, "whole").nodes == {**CONTROL, "/dev/nvidia0": (195, 0)}


def assert_mig_device(gpus: Gpus, result: JSON, seen: Seen) -> None:
    """Asserts that there is one MIG device, and that the container has its capabilities."""
    published = gpus.device(result["device"])["attributes"]
    assert (published["profile"], published["parentUUID"]) == ({"string": "1g.10gb"}, {"string": H100.uuid})
    (gpu_instance,) = gpus.nvml.states()[H100.uuid].instances.values()
    assert gpus.gpu_instances() == [gpu_instance]
    (compute_instance,) = gpu_instance.compute_instances.values()
    minors = mig_minor(0, gpu_instance.id), mig_minor(0, gpu_instance.id, compute_instance.id)
    capabilities = {f"/dev/nvidia-caps/nvidia-cap{minor}": (CAPS_MAJOR, minor) for minor in minors}
    assert seen.nodes == {**CONTROL, "/dev/nvidia0": (195, 0), **capabilities}
    assert seen.environment == DRIVER
    seen.assert_driver_files(gpus.node)


def start_monitor(cluster: Cluster) -> None:
    """Starts a pod with admin access to all GPUs, which can see MIG devices as well."""
    every = claim("every", [request("gpu", NAME, allocationMode="All", adminAccess=True)])
    for made in (every, pod_with("monitor", every, command=LOOK)):
        cluster.kubectl("apply", f"--namespace={ADMINS}", "-f", "-", input=json.dumps(made))
    cluster.wait_pod("monitor", namespace=ADMINS)
    assert {each["device"] for each in allocated(cluster, "every", ADMINS)} == {"gpu-0", "gpu-1"}
    nodes = {"/dev/nvidia0": (195, 0), "/dev/nvidia1": (195, 1), "/dev/nvidia-caps/nvidia-cap2": MONITOR}
    assert look(cluster, "monitor", namespace=ADMINS).nodes == {**CONTROL, **nodes}
