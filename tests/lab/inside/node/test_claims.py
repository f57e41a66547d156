"""A pod with a claim runs on the node, and its container gets what the driver gave it."""

from __future__ import annotations

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.lab import node_pods
from tests.lab.harness.node import LIMIT, Node


@pytest.fixture(scope="module")
def pods(node: Node, cpus: DriverUnderTest) -> tuple[str, str]:
    """Two pods with a claim of two CPUs each, which the last test deletes."""
    assert cpus.running()
    names = ("left", "right")
    for name in names:
        node_pods.create_claim(node, name, 2)
        node_pods.create(node, name, name)
    for name in names:
        node_pods.wait(node, name)
    return names


def test_the_slices_show_two_sockets_with_smt_and_a_numa_node_each(cpus: DriverUnderTest) -> None:
    (piece,) = cpus.slices()
    assert piece["spec"]["nodeName"] == "node-lab"
    assert [device["name"] for device in piece["spec"]["devices"]] == ["cpudevnuma000", "cpudevnuma001"]
    for number, device in enumerate(piece["spec"]["devices"]):
        attributes = device["attributes"]
        assert attributes["socketID"] == {"int": number}
        assert attributes["resource.kubernetes.io/numaNode"] == {"int": number}
        assert attributes["smtEnabled"] == {"bool": True}
        assert attributes["numCPUs"] == {"int": 2}


def test_two_pods_get_the_cpus_of_a_numa_node_each(node: Node, cpus: DriverUnderTest, pods: tuple[str, str]) -> None:
    given = [each for name in pods for each in node_pods.given_cpus(node, name).values()]
    assert sorted(given) == ["0-1", "2-3"]
    assert len(cpus.held()) == len(cpus.specs()) == 2


def test_they_run_on_when_the_kubelet_and_containerd_are_restarted(
    node: Node, cpus: DriverUnderTest, pods: tuple[str, str]
) -> None:
    processes, registrations = [node.container_process(name) for name in pods], cpus.registrations()
    node.stop("kubelet")
    node.kill("containerd")
    for name in ("containerd", "kubelet"):
        node.start(name)
    cpus.wait(lambda: cpus.registrations() > registrations, LIMIT)
    assert [node.container_process(name) for name in pods] == processes
    assert all(process.alive() for process in processes)


def test_they_free_their_cpus_when_they_are_deleted(node: Node, cpus: DriverUnderTest, pods: tuple[str, str]) -> None:
    node_pods.delete(node, *pods)
    node_pods.delete_claims(node, *pods)
    cpus.wait(lambda: not cpus.held() and not cpus.specs(), LIMIT)
