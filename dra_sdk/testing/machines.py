"""Machines as they are sold, made of files: for tests that a driver must pass on each of them.

    @pytest.mark.parametrize("machine", MACHINES.values(), ids=MACHINES)
    def test_a_pod_gets_whole_cores(machine, dra_node, dra_driver):
        dra_node.machine(machine)

Each is smaller than its original where that changes nothing of the topology.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dra_sdk.testing.sysfs import FakeMachine, hybrid_machine, regular_machine


def xeon(sockets: int = 2, cores: int = 8) -> FakeMachine:
    """Return an Intel Xeon: a NUMA node and an L3 cache in each socket, in which the kernel's core ids start at 0."""
    return regular_machine(sockets=sockets, cores=cores)


def epyc(sockets: int = 1, numa_nodes: int = 1) -> FakeMachine:
    """Return an AMD EPYC: 64 cores in each socket, 8 in each L3 cache (CCX); `numa_nodes` per socket (NPS)."""
    return regular_machine(sockets=sockets, numa_nodes=numa_nodes, cores=64 // numa_nodes, l3_caches=8 // numa_nodes)


def power() -> FakeMachine:
    """Return an IBM POWER: two sockets, four threads a core, numbered in a row, an L3 cache for two cores."""
    return regular_machine(sockets=2, cores=4, l3_caches=2, threads=4, numbering="near")


def arm() -> FakeMachine:
    """Return an ARM server: one thread in each core, clusters of four cores, L3 caches without ids, no SMT control."""
    machine = regular_machine(numa_nodes=2, cores=8, l3_caches=2, threads=1)
    clustered = machine.changed(lambda cpu: replace(cpu, cluster=cpu.core // 4, die=None, capacity=1024))
    return replace(clustered, l3_ids=False, smt_control="notimplemented")


MACHINES: Final[Mapping[str, FakeMachine]] = {
    "xeon-1-socket": xeon(sockets=1),
    "xeon-2-sockets": xeon(),
    "epyc-8-ccx": epyc(),
    "hybrid-8p-8e": hybrid_machine(),
    "power-smt4": power(),
    "arm-no-cache-ids": arm(),
}
"""One machine of each kind, by name."""
