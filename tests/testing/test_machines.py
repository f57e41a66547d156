"""The machines have the topology that their descriptions promise, as the reader of CPUs sees it."""

from __future__ import annotations

import pytest

from dra_sdk.hardware import CpuTopology, read_cpus
from dra_sdk.testing.machines import MACHINES, epyc


def shape(topology: CpuTopology) -> tuple[int, int, int, int, int]:
    """CPUs, cores, L3 caches, NUMA nodes and sockets."""
    groups = (topology.cores, topology.l3_caches, topology.numa_nodes, topology.sockets)
    cores, caches, nodes, sockets = map(len, groups)
    return len(topology.cpus), cores, caches, nodes, sockets


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("xeon-1-socket", (16, 8, 1, 1, 1)),
        ("xeon-2-sockets", (32, 16, 2, 2, 2)),
        ("epyc-8-ccx", (128, 64, 8, 1, 1)),
        ("hybrid-8p-8e", (24, 16, 1, 1, 1)),
        ("power-smt4", (32, 8, 4, 2, 2)),
        ("arm-no-cache-ids", (16, 16, 4, 2, 1)),
    ],
)
def test_each_machine_has_its_parts(tmp_path, name, expected):
    assert shape(read_cpus(MACHINES[name].write(tmp_path))) == expected


def test_an_epyc_can_have_several_numa_nodes_in_each_socket(tmp_path):
    assert shape(read_cpus(epyc(sockets=2, numa_nodes=4).write(tmp_path))) == (256, 128, 16, 8, 2)


def test_core_ids_of_a_xeon_repeat_in_its_second_socket(tmp_path):
    topology = read_cpus(MACHINES["xeon-2-sockets"].write(tmp_path))
    assert topology.by_id[0].core_id == topology.by_id[8].core_id
    assert topology.by_id[0].core != topology.by_id[8].core


def test_an_arm_server_has_clusters_and_no_ids_of_caches(tmp_path):
    host = MACHINES["arm-no-cache-ids"].write(tmp_path)
    topology = read_cpus(host)
    assert len({cpu.cluster for cpu in topology.cpus}) == 4
    assert not list(host.sys.glob("devices/system/cpu/cpu0/cache/*/id"))
    assert set(topology.l3_caches) == {0, 4, 8, 12}
