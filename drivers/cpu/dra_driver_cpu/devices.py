"""The devices: one per NUMA node, whose CPUs requests share by number."""

from __future__ import annotations

from collections.abc import Iterator

from dra_sdk import Capacity, Device, DraError, RequestPolicy
from dra_sdk.hardware import NUMA_NODE, CpuSet, CpuTopology, format_cpuset

CAPACITY = "dra.cpu/cpu"


def device_name(numa_node: int) -> str:
    """The device of a NUMA node."""
    return f"cpudevnuma{numa_node:03d}"


def groups(topology: CpuTopology, reserved: CpuSet) -> dict[str, CpuSet]:
    """The CPUs that may be given out, by device; nodes whose CPUs are all reserved have no device.

    DraError if a reserved CPU does not exist: a mistyped list would silently give out what the system needs.
    """
    unknown = reserved - topology.online - topology.offline
    if unknown:
        raise DraError(
            f"reserved CPUs {format_cpuset(unknown)} do not exist; online are {format_cpuset(topology.online)}"
        )
    nodes = {device_name(node): cpus - reserved for node, cpus in topology.numa_nodes.items()}
    return {name: cpus for name, cpus in nodes.items() if cpus}


def devices(topology: CpuTopology, reserved: CpuSet) -> Iterator[Device]:
    """One device per NUMA node with free CPUs, in the order of nodes."""
    for name, cpus in groups(topology, reserved).items():
        yield _device(name, cpus, topology)


def _device(name: str, cpus: CpuSet, topology: CpuTopology) -> Device:
    first = topology.by_id[min(cpus)]
    # Without a policy a request that names no number takes the whole node, and one for 1500m fails only at prepare.
    policy = RequestPolicy(default=1, min=1, max=len(cpus), step=1)
    return Device(
        name,
        attributes={
            NUMA_NODE: first.numa_node,
            "socketID": first.socket,
            "smtEnabled": topology.smt,
            "numCPUs": len(cpus),
            "numaNodeID": first.numa_node,  # the older names, which claims in the field align on
            "dra.net/numaNode": first.numa_node,
        },
        capacity={CAPACITY: Capacity(len(cpus), policy)},
        allow_multiple_allocations=True,
    )
