from __future__ import annotations

import os
from dataclasses import replace

import pytest

from dra_sdk import HardwareError
from dra_sdk.hardware import Cpu, CpuTopology, Host, read_cpus
from dra_sdk.model.omissions import collecting_omissions
from dra_sdk.testing.sysfs import FakeMachine, hybrid_machine, regular_machine


def cpu(number: int, **changed: int | None) -> Cpu:
    values: dict[str, int | None] = {"core": number % 4, "core_id": number % 2, "socket": number % 4 // 2} | changed
    common = {"die": None, "cluster": None, "numa_node": 0, "l3": 0, "core_type": "standard", "capacity": None}
    return Cpu(id=number, **(common | values))


@pytest.fixture
def topology() -> CpuTopology:
    cpus = (*(cpu(n) for n in range(6)), cpu(6, l3=None), cpu(7, l3=2, numa_node=1))
    return CpuTopology(cpus, offline=frozenset(), isolated=frozenset(), nohz_full=frozenset(), smt=True)


def test_cpus_are_found_by_number(topology):
    assert topology.online == set(range(8))
    assert topology.by_id[6].l3 is None


def test_cpus_are_grouped_by_core_socket_and_node(topology):
    assert topology.cores == {0: {0, 4}, 1: {1, 5}, 2: {2, 6}, 3: {3, 7}}
    assert topology.sockets == {0: {0, 1, 4, 5}, 1: {2, 3, 6, 7}}
    assert topology.numa_nodes == {0: set(range(7)), 1: {7}}


def test_cpus_whose_key_is_none_are_left_out(topology):
    assert topology.l3_caches == {0: {0, 1, 2, 3, 4, 5}, 2: {7}}


def test_groups_are_in_ascending_order(topology):
    assert list(topology.group(lambda one: -one.id)) == list(range(-7, 1))


def test_siblings_follow_the_core_not_the_repeating_core_id(topology):
    assert topology.siblings(5) == {1, 5}
    assert topology.group(lambda one: one.core_id)[1] == {1, 3, 5, 7}


@pytest.fixture
def read(tmp_path):
    return lambda machine: read_cpus(machine.write(tmp_path))


def test_the_cpus_of_this_machine_are_read():
    topology = read_cpus(Host())
    assert os.sched_getaffinity(0) <= topology.online
    assert sum(map(len, topology.cores.values())) == len(topology.cpus)
    assert all(cpu.id in topology.siblings(cpu.id) and cpu.core <= cpu.id for cpu in topology.cpus)


def test_core_ids_that_repeat_in_two_sockets_are_told_apart(read):
    topology = read(regular_machine(sockets=2, cores=4))
    assert topology.cores == {core: {core, core + 8} for core in range(8)}
    assert topology.sockets == {0: {0, 1, 2, 3, 8, 9, 10, 11}, 1: {4, 5, 6, 7, 12, 13, 14, 15}}
    assert topology.by_id[13].core == 5
    assert topology.by_id[13].core_id == 1
    assert {cpu.die for cpu in topology.cpus if cpu.socket} == {4}
    assert topology.smt


def test_cores_may_have_four_neighbouring_threads(read):
    topology = read(regular_machine(cores=2, threads=4, numbering="near"))
    assert topology.cores == {0: {0, 1, 2, 3}, 4: {4, 5, 6, 7}}


def test_a_socket_may_have_several_nodes_and_caches(read):
    topology = read(regular_machine(sockets=2, numa_nodes=2, l3_caches=2, cores=4, threads=1))
    assert topology.numa_nodes == {n: set(range(4 * n, 4 * n + 4)) for n in range(4)}
    assert topology.l3_caches == {n: {2 * n, 2 * n + 1} for n in range(8)}
    assert not topology.smt


def test_a_machine_may_have_more_than_256_cpus(read):
    topology = read(regular_machine(sockets=2, numa_nodes=2, l3_caches=4, cores=40))
    assert len(topology.cpus) == 320
    assert topology.siblings(319) == {159, 319}


def test_cpus_may_have_no_l3_cache(read):
    topology = read(regular_machine(l3_caches=0))
    assert topology.l3_caches == {}
    assert {cpu.l3 for cpu in topology.cpus} == {None}


def test_cpus_may_have_no_cache_directory(tmp_path, read):
    host = regular_machine(cores=1, threads=1).write(tmp_path)
    cache = host.sys / "devices/system/cpu/cpu0/cache"
    cache.rename(tmp_path / "elsewhere")
    assert read_cpus(host).by_id[0].l3 is None


def test_caches_without_id_are_identified_by_their_lowest_cpu(read):
    topology = read(replace(regular_machine(l3_caches=2, cores=4), l3_ids=False))
    assert topology.l3_caches == {0: {0, 1, 4, 5}, 2: {2, 3, 6, 7}}


def test_cache_ids_that_repeat_are_not_used(tmp_path):
    host = regular_machine(l3_caches=2, cores=4).write(tmp_path)
    for path in host.sys.glob("devices/system/cpu/cpu*/cache/index3/id"):
        path.write_text("0\n")
    assert read_cpus(host).l3_caches == {0: {0, 1, 4, 5}, 2: {2, 3, 6, 7}}


def test_a_cache_id_that_one_cpu_lacks_is_that_of_another_cpu_of_the_cache(tmp_path):
    host = regular_machine(l3_caches=2, cores=4).changed(lambda c: replace(c, l3=7 + c.l3)).write(tmp_path)
    before = read_cpus(host)
    (host.sys / "devices/system/cpu/cpu0/cache/index3/id").unlink()
    with collecting_omissions() as omissions:
        assert read_cpus(host) == before
    assert before.l3_caches == {7: {0, 1, 4, 5}, 8: {2, 3, 6, 7}}
    assert not omissions


def test_a_cache_id_that_no_cpu_of_the_cache_has_is_missing_there_alone(tmp_path):
    host = regular_machine(l3_caches=2, cores=4).changed(lambda c: replace(c, l3=7 + c.l3)).write(tmp_path)
    for cpu in (0, 1, 4, 5):
        (host.sys / f"devices/system/cpu/cpu{cpu}/cache/index3/id").unlink()
    with collecting_omissions() as omissions:
        assert read_cpus(host).l3_caches == {8: {2, 3, 6, 7}}
    assert [omission.subject for omission in omissions] == ["L3 cache of CPU 0-1,4-5"]


def test_a_cpu_that_is_not_in_its_own_cache_is_in_the_one_that_lists_it(tmp_path):
    host = regular_machine(l3_caches=2, cores=4).write(tmp_path)
    before = read_cpus(host)
    path = host.sys / "devices/system/cpu/cpu0/cache/index3/shared_cpu_list"
    path.write_text("\n")
    with collecting_omissions() as omissions:
        assert read_cpus(host) == before
    assert [omission.is_device for omission in omissions if str(path) in omission.reason] == [False]


def test_some_cpus_may_have_no_l3_cache(read):
    machine = regular_machine(cores=4, threads=1).changed(lambda c: replace(c, l3=None if c.id == 3 else 0))
    assert read(machine).l3_caches == {0: {0, 1, 2}}


def test_without_numa_support_all_cpus_are_in_node_0(read):
    assert read(replace(regular_machine(cores=2), numa=False)).numa_nodes == {0: {0, 1, 2, 3}}


def test_a_cpu_in_no_node_is_named(tmp_path):
    host = regular_machine(cores=2).write(tmp_path)
    (host.sys / "devices/system/node/node0/cpulist").write_text("0-2\n")
    assert read_cpus(host).numa_nodes == {0: {0, 1, 2, 3}}  # its own link says the same
    (host.sys / "devices/system/cpu/cpu3/node0").unlink()
    with collecting_omissions() as omissions:
        topology = read_cpus(host)
    assert (topology.unplaced, topology.by_id[3].numa_node) == ({3}, -1)
    [omission] = omissions
    assert omission.subject == "CPU 3"
    assert omission.reason.endswith("devices/system/node: CPU 3 is online but in no NUMA node")


def test_one_core_whose_number_cannot_be_read_is_unplaced_and_the_others_stay(tmp_path):
    host = regular_machine(cores=3, threads=1).write(tmp_path)
    before = read_cpus(host)
    (host.sys / "devices/system/cpu/cpu1/topology/core_id").unlink()
    with collecting_omissions() as omissions:
        topology = read_cpus(host)
    assert topology.unplaced == {1}
    assert [cpu for cpu in topology.cpus if cpu.id != 1] == [cpu for cpu in before.cpus if cpu.id != 1]
    assert [omission.subject for omission in omissions] == ["CPU 1"]


def test_an_unknown_package_is_socket_0(tmp_path, read):
    machine = regular_machine(cores=2).changed(lambda c: replace(c, socket=-1, die=None))
    topology = read(machine)
    assert topology.sockets == {0: {0, 1, 2, 3}}
    assert {cpu.die for cpu in topology.cpus} == {None}


def test_missing_package_and_core_ids_have_defaults(tmp_path):
    host = regular_machine(cores=2).write(tmp_path)
    for name in ("physical_package_id", "core_id", "die_id", "cluster_id"):
        for path in host.sys.glob(f"devices/system/cpu/cpu*/topology/{name}"):
            path.unlink()
    assert [(cpu.socket, cpu.core_id) for cpu in read_cpus(host).cpus] == [(0, 0), (0, 1), (0, 0), (0, 1)]


@pytest.mark.parametrize("number", [-1, 65535])
def test_an_unknown_cluster_is_none(tmp_path, number):
    host = hybrid_machine().write(tmp_path)
    for path in host.sys.glob("devices/system/cpu/cpu*/topology/cluster_id"):
        path.write_text(f"{number}\n")
    assert {cpu.cluster for cpu in read_cpus(host).cpus} == {None}


def test_thread_siblings_of_older_kernels_are_read(tmp_path):
    host = regular_machine(cores=2).write(tmp_path)
    for path in host.sys.glob("devices/system/cpu/cpu*/topology/core_cpus_list"):
        path.unlink()
    assert read_cpus(host).cores == {0: {0, 2}, 1: {1, 3}}


def test_offline_cpus_are_in_no_group(read):
    topology = read(regular_machine(cores=4).offlined(1, 7))
    assert topology.online == {0, 2, 3, 4, 5, 6}
    assert topology.offline == {1, 7}
    assert topology.cores == {0: {0, 4}, 2: {2, 6}, 3: {3}, 5: {5}}
    assert topology.by_id[5].core_id == 1


def test_isolated_and_nohz_full_cpus_are_read(read):
    machine = replace(regular_machine(cores=4), isolated=frozenset({2, 3}), nohz_full="3,7")
    topology = read(machine)
    assert topology.isolated == {2, 3}
    assert topology.nohz_full == {3, 7}


def test_a_null_or_missing_list_is_empty(tmp_path, read):
    machine = replace(regular_machine(cores=1), nohz_full="(null)")
    assert read(machine).nohz_full == frozenset()
    for name in ("isolated", "present", "nohz_full"):
        (tmp_path / "sys/devices/system/cpu" / name).unlink()
    topology = read_cpus(Host(tmp_path))
    assert (topology.isolated, topology.offline, topology.nohz_full) == (frozenset(),) * 3


@pytest.mark.parametrize(
    ("control", "threads", "smt"),
    [
        ("on", 2, True),
        ("on", 1, True),
        ("4", 4, True),
        ("1", 1, False),
        ("off", 1, False),
        ("forceoff", 1, False),
        ("notsupported", 1, False),
        ("notimplemented", 1, False),
        ("notimplemented", 4, True),
        (None, 1, False),
        (None, 2, True),
    ],
)
def test_smt_follows_the_control_file_or_the_threads(read, control, threads, smt):
    assert read(replace(regular_machine(cores=2, threads=threads), smt_control=control)).smt is smt


def test_hybrid_x86_machines_have_two_core_types(read):
    topology = read(hybrid_machine(p_cores=2, e_cores=4))
    assert [cpu.core_type for cpu in topology.cpus] == ["p-core"] * 4 + ["e-core"] * 4
    assert topology.cores == {0: {0, 1}, 2: {2, 3}, 4: {4}, 5: {5}, 6: {6}, 7: {7}}
    assert {cpu.cluster for cpu in topology.cpus if cpu.core_type == "e-core"} == {4}


def test_low_power_cores_are_e_cores_too(tmp_path):
    host = hybrid_machine(p_cores=1, e_cores=2).write(tmp_path)
    low = host.sys / "devices/cpu_lowpower/cpus"
    low.parent.mkdir()
    low.write_text("1\n")
    assert [cpu.core_type for cpu in read_cpus(host).cpus] == ["p-core", "e-core", "e-core", "e-core"]


def capacities(*values: int | None) -> FakeMachine:
    return regular_machine(cores=len(values), threads=1).changed(lambda c: replace(c, capacity=values[c.id]))


@pytest.mark.parametrize(
    ("values", "types"),
    [
        ((446, 446, 1024, 1024), ["e-core", "e-core", "p-core", "p-core"]),
        ((446, 871, 1024), ["e-core", "e-core", "p-core"]),
        ((1024, 1009, 996), ["standard"] * 3),
        ((None, None), ["standard"] * 2),
    ],
)
def test_core_types_follow_the_capacities(read, values, types):
    topology = read(capacities(*values))
    assert [cpu.core_type for cpu in topology.cpus] == types
    assert [cpu.capacity for cpu in topology.cpus] == list(values)


def test_a_machine_without_online_cpus_is_an_error(tmp_path):
    host = regular_machine().write(tmp_path)
    (host.sys / "devices/system/cpu/online").write_text("\n")
    with pytest.raises(HardwareError, match="online: lists no CPU"):
        read_cpus(host)


def test_a_missing_topology_is_named(tmp_path):
    with pytest.raises(HardwareError, match="cpu/online: cannot be read"):
        read_cpus(Host(tmp_path))


def test_siblings_without_the_cpu_itself_are_those_of_the_other_thread(tmp_path):
    host = regular_machine(cores=2).write(tmp_path)
    before = read_cpus(host)
    for name in ("core_cpus_list", "thread_siblings_list"):
        (host.sys / "devices/system/cpu/cpu1/topology" / name).write_text("0,2\n")
    with collecting_omissions() as omissions:
        assert read_cpus(host) == before
    assert {omission.reason.partition(": ")[2] for omission in omissions} == {"does not list CPU 1 itself"}
