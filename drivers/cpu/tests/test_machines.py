"""Rules that hold on every machine, in every group, for every configuration, whatever claims came before."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest
from dra_driver_cpu import CpuConfig, CpuDriver, CpuSettings
from dra_driver_cpu.devices import CpuGroup, cpu_groups
from dra_driver_cpu.pick import CoreAlignmentError, NoSuchCpusError, NotEnoughCpusError, PickPolicy, pick
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from dra_sdk.hardware import CpuSet, CpuTopology, read_cpus
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.machines import MACHINES
from dra_sdk.testing.sysfs import regular_machine

ARCHIVE = Path(__file__).parent / "vm-2-cpus.tar.gz"
"""A real machine, recorded by `dra-sdk capture`: a virtual one with two CPUs of one thread each."""
SMALL_EPYCS = {
    "epyc-8-ccx": regular_machine(cores=16, l3_caches=8),
    "epyc-2-sockets-nps4": regular_machine(sockets=2, numa_nodes=4, cores=4, l3_caches=2),
}
"""All their nodes and caches, with two cores in each cache for eight: writing the files of 384 CPUs takes long."""
DESCRIBED = {**MACHINES, **SMALL_EPYCS}
NAMES = (*DESCRIBED, "vm-2-cpus")
NO_DEADLINE = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None)
REFUSED = (CoreAlignmentError, NoSuchCpusError, NotEnoughCpusError)
GROUPS = ("numanode", "socket", "l3cache", "machine")
CONFIGS = st.builds(
    PickPolicy,
    full_cores=st.booleans(),
    spread=st.booleans(),
    one_l3=st.booleans(),
    distribute=st.booleans(),
    core_type=st.sampled_from([None, None, "p-core", "e-core"]),
)


@cache
def topology_of(name: str) -> CpuTopology:
    with tempfile.TemporaryDirectory() as root:
        if name == "vm-2-cpus":
            return read_cpus(FakeNode.from_archive(ARCHIVE, Path(root)).node)
        return read_cpus(DESCRIBED[name].write(Path(root)))


@pytest.fixture(scope="module", autouse=True)
def _machines_are_read_before_the_first_example() -> None:
    for name in NAMES:
        topology_of(name)


@st.composite
def groups(draw: st.DrawFn, full_cores: st.SearchStrategy[bool]) -> tuple[CpuTopology, CpuGroup]:
    """A group of a machine, some of whose CPUs are reserved."""
    topology = topology_of(draw(st.sampled_from(NAMES)))
    reserved = draw(st.frozensets(st.sampled_from(sorted(topology.online)), max_size=len(topology.online) // 4))
    by = draw(st.sampled_from(GROUPS))
    every = cpu_groups(topology, CpuSettings(group_by=by, reserved_cpus=reserved, full_cores=draw(full_cores)))
    assume(every)  # a small machine may keep all its cores back
    return topology, draw(st.sampled_from(every))


def in_turn(
    topology: CpuTopology, group: CpuGroup, claims: Sequence[tuple[int, PickPolicy]]
) -> list[tuple[PickPolicy, CpuSet]]:
    """What claims get one after the other; those that are refused get nothing."""
    free, given_away = group.cpus, []
    for need, policy in claims:
        try:
            picked = pick(topology, free, need, policy)
        except REFUSED:
            continue
        assert len(picked) == need
        given_away.append((policy, picked))
        free -= picked
    return given_away


@NO_DEADLINE
@given(groups(st.booleans()), st.lists(st.tuples(st.integers(1, 24), CONFIGS), max_size=10))
def test_claims_never_overlap_and_never_leave_their_group(where, claims):
    topology, group = where
    picked = [cpus for _, cpus in in_turn(topology, group, claims)]
    together = frozenset().union(*picked)
    assert together <= group.cpus
    assert len(together) == sum(map(len, picked))


@NO_DEADLINE
@given(groups(st.booleans()), st.lists(st.tuples(st.integers(1, 24), CONFIGS), max_size=10))
def test_what_a_claim_says_is_kept(where, claims):
    topology, group = where
    for policy, cpus in in_turn(topology, group, claims):
        used = [topology.by_id[cpu] for cpu in cpus]
        if policy.full_cores:
            assert all(topology.siblings(cpu) <= cpus for cpu in cpus)
        if policy.one_l3:
            assert len({cpu.l3 for cpu in used}) == 1
        if policy.core_type:
            assert {cpu.core_type for cpu in used} == {policy.core_type}


@NO_DEADLINE
@given(groups(st.just(value=True)), st.lists(st.integers(1, 24), max_size=10))
def test_in_full_core_mode_no_core_has_cpus_of_two_claims_or_of_others(where, needs):
    topology, group = where
    assert all(topology.siblings(cpu) <= group.cpus for cpu in group.cpus) or group.kind == "l3cache"
    for _, cpus in in_turn(topology, group, [(need, PickPolicy(full_cores=True)) for need in needs]):
        assert all(topology.siblings(cpu) <= cpus for cpu in cpus)


@NO_DEADLINE
@given(groups(st.booleans()), st.integers(1, 64), CONFIGS, st.randoms())
def test_the_same_question_has_the_same_answer(where, need, policy, random):
    topology, group = where
    cpus = list(topology.cpus)
    random.shuffle(cpus)
    shuffled = CpuTopology(tuple(cpus), topology.offline, topology.isolated, topology.nohz_full, topology.smt)

    def answer(of: CpuTopology) -> CpuSet | str:
        try:
            return pick(of, group.cpus, need, policy)
        except REFUSED as error:
            return str(error)

    assert answer(shuffled) == answer(topology)


@NO_DEADLINE
@given(groups(st.booleans()), st.integers(1, 64))
def test_spread_uses_as_many_cores_as_there_are(where, need):
    topology, group = where
    for _, cpus in in_turn(topology, group, [(need, PickPolicy(spread=True))]):
        cores = {topology.by_id[cpu].core for cpu in cpus}
        kinds = {topology.by_id[cpu].core_type for cpu in cpus}
        offered = {topology.by_id[cpu].core for cpu in group.cpus if topology.by_id[cpu].core_type in kinds}
        assert len(cores) == min(need, len(offered))


@NO_DEADLINE
@given(groups(st.just(value=False)), st.integers(1, 128))
def test_distributed_uses_the_fewest_nodes_that_can_give_the_same_number(where, need):
    topology, group = where
    for _, cpus in in_turn(topology, group, [(need, PickPolicy(distribute=True))]):
        sizes = sorted((len(node & group.cpus) for node in topology.numa_nodes.values()), reverse=True)
        even = [n for n in range(1, min(len(sizes), need) + 1) if _gives_evenly(sizes[:n], need)]
        numbers = [len(node & cpus) for node in topology.numa_nodes.values() if node & cpus]
        if even:
            assert len(numbers) == even[0]
            assert max(numbers) - min(numbers) <= 1


def _gives_evenly(sizes: Sequence[int], need: int) -> bool:
    """Whether nodes with these sizes, the largest first, can give the same number of CPUs, one aside."""
    per_node, over = divmod(need, len(sizes))
    return all(size >= per_node + (place < over) for place, size in enumerate(sizes))


def test_the_recorded_machine_is_published_and_claimed(tmp_path):
    driver = DriverHarness(CpuDriver, FakeNode.from_archive(ARCHIVE, tmp_path))
    driver.assert_publishable()
    assert driver.devices["cpudevnuma000"].attributes["numCPUs"] == 1  # the other CPU is for others
    config = CpuConfig(full_cores=True, l3_cache="require")
    driver.prepare(claim(request("cpu", capacity={"dra.cpu/cpu": "1"}), config=config))
    assert [device.data["cpus"] for device in driver.held[0].devices] == ["1"]
