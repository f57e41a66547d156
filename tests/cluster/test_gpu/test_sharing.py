"""Claims of several pods share one GPU by memory: the scheduler counts, the driver sets up the GPU once."""

from __future__ import annotations

import pytest

from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request, where
from tests.cluster.pods import allocated, given_shares, known_shares, shares, wait_unschedulable
from tests.cluster.test_gpu.gpus import NAME, Gpus, shared
from tests.cluster.test_gpu.seen import LOOK, look
from tests.cluster.test_gpu.tree import CONTROL, L4


@pytest.fixture
def settings() -> dict[str, str]:
    return {"DRA_GPU_SHARING": "memory"}


def start(cluster: Cluster, name: str) -> None:
    """Creates a pod and its claim for 10 of the 22.5 GiB of a GPU, both of this name."""
    ten = {"capacity": {"requests": {"memory": "10Gi"}}}
    wanted = request("gpu", NAME, **where(f'device.attributes["{NAME}"].uuid == "{L4.uuid}"'), **ten)
    made = claim(name, [wanted], [shared("TimeSlicing", timeSlicingConfig={"interval": "Short"})])
    cluster.apply(made, pod_with(name, made, command=LOOK))


def test_two_claims_share_a_gpu_and_the_third_waits(cluster: Cluster, gpus: Gpus) -> None:
    before = gpus.device_state()
    for name in ("a", "b"):
        start(cluster, name)
        cluster.wait_pod(name)
        assert shares(cluster, name) == known_shares(cluster, name)
        assert allocated(cluster, name)[0]["consumedCapacity"] == {"memory": "10Gi"}
        assert look(cluster, name).nodes == {**CONTROL, "/dev/nvidia1": (195, 1)}
    assert given_shares(cluster, "a") != given_shares(cluster, "b")
    assert len(gpus.driver.specs()) == 2
    start(cluster, "c")
    wait_unschedulable(cluster, "c")

    cluster.kubectl("delete", "pod,resourceclaim", "a")
    cluster.wait_pod("c")
    cluster.kubectl("delete", "pod,resourceclaim", "b")
    gpus.driver.wait(lambda: len(gpus.driver.held()) == 1)
    assert gpus.slices_set() == {L4.uuid: "1"}
    cluster.kubectl("delete", "pod,resourceclaim", "c")
    gpus.driver.wait_free()
    assert gpus.slices_set() == {}
    assert gpus.device_state() == before


@pytest.mark.parametrize("settings", [{"DRA_GPU_SHARING": "3"}])
def test_claims_share_a_mig_device_that_is_made_for_the_first(cluster: Cluster, gpus: Gpus) -> None:
    before = gpus.device_state()
    small = where(f'device.attributes["{NAME}"].profile == "7g.80gb"')
    names = ("a", "b", "c", "d")
    for name in names:
        made = claim(name, [request("mig", "mig.nvidia.com", **small)])
        cluster.apply(made, pod_with(name, made, command=LOOK))
        if name != names[-1]:
            cluster.wait_pod(name)
    wait_unschedulable(cluster, names[-1])
    devices = [allocated(cluster, name)[0]["device"] for name in names[:-1]]
    assert devices == ["gpu-0-mig-7g80gb-0-0"] * 3
    assert len(gpus.gpu_instances()) == 1
    assert look(cluster, "a").nodes == look(cluster, "b").nodes

    cluster.kubectl("delete", "pod,resourceclaim", "a")
    cluster.wait_pod("d")
    cluster.kubectl("delete", "pod,resourceclaim", "--all")
    gpus.driver.wait_free()
    assert gpus.device_state() == before
