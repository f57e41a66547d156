"""Pods with claims run on CPUs of their own, all other pods on those that are left, as the kernel has it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.hardware import CpuSet, parse_cpuset
from tests.cluster.pods import device_health
from tests.lab import node_pods
from tests.lab.conftest import NodeDriver, connections
from tests.lab.harness.node import Node

CPUS = Path("/sys/devices/system/cpu")
ALL = frozenset(range(8))
SINGLE, PAIR, OTHERS = "single", "pair", "others"
PODS = (SINGLE, PAIR, OTHERS)
EXPECTED = {SINGLE: {4}, PAIR: {6, 7}, OTHERS: {0, 1, 2, 3, 5}}
"""The CPUs of each pod. `pair` has a whole core, because `single` has a part of the other core of the NUMA node."""


def given(node: Node) -> dict[str, CpuSet]:
    """Returns the CPUs on which the kernel runs each of the pods."""
    return {name: node_pods.given_cpus(node, name) for name in PODS}


def numbers(cpus: NodeDriver) -> list[Any]:
    """Returns the number of CPUs of each device in the API."""
    devices = [device for piece in cpus.slices() for device in piece["spec"]["devices"]]
    return [(device["attributes"]["numCPUs"]["int"], device["capacity"]["dra.cpu/cpu"]["value"]) for device in devices]


@pytest.fixture(scope="module")
def pods(node: Node, cpus: NodeDriver) -> None:
    """A pod without claim, and two with one CPU and two CPUs of NUMA node 1; the last test deletes them."""
    assert cpus.running()
    node_pods.create_claim(node, SINGLE, node_pods.cpus(1, node_pods.of_numa_node(1)))
    node_pods.run(node, SINGLE, SINGLE)  # alone, so that it has the first CPU
    node_pods.create_claim(node, PAIR, node_pods.cpus(2, node_pods.of_numa_node(1)))
    node_pods.create(node, OTHERS)
    node_pods.create(node, PAIR, PAIR)
    node_pods.wait(node, OTHERS, PAIR)


@pytest.fixture
def offline_cpu() -> Iterator[Path]:
    """The file that turns CPU 7 off and on; it is on again after the test."""
    online = CPUS / "cpu7/online"
    yield online
    online.write_text("1")


def test_the_slices_show_two_sockets_with_smt_and_a_numa_node_each(cpus: NodeDriver) -> None:
    """CPU 0 is kept back for pods without claims, because none is reserved."""
    (piece,) = cpus.slices()
    assert piece["spec"]["nodeName"] == "node-lab"
    assert [device["name"] for device in piece["spec"]["devices"]] == ["cpudevnuma000", "cpudevnuma001"]
    for number, device in enumerate(piece["spec"]["devices"]):
        attributes = device["attributes"]
        assert attributes["socketID"] == {"int": number}
        assert attributes[node_pods.NUMA_NODE] == {"int": number}
        assert attributes["smtEnabled"] == {"bool": True}
        assert attributes["numCPUs"] == {"int": 3 + number}


def test_each_pod_runs_on_its_cpus_and_the_others_on_the_rest(node: Node, pods: None) -> None:
    assert given(node) == EXPECTED
    assert parse_cpuset((CPUS / "cpu6/topology/thread_siblings_list").read_text().strip()) == EXPECTED[PAIR]
    for name in (SINGLE, PAIR):
        (told,) = node_pods.told_cpus(node, name).values()
        assert parse_cpuset(told) == EXPECTED[name]
        assert node_pods.given_memory(node, name) == "1"
    assert node_pods.given_memory(node, OTHERS) == ""


def test_they_run_on_when_the_kubelet_and_containerd_are_restarted(node: Node, cpus: NodeDriver, pods: None) -> None:
    processes = [node.container_process(name) for name in PODS]
    registered, connected = cpus.registrations(), connections(cpus)
    node.stop("kubelet")
    node.kill("containerd")
    for name in ("containerd", "kubelet"):
        node.start(name)
    cpus.wait(lambda: cpus.registrations() > registered and connections(cpus) > connected)
    assert [node.container_process(name) for name in PODS] == processes
    assert all(process.alive() for process in processes)
    assert given(node) == EXPECTED


def test_slices_health_and_pods_follow_a_cpu_offline_and_online(
    node: Node, cpus: NodeDriver, pods: None, offline_cpu: Path
) -> None:
    assert numbers(cpus) == [(3, "3"), (4, "4")]
    offline_cpu.write_text("0")
    cpus.wait(lambda: numbers(cpus) == [(3, "3"), (3, "3")])
    cpus.wait(lambda: device_health(node, PAIR) == [("Healthy", "CPUs 7 are offline")])
    assert given(node) == {**EXPECTED, PAIR: {6}}
    offline_cpu.write_text("1")
    cpus.wait(lambda: numbers(cpus) == [(3, "3"), (4, "4")])
    cpus.wait(lambda: given(node) == EXPECTED)
    cpus.wait(lambda: device_health(node, PAIR) == [("Healthy", "")])


def test_their_cpus_return_to_the_others_when_they_are_deleted(node: Node, cpus: NodeDriver, pods: None) -> None:
    node_pods.delete(node, SINGLE, PAIR)
    node_pods.delete_claims(node, SINGLE, PAIR)
    cpus.wait(lambda: not cpus.held() and not cpus.specs())
    cpus.wait(lambda: node_pods.given_cpus(node, OTHERS) == ALL)
    node_pods.delete(node, OTHERS)
