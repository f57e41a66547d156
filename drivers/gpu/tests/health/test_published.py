"""Health as the cluster sees it: the taint in the ResourceSlice, and the pod's status."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Thread
from typing import Any

import pytest
from dra_driver_gpu.health import HealthRules
from dra_driver_gpu.nvml.values import EventType, RecoveryAction

from dra_sdk.testing import claim, request
from dra_sdk.testing.embedded import AllocatedDevice, EmbeddedCluster, running
from dra_sdk.testing.waiting import wait

NAME = "gpu.nvidia.com"
MakeGpus = Callable[..., Any]


def tainted(cluster: EmbeddedCluster) -> dict[str, str]:
    """The keys of the devices' taints in the slices."""
    slices = cluster.api.list("resourceslices")
    devices = [device for published_slice in slices for device in published_slice["spec"].get("devices", ())]
    return {device["name"]: device["taints"][0]["key"] for device in devices if device.get("taints")}


def test_an_xid_adds_a_taint_and_a_reset_removes_it(make_gpus: MakeGpus, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = make_gpus("H100-80GB", "L4", dynamic_mig=True, passthrough=True)
    monkeypatch.setattr("dra_driver_gpu.driver.HealthRules", lambda **more: HealthRules(**more, interval=0.2))
    with running(harness.make(), harness.node.root) as cluster:
        cluster.create_class("gpu")
        cluster.create_claim("one", {"gpu": "gpu"})
        cluster.allocate("one", [AllocatedDevice("gpu", NAME, cluster.node_name, "gpu-1")])
        wait(lambda: len(cluster.api.list("resourceslices")) > 0)
        assert cluster.kubelet.wait_for_health(NAME, cluster.node_name, "gpu-1", "Healthy")
        uuid = harness.memory.gpus[1].uuid
        harness.memory.set_recovery_action(uuid, RecoveryAction.GPU_RESET)
        harness.memory.inject_event(uuid, EventType.XID_CRITICAL_ERROR, 95)
        assert cluster.kubelet.wait_for_health(NAME, cluster.node_name, "gpu-1", "Unhealthy")
        wait(lambda: tainted(cluster) == dict.fromkeys(("gpu-1", "gpu-vfio-1"), f"{NAME}/xid"))
        harness.memory.reset(uuid)
        assert cluster.kubelet.wait_for_health(NAME, cluster.node_name, "gpu-1", "Healthy")
        wait(lambda: tainted(cluster) == {})


def test_a_gpu_can_be_passed_through_while_its_health_is_watched(
    make_gpus: MakeGpus, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The monitor stops using NVML, which holds all GPUs open, and continues afterwards."""
    harness = make_gpus("L4", "L4", passthrough=True)
    monkeypatch.setattr("dra_driver_gpu.driver.HealthRules", lambda **more: HealthRules(**more, interval=0.2))
    driver, stop, reports = harness.driver.plugin, Event(), []

    def follow() -> None:
        for report in driver.dra_device_health(harness.node.node, stop):
            states = {health.device: health.status.name for health in report}
            reports.append(states)

    watcher = Thread(target=follow)
    watcher.start()
    try:
        wait(lambda: reports)
        prepared = harness.driver.prepare(claim(request("vm", device_class="vfio.gpu.nvidia.com")))
        seen = len(reports)
        wait(lambda: len(reports) > seen)
        assert "UNHEALTHY" not in {status for states in reports for status in states.values()}
        harness.driver.unprepare(prepared)
    finally:
        stop.set()
        watcher.join()
