from __future__ import annotations

import pytest

from dra_sdk.hardware import Cpu, CpuTopology


def cpu(number: int, **changed: int | None) -> Cpu:
    values: dict[str, int | None] = {"core": number % 4, "core_id": number % 2, "socket": number % 4 // 2} | changed
    common = {"die": None, "cluster": None, "numa_node": 0, "l3": 0, "core_type": "standard", "capacity": None}
    return Cpu(id=number, **(common | values))


@pytest.fixture
def topology() -> CpuTopology:
    cpus = (*(cpu(n) for n in range(6)), cpu(6, l3=None), cpu(7, l3=2, numa_node=1))
    return CpuTopology(cpus, offline=frozenset(), isolated=frozenset(), nohz_full=frozenset(), smt=True)


def test_online_and_by_id(topology):
    assert topology.online == set(range(8))
    assert topology.by_id[6].l3 is None


def test_groups(topology):
    assert topology.cores == {0: {0, 4}, 1: {1, 5}, 2: {2, 6}, 3: {3, 7}}
    assert topology.sockets == {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}
    assert topology.numa_nodes == {0: set(range(7)), 1: {7}}


def test_cpus_for_which_the_key_says_none_are_left_out(topology):
    assert topology.l3_caches == {0: {0, 1, 2, 3, 4, 5}, 2: {7}}


def test_groups_ascend(topology):
    assert list(topology.group(lambda one: -one.id)) == list(range(-7, 1))


def test_siblings_follow_the_core_not_the_repeating_core_id(topology):
    assert topology.siblings(5) == {1, 5}
    assert topology.group(lambda one: one.core_id)[1] == {1, 3, 5, 7}
