"""An XID appears in the status of the pod with the GPU, in slices and in `dra-sdk top`; other devices stay healthy."""

from __future__ import annotations

import subprocess
import sys

import pytest
from dra_driver_gpu.nvml.values import EventType, RecoveryAction

from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request, where
from tests.cluster.pods import allocated, device_health
from tests.cluster.test_gpu.gpus import NAME, Gpus
from tests.cluster.test_gpu.tree import H100, L4

XID = EventType.XID_CRITICAL_ERROR
HEALTHY = ("Healthy", "")
HALT = "XID 62 (internal microcontroller halt)"
NAMED = "a kubelet before 1.36 reports no health of a claim that its pod calls by another name"


def device_of(cluster: Cluster, name: str, device_class: str, condition: str) -> str:
    """Runs a new pod; returns its device."""
    made = claim(name, [request("gpu", device_class, **where(f'device.attributes["{NAME}"].{condition}'))])
    cluster.apply(made, pod_with(name, made))
    cluster.wait_pod(name)
    return str(allocated(cluster, name)[0]["device"])


def top(cluster: Cluster) -> dict[str, list[str]]:
    """Returns the devices of `dra-sdk top`, with the words of each line."""
    command = [sys.executable, "-m", "dra_sdk.cli.main", "top", "--kubeconfig", str(cluster.kubeconfig)]
    lines = subprocess.run(command, check=True, capture_output=True, text=True).stdout.splitlines()
    return {words[1]: words for line in lines if len(words := line.split()) > 1}


@pytest.mark.kubernetes(since=36, because=NAMED)
def test_an_xid_concerns_its_gpu_and_its_mig_device(cluster: Cluster, gpus: Gpus) -> None:
    small = 'profile == "1g.10gb"'
    pods = {name: device_of(cluster, name, "mig.nvidia.com", small) for name in ("cut", "next")}
    pods["whole"] = device_of(cluster, "whole", NAME, f'uuid == "{L4.uuid}"')
    wait_health(cluster, cut=HEALTHY, next=HEALTHY, whole=HEALTHY)

    (instance,) = [
        each for each in gpus.gpu_instances() if pods["cut"].endswith(f"-{each.row.id}-{each.placement.start}")
    ]
    gpus.nvml.inject_event(H100.uuid, XID, 62, gpu_instance_id=instance.id, compute_instance_id=0)
    gpus.nvml.inject_event(L4.uuid, XID, 62)
    wait_health(cluster, cut=ill(HALT), whole=ill(HALT), next=HEALTHY)
    gpus.driver.wait(lambda: taint(gpus, pods["cut"]) == taint(gpus, pods["whole"]) == ["NoSchedule"])
    assert taint(gpus, pods["next"]) == []
    shown = top(cluster)
    assert {name for name, device in pods.items() if "unhealthy" in shown[device]} == {"cut", "whole"}

    gpus.nvml.set_recovery_action(L4.uuid, RecoveryAction.GPU_RESET)
    wait_health(cluster, whole=ill(f"the driver asks for GPU_RESET; {HALT}"))
    gpus.nvml.set_recovery_action(L4.uuid, RecoveryAction.NONE)
    wait_health(cluster, whole=HEALTHY)
    gpus.driver.wait(lambda: taint(gpus, pods["whole"]) == [])
    wait_health(cluster, cut=ill(HALT), next=HEALTHY)
    assert "unhealthy" not in top(cluster)[pods["whole"]]


def ill(words: str) -> tuple[str, str]:
    return "Unhealthy", words


def wait_health(cluster: Cluster, **expected: tuple[str, str]) -> None:
    """Waits until the status of each pod has this health of its device."""
    for name, health in expected.items():
        cluster.wait_until(
            lambda name=name, health=health: device_health(cluster, name) == [health], f"health of {name}: {health}"
        )


def taint(gpus: Gpus, device: str) -> list[str]:
    """Returns the effects of the taint for XID 62; none if the device is not tainted."""
    taints = gpus.device(device).get("taints", [])
    return [each["effect"] for each in taints if (each["key"], each.get("value")) == (f"{NAME}/xid", "62")]
