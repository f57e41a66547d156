"""A claim gets CPUs, memory and huge pages of one NUMA node, and the kernel keeps their limits."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.manifests import JSON, request, where
from tests.lab import node_pods
from tests.lab.conftest import NodeDriver, running
from tests.lab.harness.node import Node

MIB = 1 << 20
HUGE = Path("/sys/devices/system/node/node1/hugepages/hugepages-2048kB")
NAME = "aligned"
TOUCH = """
import mmap, re, sys
size = int(sys.argv[1]) << 21
pages = mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x40000)  # MAP_HUGETLB
for start in range(0, size, 2 << 20):
    pages[start] = 1
print(*re.findall(r"anon_hugepage.* huge .*(N[0-9]+=[0-9]+)", open("/proc/self/numa_maps").read()))
"""
"""Uses so many huge pages, and prints on which NUMA nodes they are."""


@pytest.fixture(scope="module")
def memory(node: Node, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeDriver]:
    with running(node, "memory", "dra.memory", tmp_path_factory.mktemp("memory")) as driver:
        yield driver


@pytest.fixture
def pages() -> Iterator[Path]:
    """The file with the number of huge pages of NUMA node 1, which is 16 again after the test."""
    file = HUGE / "nr_hugepages"
    yield file
    file.write_text("16")


@pytest.fixture(scope="module")
def pod(node: Node, cpus: NodeDriver, memory: NodeDriver) -> str:
    """A pod whose claim names the NUMA node for its huge pages only; the last test deletes it."""
    assert cpus.running()
    assert memory.running()
    wanted = [node_pods.cpus(2), amount("memory", "4Ki", "64Mi")]
    wanted.append(amount("hugepages", "2Mi", "8Mi", node_pods.of_numa_node(1)))
    node_pods.create_claim(node, NAME, *wanted, aligned_by=[node_pods.NUMA_NODE])
    node_pods.run(node, NAME, NAME)
    return NAME


def amount(name: str, page: str, size: str, condition: str = "true") -> JSON:
    """Returns a request for memory in pages of one size."""
    selector = f'device.attributes["dra.memory"].pageSize == "{page}" && {condition}'
    return request(name, "dra.memory", capacity={"requests": {"size": size}}, **where(selector))


def sizes(memory: NodeDriver) -> dict[str, str]:
    """Returns the size of the huge pages of each NUMA node in the API."""
    devices = [device for piece in memory.slices() for device in piece["spec"]["devices"]]
    return {each["name"]: each["capacity"]["size"]["value"] for each in devices if "huge" in each["name"]}


def test_huge_pages_that_are_reserved_by_sysfs_are_published(memory: NodeDriver, pages: Path) -> None:
    assert sizes(memory) == {"hugepages-2mi-numa0": "32Mi", "hugepages-2mi-numa1": "32Mi"}
    pages.write_text("20")
    memory.wait(lambda: sizes(memory) == {"hugepages-2mi-numa0": "32Mi", "hugepages-2mi-numa1": "40Mi"})
    pages.write_text("16")
    memory.wait(lambda: sizes(memory)["hugepages-2mi-numa1"] == "32Mi")


def test_cpus_memory_and_huge_pages_are_of_one_numa_node(node: Node, pod: str) -> None:
    found = node_pods.devices(node, pod)
    assert found == {"cpus": "cpudevnuma001", "memory": "memory-numa1", "hugepages": "hugepages-2mi-numa1"}
    assert node_pods.given_cpus(node, pod) == {4, 5}
    assert node_pods.given_memory(node, pod) == "1"


def test_the_kernel_gives_a_container_the_huge_pages_of_its_claim(node: Node, pod: str) -> None:
    cgroup = node_pods.cgroup(node, pod)
    assert (cgroup.parent / "hugetlb.2MB.max").read_text().strip() == str(8 * MIB)  # the kubelet had set 0
    program = [sys.executable, "-c", TOUCH]
    enter = ["sh", "-c", 'echo $$ >"$0/cgroup.procs" && exec "$@"', cgroup, *program]
    done = subprocess.run([*enter, "4"], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["N1=4"]
    assert subprocess.run([*enter, "5"], capture_output=True, text=True, check=False).returncode != 0


def test_all_of_it_is_free_when_the_pod_is_deleted(node: Node, cpus: NodeDriver, memory: NodeDriver, pod: str) -> None:
    node_pods.delete(node, pod)
    node_pods.delete_claims(node, pod)
    for driver in (cpus, memory):
        driver.wait(lambda driver=driver: not driver.held())  # type: ignore[misc]
    assert (HUGE / "free_hugepages").read_text() == (HUGE / "nr_hugepages").read_text()
