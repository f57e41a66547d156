from __future__ import annotations

from dataclasses import replace

import pytest

from dra_sdk import HardwareError
from dra_sdk.hardware import (
    NUMA_NODE,
    numa_attribute,
    numa_list_attribute,
    pci_attributes,
    read_cpus,
    read_numa_nodes,
    read_pci_device,
)
from dra_sdk.testing.sysfs import FakeMachine, FakePci, regular_machine

FUNCTION = FakePci(address="0000:3b:00.0", root="pci0000:3a", numa_node=1)


def of(tmp_path, function: FakePci):
    host = replace(regular_machine(sockets=2), pci=(function,)).write(tmp_path)
    return pci_attributes(read_pci_device(host, function.address))


def test_a_pci_function_has_the_standard_attributes(tmp_path):
    assert of(tmp_path, FUNCTION) == {
        "resource.kubernetes.io/pcieRoot": "pci0000:3a",
        "resource.kubernetes.io/pciBusID": "0000:3b:00.0",
        "resource.kubernetes.io/numaNode": 1,
    }


def test_no_numa_node_is_published_where_there_is_none(tmp_path):
    assert NUMA_NODE not in of(tmp_path, replace(FUNCTION, numa_node=-1))


@pytest.mark.parametrize("node", [-1, 1024])
def test_a_numa_node_out_of_range_is_an_error(node):
    assert numa_attribute(1023) == {NUMA_NODE: 1023}
    with pytest.raises(HardwareError, match=f"NUMA node {node}: .* must lie between 0 and 1023"):
        numa_attribute(node)


def lists(tmp_path, machine: FakeMachine) -> list[list[int]]:
    host = machine.write(tmp_path)
    nodes, topology = read_numa_nodes(host), read_cpus(host)
    return [numa_list_attribute(node.id, nodes, topology)[NUMA_NODE] for node in nodes]


def test_the_list_has_all_nearest_nodes_of_the_socket(tmp_path):
    assert lists(tmp_path, regular_machine(sockets=2, numa_nodes=3)) == [
        [0, 1, 2],
        [1, 0, 2],
        [2, 0, 1],
        [3, 4, 5],
        [4, 3, 5],
        [5, 3, 4],
    ]


def test_the_list_leaves_out_farther_nodes_of_the_socket(tmp_path):
    machine = replace(regular_machine(numa_nodes=3), distances={(0, 1): 11, (1, 2): 11})
    assert lists(tmp_path, machine) == [[0, 1], [1, 2], [2, 0, 1]]


def test_the_list_leaves_out_other_sockets(tmp_path):
    assert lists(tmp_path, regular_machine(sockets=2)) == [[0], [1]]


def test_the_list_keeps_nodes_of_an_unknown_socket(tmp_path):
    assert lists(tmp_path, regular_machine(sockets=2, cores=1, threads=1).offlined(1)) == [[0, 1], [1, 0]]


def test_the_list_of_a_single_or_unknown_node_has_only_that_node(tmp_path):
    host = regular_machine().write(tmp_path)
    nodes, topology = read_numa_nodes(host), read_cpus(host)
    assert numa_list_attribute(0, nodes, topology) == {NUMA_NODE: [0]}
    assert numa_list_attribute(7, nodes, topology) == {NUMA_NODE: [7]}
