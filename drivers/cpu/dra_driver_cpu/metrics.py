"""What the driver adds to its metrics: how many CPUs claims have, how many they can still get, and who has the others.

The first four names are those of the existing driver `kubernetes-sigs/dra-driver-cpu`. Here they have a value for each
NUMA node, because a claim takes the CPUs of one node by default; the sum is the existing driver's value.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dra_driver_cpu.allocatable import allocatable_cpus, cpus_of, held_cpus
from dra_driver_cpu.pinning import shared_pool
from dra_driver_cpu.settings import CpuSettings
from dra_sdk import Gauge, HeldClaim
from dra_sdk.hardware import CpuSet, CpuTopology


def cpu_gauges(topology: CpuTopology, settings: CpuSettings, held: Sequence[HeldClaim]) -> Iterator[Gauge]:
    """Yield the values now. A claim that holds no CPUs, as one with admin access, is not counted."""
    taken = held_cpus(held)
    sets: dict[str, tuple[str, CpuSet]] = {
        "allocated": ("CPUs that claims have", taken),
        "available": ("Online CPUs that claims can still get", allocatable_cpus(topology, settings) - taken),
        "reserved": ("CPUs that no claim gets, by the setting", settings.reserved_cpus & topology.online),
        "shared": (
            "CPUs of containers without claims",
            shared_pool(topology.online, settings.reserved_cpus, topology.isolated, taken),
        ),
    }
    for name, (text, cpus) in sets.items():
        for node, local in topology.numa_nodes.items():
            yield Gauge(f"dra_cpu_{name}_cpus", text, len(cpus & local), {"numa_node": str(node)})
    yield Gauge("dra_cpu_offline_cpus", "CPUs that are present and offline", len(topology.offline))
    claims = sum(bool(cpus_of(claim)) for claim in held)
    yield Gauge("dra_cpu_resource_claims_active", "Claims that have CPUs", claims)
