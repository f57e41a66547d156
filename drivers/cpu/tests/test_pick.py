"""Which CPUs `pick` takes: by example as upstream and kubelet do it, and rules that hold on every machine."""

from __future__ import annotations

import tempfile
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_cpu.pick import CoreAlignmentError, NotEnoughCpusError, PickPolicy, pick
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dra_sdk.hardware import Cpu, CpuSet, CpuTopology, format_cpuset, parse_cpuset, read_cpus
from dra_sdk.testing.sysfs import FakeMachine, hybrid_machine, regular_machine

FULL = PickPolicy(full_cores=True)
NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
"""Examples may take as long as they need: a slow machine says nothing about `pick`."""

READ: dict[str, CpuTopology] = {}


def read(machine: FakeMachine) -> CpuTopology:
    """The topology of `machine`, written and read only once, as that takes longer than all picks."""
    if repr(machine) not in READ:
        with tempfile.TemporaryDirectory() as root:
            READ[repr(machine)] = read_cpus(machine.write(Path(root)))
    return READ[repr(machine)]


def in_memory(machine: FakeMachine) -> CpuTopology:
    """The topology of a regular machine without its files, of which each CPU has 18."""
    lowest = {cpu.core: cpu.id for cpu in reversed(machine.cpus)}
    dies = {cpu.die: cpu.id for cpu in reversed(machine.cpus)}
    cpus = (
        Cpu(
            id=cpu.id,
            core=lowest[cpu.core],
            core_id=cpu.core_id,
            socket=cpu.socket,
            die=dies[cpu.die],
            cluster=None,
            numa_node=cpu.numa_node,
            l3=cpu.l3,
            core_type="standard",
            capacity=None,
        )
        for cpu in machine.cpus
    )
    return CpuTopology(tuple(cpus), frozenset(), frozenset(), frozenset(), smt=machine.smt_control == "on")


def in_turn(topology: CpuTopology, group: str, *needs: int) -> list[str]:
    """What claims for `needs` CPUs get one after the other from the CPUs in `group` (all if empty)."""
    free = parse_cpuset(group) or topology.online
    answers = []
    for need in needs:
        answers.append(pick(topology, free, need))
        free -= answers[-1]
    return [format_cpuset(cpus) for cpus in answers]


def one(machine: FakeMachine, available: str, need: int, policy: PickPolicy | None = None) -> str:
    return format_cpuset(pick(read(machine), parse_cpuset(available), need, policy or PickPolicy()))


class TestAsUpstream:
    """Answers of the upstream CPU driver to the same requests in turn, where nothing here differs on purpose."""

    def test_two_sockets_with_one_cache_each(self):
        topology = read(regular_machine(sockets=2, cores=8, unique_core_ids=True))
        answers = ["0", "1,17", "2-3,18-19", "4-5,16,20-21", "6,22"]
        assert in_turn(topology, "0-7,16-23", 1, 2, 4, 5, 2) == answers

    def test_no_l3(self):
        topology = read(regular_machine(cores=8, l3_caches=0))
        assert in_turn(topology, "", 1, 2, 4, 9) == ["0", "1,9", "2-3,10-11", "4-8,12-15"]

    def test_four_threads_to_a_core(self):
        topology = read(regular_machine(cores=8, threads=4, numbering="near"))
        assert in_turn(topology, "", 4, 2, 3, 8) == ["0-3", "4-5", "6-8", "12-19"]

    def test_fresh_caches(self):
        topology = read(regular_machine(cores=32, l3_caches=4))
        answers = {3: "0-1,32", 2: "0,32", 16: "0-7,32-39", 17: "0-8,32-39", 64: "0-63"}
        assert {need: in_turn(topology, "", need) for need in answers} == {n: [a] for n, a in answers.items()}


class TestAsKubelet:
    """Facts from the kubelet's table for packed NUMA allocation."""

    @pytest.mark.parametrize(
        ("available", "need", "answer"),
        [("0-7", 1, "0"), ("1,3,5-7", 1, "6"), ("0-7", 2, "0,4"), ("0-7", 8, "0-7"), ("0-3,6", 2, "2,6")],
    )
    def test_one_socket(self, available, need, answer):
        assert one(regular_machine(cores=4), available, need) == answer

    @pytest.mark.parametrize(
        ("available", "need", "answer"),
        [
            ("0-79", 20, "0-9,40-49"),
            ("10-39,50-79", 20, "10-19,50-59"),
            ("0-79", 40, "0-19,40-59"),
            ("0-79", 60, "0-29,40-69"),
        ],
    )
    def test_two_sockets_with_two_nodes_each(self, available, need, answer):
        assert one(regular_machine(sockets=2, numa_nodes=2, cores=10), available, need) == answer

    def test_the_fuller_socket_first(self):
        assert one(regular_machine(sockets=2, cores=3), "1-5,7-11", 1) == "1"


class TestOnPurposeNotAsUpstream:
    def test_repeating_core_ids_are_kept_apart(self):
        """Upstream answers 1,16 (two half cores) and then 2,10,18,26, of which 10 and 26 are on the other node."""
        topology = read(regular_machine(sockets=2, cores=8))
        assert topology.by_id[2].core_id == topology.by_id[10].core_id
        assert in_turn(topology, "0-7,16-23", 1, 2, 4) == ["0", "1,17", "2-3,18-19"]

    def test_a_cache_with_a_partly_used_core_is_filled(self):
        """Upstream: 0; 4,20; 5-6,21-22; 1-2,16-18; 3,19."""
        topology = read(regular_machine(sockets=2, cores=8, l3_caches=2))
        answers = ["0", "1,17", "2-3,18-19", "4-6,20-21", "7,23"]
        assert in_turn(topology, "0-7,16-23", 1, 2, 4, 5, 2) == answers

    def test_best_fitting_cache(self):
        """Upstream: 0-1,32; 8,40; 16-23,48-55; 9-14,41-46; 24-27,56-59; 2-6,34-38."""
        topology = read(regular_machine(cores=32, l3_caches=4))
        answers = ["0-1,32", "2,34", "8-15,40-47", "16-21,48-53", "3-6,35-38", "24-28,56-60"]
        assert in_turn(topology, "", 3, 2, 16, 12, 8, 10) == answers

    def test_hybrid_takes_one_kind_of_core(self):
        """Upstream gives 4 CPUs 16-19 (all E-cores) and 6 CPUs 0-3,22-23 (both kinds)."""
        topology = read(hybrid_machine())
        assert in_turn(topology, "", 4, 6, 8, 6) == ["0-3", "4-9", "16-23", "10-15"]

    def test_hybrid_mixes_kinds_only_if_none_has_enough(self):
        topology = read(hybrid_machine())
        assert in_turn(topology, "", 17) == ["0-16"]
        assert in_turn(topology, "0-3,16-23", 6) == ["16-21"]

    def test_one_cache_that_can_hold_all_is_used_though_a_fuller_node_cannot(self):
        machine = regular_machine(numa_nodes=2, l3_caches=2, cores=4, threads=1)
        assert one(machine, "0,2-3,4-7", 2) == "2-3"
        assert one(machine, "0,2,4-7", 2) == "4-5"

    def test_as_few_caches_as_possible(self):
        assert one(regular_machine(cores=12, l3_caches=3, threads=1), "0-2,4-5,8-11", 6) == "4-5,8-11"

    def test_a_partly_used_core_elsewhere_is_used_before_a_whole_core_is_split(self):
        assert one(regular_machine(cores=8, l3_caches=2), "0-1,8-9,4-7,12-14", 1) == "7"


class TestOddMachines:
    def test_core_with_a_thread_offline_is_whole(self):
        machine = regular_machine(cores=4).offlined(5)
        assert in_turn(read(machine), "", 3, 2, 2) == ["0-1,4", "2,6", "3,7"]

    def test_whole_cores_matter_more_than_one_cache(self):
        """Cache 0 has three cores with a thread offline, cache 1 one whole core: 4 CPUs are two and two of one."""
        machine = regular_machine(cores=6, l3_caches=2).offlined(6, 7, 8)
        assert one(machine, "0-3,9", 4) == "0-1,3,9"

    def test_caches_of_different_size(self):
        machine = regular_machine(cores=10, l3_caches=2, threads=1)
        uneven = machine.changed(lambda cpu: replace(cpu, l3=0 if cpu.id < 3 else 1))
        assert in_turn(read(uneven), "", 4, 3, 3) == ["3-6", "0-2", "7-9"]

    def test_cache_over_two_nodes(self):
        machine = regular_machine(numa_nodes=2, cores=4, threads=1).changed(lambda cpu: replace(cpu, l3=0))
        assert one(machine, "1-7", 4) == "4-7"
        assert one(machine, "0-7", 5) == "0-4"

    def test_two_nodes_of_one_socket_rather_than_of_two(self):
        assert one(regular_machine(sockets=2, numa_nodes=2, cores=2, threads=1), "1-7", 4) == "4-7"

    def test_two_sockets_of_one_node_rather_than_of_two(self):
        machine = regular_machine(sockets=4, cores=2, threads=1)
        paired = machine.changed(lambda cpu: replace(cpu, numa_node=cpu.socket // 2))
        assert one(paired, "1-7", 4) == "4-7"

    def test_two_sockets_in_one_node(self):
        machine = regular_machine(sockets=2, cores=4, threads=1).changed(lambda cpu: replace(cpu, numa_node=0))
        assert one(machine, "1-7", 4) == "4-7"

    def test_fewer_threads_than_a_core_has_come_from_one_core(self):
        assert in_turn(read(regular_machine(cores=4, threads=4)), "", 3, 2, 2) == ["0,4,8", "1,12", "5,9"]

    def test_only_partly_used_cores_are_free(self):
        assert one(regular_machine(cores=9, l3_caches=3), "0,3-4,6-8", 5) == "3-4,6-8"

    def test_no_numa_and_no_package_number(self):
        machine = regular_machine(cores=4).changed(lambda cpu: replace(cpu, socket=-1, l3=None))
        assert one(replace(machine, numa=False), "0-7", 4) == "0-1,4-5"

    def test_core_whose_threads_sysfs_puts_into_two_caches(self):
        machine = regular_machine(cores=2, threads=4).changed(lambda cpu: replace(cpu, l3=cpu.id % 4 // 2))
        assert one(machine, "0-7", 4) == "0,2,4,6"

    @pytest.mark.parametrize("name", ["two sockets", "caches and nodes", "no threads"])
    def test_a_topology_in_memory_is_that_of_the_files(self, name):
        assert in_memory(MACHINES[name]) == read(MACHINES[name])

    def test_more_than_256_cpus(self):
        topology = in_memory(regular_machine(sockets=2, numa_nodes=2, l3_caches=4, cores=40))
        assert in_turn(topology, "", 100, 20, 3) == ["0-49,160-209", "50-59,210-219", "60-61,220"]


class TestFullCores:
    def test_gives_whole_cores_only(self):
        assert one(regular_machine(cores=4), "0,1-3,5-6", 4, FULL) == "1-2,5-6"

    def test_a_number_that_is_no_sum_of_cores_is_a_permanent_error(self):
        with pytest.raises(CoreAlignmentError) as error:
            one(regular_machine(cores=4), "0-7", 3, FULL)
        assert str(error.value) == "need 3 CPUs in whole cores, which have 2 threads: ask for a multiple"
        assert not error.value.retriable

    def test_too_few_whole_cores_is_a_retriable_error(self):
        with pytest.raises(NotEnoughCpusError) as error:
            one(regular_machine(cores=4), "0-4", 4, FULL)
        assert str(error.value) == "need 4 CPUs in whole cores, the free whole cores have 2: 0,4"
        assert error.value.retriable

    def test_more_cpus_than_the_machine_has(self):
        with pytest.raises(NotEnoughCpusError, match="need 9 CPUs in whole cores, the free whole cores have 8: 0-7"):
            one(regular_machine(cores=4), "0-7", 9, FULL)

    def test_hybrid_uses_the_kind_whose_cores_divide_the_number(self):
        assert one(hybrid_machine(p_cores=2, e_cores=4), "0-7", 3, FULL) == "4-6"
        assert one(hybrid_machine(p_cores=2, e_cores=1), "0-4", 3, FULL) == "0-1,4"


class TestRefusals:
    def test_not_enough(self):
        with pytest.raises(NotEnoughCpusError) as error:
            one(regular_machine(cores=4), "0-1,5", 4)
        assert str(error.value) == "need 4 CPUs, have 3: 0-1,5"

    def test_no_cpu_is_free(self):
        with pytest.raises(NotEnoughCpusError, match="need 1 CPUs, have 0: none"):
            one(regular_machine(), "", 1)

    @pytest.mark.parametrize("need", [0, -2])
    def test_a_need_below_1(self, need):
        with pytest.raises(ValueError, match=f"need {need} CPUs: must be 1 or more"):
            one(regular_machine(), "0-3", need)

    def test_cpus_that_are_not_online(self):
        with pytest.raises(ValueError, match="CPUs 3,99 are not online, so they are not available"):
            one(regular_machine(cores=2).offlined(3), "0-3,99", 1)


MACHINES = {
    "two sockets": regular_machine(sockets=2, cores=4),
    "caches": regular_machine(cores=12, l3_caches=4),
    "caches and nodes": regular_machine(sockets=2, numa_nodes=2, l3_caches=2, cores=4),
    "no threads": regular_machine(numa_nodes=2, cores=8, l3_caches=4, threads=1),
    "four threads": regular_machine(sockets=2, cores=4, l3_caches=2, threads=4, numbering="near"),
    "no cache": replace(regular_machine(cores=6, l3_caches=0), numa=False),
    "hybrid": hybrid_machine(p_cores=4, e_cores=8),
    "threads offline": regular_machine(sockets=2, cores=6, l3_caches=2).offlined(13, 14, 3, 21),
    "split cores": regular_machine(cores=4, threads=4).changed(lambda cpu: replace(cpu, l3=cpu.id % 3)),
}
UNIFORM = ("two sockets", "caches", "caches and nodes", "no threads", "four threads", "no cache")


@pytest.fixture(scope="module", autouse=True)
def machines() -> None:
    """Reads all machines once, before any example is drawn."""
    for machine in MACHINES.values():
        read(machine)


@st.composite
def situations(draw: st.DrawFn, *names: str) -> tuple[CpuTopology, CpuSet, int]:
    """A machine, its free CPUs, and how many of them a claim needs."""
    topology = read(MACHINES[draw(st.sampled_from(names or tuple(MACHINES)))])
    taken = draw(st.sets(st.sampled_from(sorted(topology.online)), max_size=len(topology.online) - 1))
    free = topology.online - taken
    return topology, free, draw(st.integers(1, len(free)))


def whole(topology: CpuTopology, cpus: CpuSet) -> CpuSet:
    return frozenset(cpu for cpu in cpus if topology.siblings(cpu) <= cpus)


@NO_DEADLINE
@given(situations())
def test_picks_exactly_as_many_as_needed_and_only_free_cpus(situation):
    topology, free, need = situation
    picked = pick(topology, free, need)
    assert picked <= free
    assert len(picked) == need


@NO_DEADLINE
@given(situations(), st.randoms())
def test_same_question_same_answer(situation, random):
    topology, free, need = situation
    shuffled = sorted(free)
    random.shuffle(shuffled)
    cpus = list(topology.cpus)
    random.shuffle(cpus)
    assert pick(replace(topology, cpus=tuple(cpus)), frozenset(shuffled), need) == pick(topology, free, need)


@NO_DEADLINE
@given(situations(*UNIFORM))
def test_picks_as_many_whole_cores_as_possible(situation):
    topology, free, need = situation
    threads = len(topology.siblings(0))
    possible = min(need // threads * threads, len(whole(topology, free)))
    assert len(whole(topology, pick(topology, free, need))) >= possible


@NO_DEADLINE
@given(situations(*UNIFORM))
def test_at_most_one_core_is_split_for_the_rest(situation):
    topology, free, need = situation
    left = whole(topology, free - pick(topology, free, need))
    threads = len(topology.siblings(0))
    assert len(whole(topology, free)) - len(left) <= (need + threads - 1) // threads * threads


@NO_DEADLINE
@given(situations(*UNIFORM))
def test_no_core_is_split_while_one_cache_has_enough(situation):
    topology, free, need = situation
    threads = len(topology.siblings(0))
    caches = topology.l3_caches.values() or [topology.online]

    def is_perfect(part: CpuSet) -> bool:
        cores = len(whole(topology, part))
        return cores >= need - need % threads and len(part) - cores >= need % threads

    if any(is_perfect(cache & free) for cache in caches):
        left = whole(topology, free - pick(topology, free, need))
        assert len(left) >= len(whole(topology, free)) - (need - need % threads)


@NO_DEADLINE
@given(situations(*UNIFORM))
def test_one_cache_if_one_can_hold_all_in_as_many_whole_cores(situation):
    topology, free, need = situation
    threads = len(topology.siblings(0))
    wanted = min(need // threads * threads, len(whole(topology, free)))
    caches = topology.l3_caches.values() or [topology.online]
    if any(len(c & free) >= need and len(whole(topology, c & free)) >= wanted for c in caches):
        picked = pick(topology, free, need)
        assert any(picked <= cache for cache in caches)


@NO_DEADLINE
@given(situations(*UNIFORM))
def test_one_node_if_one_can_hold_all_in_as_many_whole_cores(situation):
    topology, free, need = situation
    threads = len(topology.siblings(0))
    wanted = min(need // threads * threads, len(whole(topology, free)))
    nodes = topology.numa_nodes.values()
    if any(len(n & free) >= need and len(whole(topology, n & free)) >= wanted for n in nodes):
        picked = pick(topology, free, need)
        assert any(picked <= node for node in nodes)


@NO_DEADLINE
@given(situations("hybrid"))
def test_one_kind_of_core_if_one_has_enough(situation):
    topology, free, need = situation
    kinds = Counter(topology.by_id[cpu].core_type for cpu in free)
    used = Counter(topology.by_id[cpu].core_type for cpu in pick(topology, free, need))
    if kinds["p-core"] >= need:
        assert set(used) == {"p-core"}
    elif kinds["e-core"] >= need:
        assert set(used) == {"e-core"}
    else:
        assert set(used) == {"p-core", "e-core"}


@NO_DEADLINE
@given(situations())
def test_full_cores_shares_no_core(situation):
    topology, free, need = situation
    try:
        picked = pick(topology, free, need, FULL)
    except (CoreAlignmentError, NotEnoughCpusError):
        cores = [len(core) for core in topology.cores.values() if core <= free]
        sums = {0}
        for core in cores:
            sums |= {total + core for total in sums}
        assert need not in sums
    else:
        assert whole(topology, picked) == picked
        assert len(picked) == need


@NO_DEADLINE
@given(situations(), st.lists(st.integers(1, 8), max_size=12))
def test_claims_in_turn_never_overlap(situation, needs):
    topology, free, _ = situation
    held: CpuSet = frozenset()
    for need in needs:
        if need > len(free - held):
            with pytest.raises(NotEnoughCpusError):
                pick(topology, free - held, need)
            break
        picked = pick(topology, free - held, need)
        assert not picked & held
        held |= picked
    assert held <= free
