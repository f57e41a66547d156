"""The control groups of the node are of version 2, and huge pages are limited in them."""

from __future__ import annotations

from pathlib import Path

from tests.lab import node_pods
from tests.lab.harness.node import Node

MIB = 1 << 20


def test_a_pod_has_a_limit_of_huge_pages_and_the_controllers_of_drivers(node: Node) -> None:
    # With less than a CPU, the start of the container would take a minute: runc starts within the limit.
    resources = {"memory": "64Mi", "cpu": "2", "hugepages-2Mi": "4Mi"}
    node_pods.run(node, "huge", resources={"requests": resources, "limits": resources})
    cgroup = node_pods.cgroup(node, "huge")
    assert {"cpu", "cpuset", "memory", "pids", "hugetlb"} <= set((cgroup / "cgroup.controllers").read_text().split())
    assert (cgroup.parent / "hugetlb.2MB.max").read_text().strip() == str(4 * MIB)
    assert (cgroup / "memory.max").read_text().strip() == str(64 * MIB)
    assert (cgroup / "cpuset.cpus.effective").read_text() == Path("/sys/devices/system/cpu/online").read_text()
    assert (cgroup / "cpuset.mems.effective").read_text().strip() == "0-1"
    node_pods.delete(node, "huge")


def test_each_numa_node_has_huge_pages() -> None:
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))
    pages = [int((each / "hugepages/hugepages-2048kB/nr_hugepages").read_text()) for each in nodes]
    assert pages == [16, 16]
