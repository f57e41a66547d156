"""Which CPUs of a node claims can get, and which they hold.

The driver keeps no state of its own: what claims hold is in the claims that the SDK remembers. A claim holds the CPUs
in the data of its devices, and those that its journal names while it is being prepared. A device with admin access
(KEP-5018) holds nothing.
"""

from __future__ import annotations

from collections.abc import Iterable

from dra_driver_cpu.config import CPU_VARIABLE, CPUS
from dra_driver_cpu.settings import CpuSettings
from dra_sdk import DraError, HeldClaim
from dra_sdk.hardware import CpuSet, CpuTopology, Host, format_cpuset, parse_cpuset, read_cpus, read_cpuset
from dra_sdk.hardware.pod_limits import read_pod_cpus, usable_topology


def read_topology(host: Host) -> CpuTopology:
    """Return the CPUs of a node; those that no pod may use, by the limits of its cgroup, are switched off."""
    return usable_topology(read_cpus(host), read_pod_cpus(host))


def read_usable_cpus(host: Host, online: CpuSet | None = None) -> CpuSet:
    """Return the numbers of its online CPUs that pods may use; `online` are those if they have been read before."""
    online = read_cpuset(host.sys / "devices/system/cpu/online") if online is None else online
    of_pods = read_pod_cpus(host)
    return online if of_pods is None else (online & of_pods or online)


def allocatable_cpus(topology: CpuTopology, settings: CpuSettings) -> CpuSet:
    """Return the online CPUs that claims can get: those that are published.

    Containers without claims need a CPU too. So where the settings leave all online CPUs to claims, the lowest one is
    kept back, unless the shared pool is optional. It is one that the kernel does not isolate, if there is such a CPU.
    Where devices are whole cores, the other threads of its core are kept back with it.

    A CPU of which the hardware does not say where it is, is for containers without claims alone.

    Raises DraError if a reserved CPU does not exist: a mistyped list would give claims CPUs that the system needs. Also
    if claims should get isolated CPUs only, and there are none.
    """
    unreserved = _unreserved_cpus(topology, settings)
    if settings.shared_pool == "optional" or unreserved != topology.online:
        return unreserved - topology.unplaced
    first = min(unreserved - topology.isolated or unreserved)
    whole = settings.full_cores or settings.device_mode == "partitionable"
    return unreserved - (topology.siblings(first) if whole else {first}) - topology.unplaced


def _unreserved_cpus(topology: CpuTopology, settings: CpuSettings) -> CpuSet:
    unknown = settings.reserved_cpus - topology.online - topology.offline
    if unknown:
        raise DraError(
            f"reserved CPUs {format_cpuset(unknown)} do not exist; online are {format_cpuset(topology.online)}"
        )
    unreserved = topology.online - settings.reserved_cpus
    if settings.isolated_cpus == "exclude":
        unreserved -= topology.isolated
    elif settings.isolated_cpus == "only":
        if not topology.isolated:
            raise DraError("isolatedCpus is only, and the kernel isolates no CPU: start it with isolcpus=")
        unreserved &= topology.isolated
    if settings.full_cores:
        unreserved = frozenset(cpu for cpu in unreserved if topology.siblings(cpu) <= unreserved)
    return unreserved


def held_cpus(claims: Iterable[HeldClaim]) -> CpuSet:
    """Return the CPUs that these claims hold, and those that they will hold when their preparation has ended."""
    return frozenset().union(*map(cpus_of, claims))


def cpus_of(claim: HeldClaim) -> CpuSet:
    """Return the CPUs that a claim holds, of all its requests; if nothing recorded says so, its CDI spec does."""
    devices = (device.data for device in claim.devices if not device.admin_access)
    lists = [str(record.get(CPUS, "")) for record in (*devices, *claim.journal)]
    lists += [cpus for name, cpus in claim.variables.items() if name.startswith(CPU_VARIABLE)]
    return frozenset().union(*map(parse_cpuset, lists))
