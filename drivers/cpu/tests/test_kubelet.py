"""The kubelet's static policy and this driver on the same requests, with each option of the policy and its counterpart.

The kubelet's answers are those of Kubernetes 1.37.1 (pkg/kubelet/cm/cpumanager, `takeByTopologyNUMAPacked` and
`takeByTopologyNUMADistributed`), for the CPU numbers in turn, each with what the answers before it leave free. The
driver gets the same free CPUs. `pytest -s` prints both.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from functools import cache
from pathlib import Path

import pytest
from dra_driver_cpu.pick import PickPolicy, pick

from dra_sdk.hardware import CpuSet, CpuTopology, format_cpuset, parse_cpuset, read_cpus
from dra_sdk.testing.machines import MACHINES

COUNTERPARTS = {
    "none": PickPolicy(),
    "full-pcpus-only": PickPolicy(full_cores=True),
    "prefer-align-cpus-by-uncorecache": PickPolicy(),
    "distribute-cpus-across-numa": PickPolicy(distribute=True),
    "distribute-cpus-across-cores": PickPolicy(spread=True),
}
"""The options that decide which CPUs are taken. `strict-cpu-reservation` and `align-by-socket` decide what is free:
they are the settings `reservedCpus` and `groupBy: socket`."""

ANSWERS = {
    "xeon-1-socket": {
        "none": [(1, "0"), (2, "1,9"), (4, "2-3,10-11"), (5, "4-5,8,12-13"), (2, "6,14")],
        "full-pcpus-only": [(4, "0-1,8-9"), (8, "2-5,10-13"), (4, "6-7,14-15")],
        "prefer-align-cpus-by-uncorecache": [(3, "0-1,8"), (2, "2,10"), (8, "3-6,11-14")],
        "distribute-cpus-across-numa": [(6, "0-2,8-10")],
        "distribute-cpus-across-cores": [(4, "0-3"), (2, "4-5"), (6, "6-11")],
    },
    "xeon-2-sockets": {
        "none": [(1, "0"), (2, "1,17"), (4, "2-3,18-19"), (5, "4-5,16,20-21"), (2, "6,22"), (8, "7-10,23-26")],
        "full-pcpus-only": [(4, "0-1,16-17"), (8, "2-5,18-21"), (4, "6-7,22-23"), (8, "8-11,24-27")],
        "prefer-align-cpus-by-uncorecache": [(3, "0-1,16"), (2, "8,24"), (8, "9-12,25-28"), (6, "13-15,29-31")],
        "distribute-cpus-across-numa": [(20, "0-4,8-12,16-20,24-28"), (6, "5-7,21-23")],
        "distribute-cpus-across-cores": [(4, "0-3"), (2, "4-5"), (6, "6-7,16-19")],
    },
    "epyc-8-ccx": {
        "none": [(1, "0"), (2, "1,65"), (4, "2-3,66-67"), (5, "4-5,64,68-69"), (2, "6,70"), (8, "7-10,71-74")],
        "full-pcpus-only": [(4, "0-1,64-65"), (8, "2-5,66-69"), (4, "6-7,70-71"), (8, "8-11,72-75")],
        "prefer-align-cpus-by-uncorecache": [(3, "0-1,64"), (2, "8,72"), (8, "9-12,73-76"), (6, "13-15,77-79")],
        "distribute-cpus-across-numa": [(20, "0-9,64-73"), (6, "10-12,74-76")],
        "distribute-cpus-across-cores": [(4, "0-3"), (2, "4-5"), (6, "6-11")],
    },
    "hybrid-8p-8e": {
        "none": [(1, "16"), (2, "17-18"), (4, "19-22"), (5, "0-3,23"), (2, "4-5"), (8, "6-13")],
        "full-pcpus-only": [(4, "16-19"), (8, "0-3,20-23"), (4, "4-7"), (8, "8-15")],
        "prefer-align-cpus-by-uncorecache": [(3, "16-18"), (2, "19-20"), (8, "0-4,21-23"), (6, "4-9")],
        "distribute-cpus-across-numa": [(20, "0-11,16-23")],
        "distribute-cpus-across-cores": [(4, "0-3"), (2, "4-5"), (6, "6-11")],
    },
    "power-smt4": {
        "none": [(1, "0"), (2, "1-2"), (4, "4-7"), (5, "3,8-11"), (2, "12-13"), (8, "16-23")],
        "full-pcpus-only": [(4, "0-3"), (8, "4-11"), (4, "12-15"), (8, "16-23")],
        "prefer-align-cpus-by-uncorecache": [(3, "0-2"), (2, "3-4"), (8, "8-15"), (6, "5-6,16-19")],
        "distribute-cpus-across-numa": [(20, "0-9,16-25"), (6, "10-15")],
        "distribute-cpus-across-cores": [(4, "0-3"), (2, "4-5"), (6, "6-11")],
    },
    "arm-no-cache-ids": {
        "none": [(1, "0"), (2, "1-2"), (4, "3-6"), (5, "7-11"), (2, "12-13")],
        "full-pcpus-only": [(4, "0-3"), (8, "8-15"), (4, "4-7")],
        "prefer-align-cpus-by-uncorecache": [(3, "0-2"), (2, "4-5"), (8, "8-15")],
        "distribute-cpus-across-numa": [(6, "0-5")],
        "distribute-cpus-across-cores": [(4, "0-3"), (2, "4-5"), (6, "6-11")],
    },
}


@cache
def topology_of(machine: str) -> CpuTopology:
    with tempfile.TemporaryDirectory() as root:
        return read_cpus(MACHINES[machine].write(Path(root)))


def single_threads(topology: CpuTopology, cpus: CpuSet) -> int:
    """How many of the CPUs are on cores of which the claim has only a part."""
    return sum(not topology.siblings(cpu) <= cpus for cpu in cpus)


def parts(topology: CpuTopology, cpus: CpuSet) -> tuple[int, int]:
    """How many NUMA nodes and L3 caches the CPUs are in."""
    used = [topology.by_id[cpu] for cpu in cpus]
    return len({cpu.numa_node for cpu in used}), len({(cpu.numa_node, cpu.l3) for cpu in used})


def kinds(topology: CpuTopology, cpus: CpuSet) -> tuple[int, int]:
    """How many kinds of cores are used, and how many CPUs of the slower kind."""
    used = [topology.by_id[cpu].core_type for cpu in cpus]
    return len(set(used)), used.count("e-core")


def cores(topology: CpuTopology, cpus: CpuSet) -> int:
    return len({topology.by_id[cpu].core for cpu in cpus})


def imbalance(topology: CpuTopology, cpus: CpuSet) -> int:
    """The difference between the most and the fewest CPUs of a NUMA node that is used."""
    numbers = Counter(topology.by_id[cpu].numa_node for cpu in cpus).values()
    return max(numbers) - min(numbers)


CASES = [(machine, option) for machine, options in ANSWERS.items() for option in options]


@pytest.mark.parametrize(("machine", "option"), CASES, ids=[" ".join(case) for case in CASES])
def test_the_driver_is_never_worse_than_the_kubelet(machine, option):
    topology, free = topology_of(machine), topology_of(machine).online
    for need, answer in ANSWERS[machine][option]:
        theirs, ours = parse_cpuset(answer), pick(topology, free, need, COUNTERPARTS[option])
        print(f"\n{machine:17} {option:33} {need:2} CPUs: kubelet {answer:24} dra.cpu {format_cpuset(ours)}", end="")
        assert len(ours) == need
        assert ours <= free
        if option == "distribute-cpus-across-cores":
            assert cores(topology, ours) >= cores(topology, theirs)
        elif option == "distribute-cpus-across-numa":
            assert parts(topology, ours)[0] <= parts(topology, theirs)[0]
            assert imbalance(topology, ours) <= imbalance(topology, theirs)
        else:
            mine = kinds(topology, ours), single_threads(topology, ours), parts(topology, ours)
            assert mine <= (kinds(topology, theirs), single_threads(topology, theirs), parts(topology, theirs))
        free -= theirs


def test_with_equal_cores_and_one_cache_a_node_both_take_the_same():
    """What differs otherwise is intended: see `dra_driver_cpu.pick`."""
    for option in ("none", "full-pcpus-only", "distribute-cpus-across-numa", "distribute-cpus-across-cores"):
        topology, free = topology_of("xeon-1-socket"), topology_of("xeon-1-socket").online
        for need, answer in ANSWERS["xeon-1-socket"][option]:
            assert format_cpuset(pick(topology, free, need, COUNTERPARTS[option])) == answer
            free -= parse_cpuset(answer)


def test_the_readme_names_every_option_of_the_policy():
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    options = {*COUNTERPARTS, "strict-cpu-reservation", "align-by-socket"} - {"none"}
    assert [option for option in sorted(options) if f"`{option}`" not in readme] == []
