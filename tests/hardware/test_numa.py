from __future__ import annotations

from dataclasses import replace

import pytest

from dra_sdk.hardware import Host, HugePages, read_cpus, read_numa_nodes
from dra_sdk.hardware.numa import read_numa_cpus
from dra_sdk.model.omissions import collecting_omissions
from dra_sdk.testing.sysfs import FakeCpu, FakeMachine, regular_machine

MIB = 1 << 20


def test_the_nodes_of_this_machine_are_read():
    nodes = read_numa_nodes(Host())
    assert frozenset().union(*(node.cpus for node in nodes)) == read_cpus(Host()).online
    assert sum(node.memory for node in nodes) > 0
    assert all(node.distances[node.id] == 10 for node in nodes)


def test_nodes_have_cpus_memory_huge_pages_and_distances(tmp_path):
    machine = replace(
        regular_machine(sockets=2, numa_nodes=2, cores=2, threads=1),
        memory=512 * MIB,
        hugepages={1 << 30: 2, 2 * MIB: 64},
    )
    nodes = read_numa_nodes(machine.write(tmp_path))
    assert [(node.id, node.cpus) for node in nodes] == [(0, {0, 1}), (1, {2, 3}), (2, {4, 5}), (3, {6, 7})]
    assert nodes[1].memory == 512 * MIB
    assert nodes[1].hugepages == (HugePages(2 * MIB, 64, 64), HugePages(1 << 30, 2, 2))
    assert nodes[1].distances == {0: 12, 1: 10, 2: 21, 3: 21}


def test_node_numbers_may_have_gaps(tmp_path):
    cpus = tuple(FakeCpu(id=n, core=n, core_id=n, socket=n, numa_node=8 * n) for n in range(2))
    host = FakeMachine(cpus=cpus, distances={(0, 8): 40, (8, 0): 40}).write(tmp_path)
    assert [node.distances for node in read_numa_nodes(host)] == [{0: 10, 8: 40}, {0: 40, 8: 10}]
    assert read_numa_cpus(host) == {0: {0}, 8: {1}}


def test_a_node_with_all_cpus_offline_has_no_cpus(tmp_path):
    host = regular_machine(sockets=2, cores=1, threads=1).offlined(1).write(tmp_path)
    assert [node.cpus for node in read_numa_nodes(host)] == [{0}, frozenset()]


def test_without_numa_support_there_is_node_0(tmp_path):
    machine = replace(regular_machine(cores=2), numa=False, memory=256 * MIB, hugepages={2 * MIB: 3})
    (node,) = read_numa_nodes(machine.write(tmp_path))
    assert (node.id, node.cpus, node.memory, node.distances) == (0, {0, 1, 2, 3}, 256 * MIB, {0: 10})
    assert node.hugepages == (HugePages(2 * MIB, 3, 3),)


def test_a_machine_may_have_no_huge_pages(tmp_path):
    (node,) = read_numa_nodes(replace(regular_machine(), hugepages={}).write(tmp_path))
    assert node.hugepages == ()


@pytest.mark.parametrize(
    ("file", "text", "left", "message"),
    [
        ("distance", "10 21 21", {"distances": {}}, "distance: expected 2 distances, one for each node"),
        ("distance", "10 far", {"distances": {}}, "distance: expected 2 distances"),
        ("meminfo", "Node 0 MemFree: 1 kB", {"memory": 0}, "meminfo: no line MemTotal in kB"),
        ("cpulist", "0-", {"cpus": frozenset()}, "cpulist: CPU list '0-'"),
        ("hugepages/hugepages-2048kB/nr_hugepages", "many", {"memory": 0}, "nr_hugepages: expected a decimal number"),
    ],
)
def test_an_invalid_file_costs_what_it_says_and_is_named(tmp_path, file, text, left, message):
    host = regular_machine(sockets=2).write(tmp_path)
    before = read_numa_nodes(host)
    (host.sys / "devices/system/node/node0" / file).write_text(text)
    with collecting_omissions() as omissions:
        assert read_numa_nodes(host) == (replace(before[0], **left), before[1])
    [omission] = omissions
    assert f"/node0/{file.rpartition('/')[0]}" in omission.reason
    assert message in omission.reason
