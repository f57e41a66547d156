"""The driver: publishes NUMA nodes, gives claims CPUs that nobody else has, tells the container which."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dra_driver_cpu.config import CpuConfig, NodeSettings
from dra_driver_cpu.devices import CAPACITY, devices, groups
from dra_driver_cpu.pick import PickPolicy, pick
from dra_sdk import (
    AllocatedDevice,
    Claim,
    ContainerEdits,
    Device,
    DriverInfo,
    HeldClaim,
    Node,
    PermanentError,
    PreparedDevice,
)
from dra_sdk.hardware import CpuSet, Host, format_cpuset, parse_cpuset, read_cpus


class CpuDriver:
    """DRA driver `dra.cpu`. It keeps no state: what is taken is read from the claims that are held."""

    def __init__(self, settings: NodeSettings | None = None) -> None:
        self._settings = settings or NodeSettings.read()

    def dra_driver_info(self) -> DriverInfo:
        """Name, configuration and CDI kind."""
        return DriverInfo("dra.cpu", configs=[CpuConfig], cdi_kind="dra.k8s.io/cpu")

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """One device per NUMA node."""
        return devices(read_cpus(Host(node.root)), self._settings.reserved)

    def dra_prepare(self, claim: Claim[CpuConfig]) -> Iterator[PreparedDevice]:
        """Pick CPUs for every device first, then tell each request's containers about the CPUs of that request."""
        topology = read_cpus(Host(claim.node.root))
        free = groups(topology, self._settings.reserved)
        picked: list[CpuSet] = []
        for device in claim.devices:
            taken = _taken(claim.held()).union(*picked)
            available = free.get(device.name, frozenset()) - taken
            picked.append(pick(topology, available, _wanted(device, free), PickPolicy(device.config.full_cores)))
        for device, cpus in zip(claim.devices, picked, strict=True):
            edits, name = _edits(claim, device, picked)
            yield device.prepared(edits, data={"cpus": format_cpuset(cpus)}, cdi_name=name)


def _taken(held: Sequence[HeldClaim]) -> CpuSet:
    """The CPUs of all other claims."""
    return frozenset().union(*(parse_cpuset(device.data.get("cpus", "")) for claim in held for device in claim.devices))


def _wanted(device: AllocatedDevice[CpuConfig], free: dict[str, CpuSet]) -> int:
    """How many CPUs the scheduler granted; the whole group where capacity cannot be consumed in parts."""
    granted = device.consumed_capacity.get(CAPACITY)
    if granted is None:
        if device.name not in free:
            raise PermanentError(f"device {device.name} does not exist on this node")
        return len(free[device.name])
    if granted.value < 1 or granted.value.denominator != 1:
        raise PermanentError(f"device {device.name}: {CAPACITY} must be a whole number of CPUs from 1, not {granted}")
    return int(granted)


def _edits(
    claim: Claim[CpuConfig], device: AllocatedDevice[CpuConfig], picked: Sequence[CpuSet]
) -> tuple[ContainerEdits, str]:
    """The environment and CDI device of a request: named after the claim alone where it has only one request."""
    requests = {each.base_request for each in claim.devices}
    cpus: CpuSet = frozenset().union(
        *(cpus for each, cpus in zip(claim.devices, picked, strict=True) if each.base_request == device.base_request)
    )
    one = len(requests) == 1
    variable = f"DRA_CPUSET_{claim.uid}" if one else f"DRA_CPUSET_{claim.uid}_{device.base_request}"
    name = f"claim-{claim.uid}" if one else f"claim-{claim.uid}_{device.base_request}"
    return ContainerEdits(env={variable: format_cpuset(cpus)}), name
