"""The driver: publishes NUMA nodes, picks exclusive CPUs for each claim, and tells its containers their numbers.

Each NUMA node is a device, of whose CPUs a claim consumes a number. The driver keeps no state of its own: it reads from
the held claims which CPUs are taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from threading import Event
from typing import Annotated, Final

from pydantic import Field

from dra_driver_cpu.pick import PickPolicy, pick
from dra_driver_cpu.pinning import Pinning, check_shared_pool
from dra_sdk import (
    AllocatedDevice,
    Capacity,
    Claim,
    Container,
    ContainerAdjustment,
    ContainerEdits,
    ContainerResources,
    Device,
    DraError,
    DriverInfo,
    DriverSettings,
    FromText,
    HeldClaim,
    Node,
    OpaqueConfig,
    PermanentError,
    PreparedDevice,
    RequestPolicy,
)
from dra_sdk.hardware import (
    NUMA_NODE,
    CpuSet,
    CpuTopology,
    format_cpuset,
    parse_cpuset,
    read_cpus,
    read_cpuset,
    uevents,
)
from dra_sdk.hardware.uevents import KernelUevents, UeventSource

CAPACITY: Final = "dra.cpu/cpu"


class CpuConfig(OpaqueConfig, api_version="dra.cpu/v1alpha1"):
    """How the CPUs of a request are picked."""

    full_cores: bool = Field(
        default=False,
        description="Only whole physical cores; refuse a number that is not a sum of them.",
    )


class CpuSettings(DriverSettings, prefix="DRA_CPU_"):
    """The settings of one node."""

    reserved_cpus: Annotated[CpuSet, FromText(parse_cpuset, "CPU list, such as 0-1,8")] = Field(
        default=frozenset(), description="CPUs that no claim gets; must be the kubelet's `reservedSystemCPUs`"
    )


class CpuDriver:
    """DRA driver `dra.cpu`. Without `settings` it has their defaults.

    `source` opens the uevents by which it notices CPUs that go online or offline.
    """

    settings_class = CpuSettings

    def __init__(
        self, settings: CpuSettings | None = None, *, source: Callable[[], UeventSource] = KernelUevents
    ) -> None:
        self._settings = settings or CpuSettings()
        self._source = source

    def dra_driver_info(self) -> DriverInfo:
        """Name, configuration and CDI kind."""
        return DriverInfo("dra.cpu", configs=[CpuConfig], cdi_kind="dra.k8s.io/cpu")

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """One device per NUMA node that has unreserved CPUs, in the order of the nodes."""
        topology = read_cpus(node)
        for name, cpus in cpus_by_device(topology, self._settings.reserved_cpus).items():
            yield _device(name, cpus, topology)

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Notice CPUs that go online or offline, by events of the kernel."""
        online = node.sys / "devices/system/cpu/online"
        uevents.watch(lambda: read_cpuset(online), changed, stop, {"cpu"}, source=self._source)

    def dra_prepare(self, claim: Claim[CpuConfig]) -> Iterator[PreparedDevice]:
        """Pick CPUs for every device, then put the CPUs of each request into the environment of its containers."""
        topology = read_cpus(claim.node)
        picked: list[CpuSet] = []
        for device in claim.devices:
            taken = _taken(claim.held()).union(*picked)
            available = (device.hardware & topology.online) - taken
            picked.append(pick(topology, available, _number(device), PickPolicy(device.config.full_cores)))
        check_shared_pool(topology.online, self._settings.reserved_cpus, claim.held(), frozenset().union(*picked))
        for device, cpus in zip(claim.devices, picked, strict=True):
            edits, name = _edits(claim, device, picked)
            yield device.prepared(edits, data={"cpus": format_cpuset(cpus)}, cdi_name=name)

    def dra_create_container(self, container: Container, held: Sequence[HeldClaim], node: Node) -> ContainerAdjustment:
        """Pin a container before it starts."""
        return Pinning.read(node, self._settings.reserved_cpus, held).adjustment(container)

    def dra_synchronize(
        self, containers: Sequence[Container], held: Sequence[HeldClaim], node: Node
    ) -> Mapping[str, ContainerResources]:
        """Pin all containers: the shared pool shrinks and grows with the claims."""
        return Pinning.read(node, self._settings.reserved_cpus, held).synchronize(containers)


def cpus_by_device(topology: CpuTopology, reserved: CpuSet) -> dict[str, CpuSet]:
    """The CPUs that claims can get, by device; a NUMA node whose CPUs are all reserved has no device.

    Raises DraError if a reserved CPU does not exist: a mistyped list would give claims CPUs that the system needs.
    """
    unknown = reserved - topology.online - topology.offline
    if unknown:
        raise DraError(
            f"reserved CPUs {format_cpuset(unknown)} do not exist; online are {format_cpuset(topology.online)}"
        )
    found = {f"cpudevnuma{node:03d}": cpus - reserved for node, cpus in topology.numa_nodes.items()}
    return {name: cpus for name, cpus in found.items() if cpus}


def _device(name: str, cpus: CpuSet, topology: CpuTopology) -> Device:
    first = topology.by_id[min(cpus)]
    # Without a policy, a request without a number takes the whole node, and a request for 1500m fails only at prepare.
    # The API server refuses a step that leads beyond the capacity, so a single CPU is a list of one value.
    several = RequestPolicy(default=1, min=1, max=len(cpus), step=1)
    policy = several if len(cpus) > 1 else RequestPolicy(default=1, valid_values=[1])
    return Device(
        name,
        attributes={
            NUMA_NODE: first.numa_node,
            "socketID": first.socket,
            "smtEnabled": topology.smt,
            "numCPUs": len(cpus),
            "numaNodeID": first.numa_node,  # older names, by which existing claims align
            "dra.net/numaNode": first.numa_node,
        },
        capacity={CAPACITY: Capacity(len(cpus), policy)},
        allow_multiple_allocations=True,
        hardware=cpus,
    )


def _taken(held: Sequence[HeldClaim]) -> CpuSet:
    """The CPUs of all other claims."""
    return frozenset().union(*(parse_cpuset(device.data.get("cpus", "")) for claim in held for device in claim.devices))


def _number(device: AllocatedDevice[CpuConfig]) -> int:
    """How many CPUs the scheduler granted; all CPUs of the device if its capacity cannot be consumed in parts."""
    granted = device.consumed_capacity.get(CAPACITY)
    if granted is None:
        return len(device.hardware)
    if granted.value < 1 or granted.value.denominator != 1:
        raise PermanentError(f"device {device.name}: {CAPACITY} must be a whole number of CPUs from 1, is {granted}")
    return int(granted)


def _edits(
    claim: Claim[CpuConfig], device: AllocatedDevice[CpuConfig], picked: Sequence[CpuSet]
) -> tuple[ContainerEdits, str]:
    """The environment and the CDI name of a request. Both contain the request's name only if the claim has several."""
    requests = {each.base_request for each in claim.devices}
    cpus: CpuSet = frozenset().union(
        *(cpus for each, cpus in zip(claim.devices, picked, strict=True) if each.base_request == device.base_request)
    )
    one = len(requests) == 1
    variable = f"DRA_CPUSET_{claim.uid}" if one else f"DRA_CPUSET_{claim.uid}_{device.base_request}"
    name = f"claim-{claim.uid}" if one else f"claim-{claim.uid}_{device.base_request}"
    return ContainerEdits(env={variable: format_cpuset(cpus)}), name
