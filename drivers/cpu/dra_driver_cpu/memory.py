"""The driver `dra.memory`: memory and huge pages of each NUMA node, by size.

Each NUMA node is a device for its memory, and one for its huge pages of each size. A container that uses a claim has
memory of the claim's NUMA nodes only (`cpuset.mems`), and as many huge pages as it was granted. Ordinary memory is
counted, not limited: the limit of a container is its `resources.limits.memory`. In one claim with `dra.cpu`,
`matchAttribute: resource.kubernetes.io/numaNode` gives CPUs and memory of the same node.

The driver keeps no state of its own: what was granted is recorded with the held claims.
"""

from __future__ import annotations

import mmap
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Annotated, Any, Final

from pydantic import Field

from dra_driver_cpu.hugepage_limits import HugepageLimits
from dra_driver_cpu.pinning import MEMORY_VARIABLE, request_edits
from dra_sdk import (
    AllocatedDevice,
    Capacity,
    Claim,
    Device,
    DeviceTaint,
    DraError,
    DriverInfo,
    DriverSettings,
    Gauge,
    HeldClaim,
    HeldDevice,
    Node,
    PreparedDevice,
    Quantity,
    RetriableError,
)
from dra_sdk.hardware import CpuSet, NumaNode, format_cpuset, numa_attribute, polling, read_numa_nodes
from dra_sdk.hardware.memory_kinds import MemoryKind, read_memory_kinds
from dra_sdk.hardware.node_access import NodeAccess, NodeEffects, SystemEffects
from dra_sdk.hardware.pod_limits import PodLimits, read_pod_limits
from dra_sdk.hardware.sharing import Sharing
from dra_sdk.nri import Container, ContainerAdjustment, ContainerResources, PodSandbox
from dra_sdk.settings import KubeletPath, Parsed

SIZE: Final = "size"
"""The capacity that claims consume, in bytes."""
WATCH_SECONDS: Final = 10.0
"""How often the number of huge pages is read; the kernel sends no event when it changes."""
KIND_TAINT: Final = "dra.memory/kind"
"""The taint of memory that is no ordinary memory; its value is the kind. A claim gets it only if it tolerates that."""
_MEMORY: Final = "memory"
_RUNTIME_UNITS: Final = (("GB", 1 << 30), ("MB", 1 << 20), ("KB", 1 << 10))


@dataclass(frozen=True, slots=True)
class ReservedMemory:
    """Memory that no claim gets.

    numa_node: number of the NUMA node.
    resource: `memory`, or huge pages of a size, such as `hugepages-2Mi`.
    size: how many bytes.
    """

    numa_node: int
    resource: str
    size: int

    def __str__(self) -> str:
        return f"{self.numa_node}:{self.resource}={Quantity.of(self.size, binary=True)}"


def parse_reserved(text: str) -> tuple[ReservedMemory, ...]:
    """Read what the kubelet's option `--reserved-memory` takes: `0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=1Gi`."""
    return tuple(_parse_amount(node, amount) for node, amount in _amounts(text))


def _amounts(text: str) -> Iterator[tuple[str, str]]:
    for part in filter(None, map(str.strip, text.split(";"))):
        node, _, amounts = part.partition(":")
        yield from ((node, amount) for amount in amounts.split(","))


def _parse_amount(node: str, amount: str) -> ReservedMemory:
    resource, _, size = amount.strip().partition("=")
    try:
        return ReservedMemory(int(node), resource, int(Quantity(size)))
    except ValueError:
        raise ValueError(f"{node}:{amount} must be NODE:RESOURCE=SIZE, such as 0:memory=1Gi") from None


class MemorySettings(DriverSettings, prefix="DRA_MEMORY_"):
    """The settings of one node. The path is that of the host, wherever its root is mounted."""

    reserved_memory: Annotated[
        tuple[ReservedMemory, ...], Parsed(parse_reserved, "such as 0:memory=1Gi,hugepages-2Mi=64Mi;1:memory=1Gi")
    ] = Field(default=(), description="memory that no claim gets; must be the kubelet's `reservedMemory`")
    state_dir: KubeletPath = Field(
        default="plugins/dra.memory",
        description="where the driver records the kubelet's own limits of pods whose limits it raises",
    )


@dataclass(frozen=True, slots=True)
class Memory:
    """Memory of one kind on one NUMA node: what one device stands for.

    numa_node: number of the NUMA node.
    page_size: bytes of one page.
    is_hugepages: whether it is huge pages.
    size: bytes that claims can get, a multiple of `page_size`.
    kind: what kind of memory the NUMA node has.
    """

    numa_node: int
    page_size: int
    is_hugepages: bool
    size: int
    kind: MemoryKind = MemoryKind.ORDINARY

    @property
    def page(self) -> Quantity:
        """The size of a page as Kubernetes writes it, such as 2Mi."""
        return Quantity.of(self.page_size, binary=True)

    @property
    def resource(self) -> str:
        """The resource of the node that it is: `memory`, `hugepages-2Mi`."""
        return f"hugepages-{self.page}" if self.is_hugepages else _MEMORY

    @property
    def name(self) -> str:
        """The name of the device, which is the same after every restart: `memory-numa0`, `hugepages-2mi-numa0`."""
        return f"{self.resource.lower()}-numa{self.numa_node}"


def available(nodes: Sequence[NumaNode], reserved: Sequence[ReservedMemory], page_size: int) -> list[Memory]:
    """Return what claims can get, by NUMA node: ordinary memory in pages of `page_size`, then huge pages by size.

    Ordinary memory is what huge pages leave. What has no free page after `reserved` is left out. Raises DraError if
    memory is reserved that does not exist: a mistyped setting would give claims what the system needs.
    """
    wanted = {(part.numa_node, part.resource): part.size for part in reserved}
    memory = []
    for node in nodes:
        in_hugepages = sum(pages.size * pages.total for pages in node.hugepages)
        every = [Memory(node.id, page_size, False, node.memory - in_hugepages)]
        every += [Memory(node.id, pages.size, True, pages.size * pages.total) for pages in node.hugepages]
        for kind in every:
            left = kind.size - wanted.pop((node.id, kind.resource), 0)
            pages_left = max(0, left) // kind.page_size
            memory.append(Memory(node.id, kind.page_size, kind.is_hugepages, pages_left * kind.page_size))
    if wanted:
        names = ", ".join(f"{resource} of NUMA node {node}" for node, resource in wanted)
        raise DraError(f"reserved {names}: does not exist; NUMA nodes are {format_cpuset(node.id for node in nodes)}")
    return [kind for kind in memory if kind.size]


def within(memory: Iterable[Memory], limits: PodLimits) -> list[Memory]:
    """Return what of some memory pods may have together; each NUMA node has its part of a limit that is too low."""
    usable = [kind for kind in memory if limits.mems is None or kind.numa_node in limits.mems]
    totals = Counter[str]()
    for kind in usable:
        totals[kind.resource] += kind.size
    limited = []
    for kind in usable:
        total = totals[kind.resource]
        limit = limits.hugepages.get(kind.page_size) if kind.is_hugepages else limits.memory
        if limit is not None and limit < total:
            kind = replace(kind, size=kind.size * limit // total // kind.page_size * kind.page_size)  # noqa: PLW2901
        limited.append(kind)
    return [kind for kind in limited if kind.size]


class MemoryDriver:
    """DRA driver `dra.memory`. Without `settings` it has their defaults.

    `effects` writes the limits of pods; `page_size` is that of ordinary memory on this machine.
    """

    settings_class = MemorySettings

    def __init__(
        self,
        settings: MemorySettings | None = None,
        *,
        effects: NodeEffects | None = None,
        page_size: int = mmap.PAGESIZE,
        watch_seconds: float = WATCH_SECONDS,
    ) -> None:
        self._settings = settings or MemorySettings()
        self._effects = effects or SystemEffects()
        self._page_size = page_size
        self._watch_seconds = watch_seconds
        self._limits = HugepageLimits(self._settings.state_dir)

    def dra_driver_info(self) -> DriverInfo:
        """Return name and CDI kind."""
        return DriverInfo("dra.memory", cdi_kind="dra.k8s.io/memory")

    def dra_discover(self, node: Node) -> Iterator[Device]:
        """Return a device for each kind of memory of each NUMA node."""
        return map(_device, self._available(node))

    def dra_watch(self, node: Node, changed: Callable[[], None], stop: Event) -> None:
        """Notice NUMA nodes and huge pages that are added or removed."""
        polling.watch(lambda: tuple(self._available(node)), changed, stop, self._watch_seconds)

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        """Record what each device grants, and name its NUMA nodes to the containers of each request.

        Raises RetriableError if fewer pages are left than the claim needs: someone has reduced the number of huge
        pages since the scheduler chose the device.
        """
        exists = {memory.name: memory.size for memory in self._available(claim.node)}
        for device in claim.devices:
            memory: Memory = device.hardware
            others = sum(
                other.data.get(SIZE, 0) for held in claim.held() for other in held.devices if other.name == device.name
            )
            mine = sum(_granted(other) for other in claim.devices if other.name == device.name)
            if others + mine > exists.get(device.name, 0):
                raise RetriableError(
                    f"device {device.name}: this claim needs {mine} bytes, other claims have {others}, "
                    f"the node has {exists.get(device.name, 0)}"
                )
            data = {
                "numaNode": memory.numa_node,
                "pageSize": memory.page_size,
                "hugeTLB": memory.is_hugepages,
                SIZE: _granted(device),
            }
            nodes = {other.hardware.numa_node for other in claim.devices if other.base_request == device.base_request}
            edits, name = request_edits(claim, device, MEMORY_VARIABLE, frozenset(nodes))
            yield device.prepared(edits, data=data, cdi_name=name)

    def dra_run_pod_sandbox(self, pod: PodSandbox, node: Node) -> None:
        """Raise the limits of huge pages that the kubelet has set for the pod as a whole."""
        if claimed := hugepages(pod.claims):
            self._limits.add(NodeAccess(node.root, self._effects), pod, claimed)

    def dra_create_container(self, container: Container) -> ContainerAdjustment | None:
        """Allow a container the huge pages of its claims beyond its own. Its other resources are synchronized.

        The limit of its pod has been raised before, with the sandbox or for this container.
        """
        own = container.resources.hugepage_limits
        limits = {size: limit + own.get(size, 0) for size, limit in hugepages(container.claims).items()}
        return ContainerAdjustment(ContainerResources(hugepage_limits=limits)) if limits else None

    def dra_synchronize(self, containers: Sequence[Container]) -> Mapping[str, ContainerResources]:
        """Limit containers with claims to their NUMA nodes. Limits of huge pages are set once, at creation."""
        nodes = {container.id: mems(container.claims) for container in containers if container.claims}
        return {name: ContainerResources(mems=numbers) for name, numbers in nodes.items() if numbers}

    def dra_metrics(self, node: Node, held: Sequence[HeldClaim]) -> Iterator[Gauge]:
        """Measure how many bytes of each kind of memory claims have, and how many they can still get."""
        granted = Counter[str]()
        for device in _prepared(held):
            granted[device.name] += device.data[SIZE]
        for memory in self._available(node):
            labels = {"numa_node": str(memory.numa_node), "resource": memory.resource}
            taken = granted[memory.name]
            yield Gauge("dra_memory_allocated_bytes", "Memory that claims have", taken, labels)
            left = max(0, memory.size - taken)
            yield Gauge("dra_memory_available_bytes", "Memory that claims can still get", left, labels)

    def _available(self, node: Node) -> list[Memory]:
        nodes = read_numa_nodes(node)
        kinds = read_memory_kinds(node, nodes)
        memory = available(nodes, self._settings.reserved_memory, self._page_size)
        usable = within(memory, read_pod_limits(node))
        return [replace(part, kind=kinds[part.numa_node]) for part in usable]


def mems(claims: Iterable[HeldClaim]) -> CpuSet:
    """Return the NUMA nodes of all devices of these claims."""
    return frozenset(device.data["numaNode"] for device in _prepared(claims))


def hugepages(claims: Iterable[HeldClaim]) -> dict[str, int]:
    """Return the bytes of huge pages that claims grant, by page size as container runtimes name it, such as `2MB`."""
    sizes: dict[str, int] = {}
    for device in _prepared(claims):
        if device.data["hugeTLB"]:
            name = runtime_page_size(device.data["pageSize"])
            sizes[name] = sizes.get(name, 0) + device.data[SIZE]
    return sizes


def runtime_page_size(size: int) -> str:
    """Return the name of a page size in OCI specs and cgroups: 2MB, 1GB, 64KB."""
    return next(f"{size // factor}{unit}" for unit, factor in _RUNTIME_UNITS if size >= factor)


def _prepared(claims: Iterable[HeldClaim]) -> Iterator[HeldDevice]:
    return (device for claim in claims for device in claim.devices if device.data)


def _device(memory: Memory) -> Device:
    size = Quantity.of(memory.size, binary=True)
    taint = DeviceTaint(key=KIND_TAINT, effect="NoSchedule", value=str(memory.kind))
    sharing = Sharing("divided", capacity=SIZE, step=memory.page, default=memory.page)
    device = Device(
        memory.name,
        attributes={
            **numa_attribute(memory.numa_node),
            "pageSize": str(memory.page),
            "hugeTLB": memory.is_hugepages,
            "memoryKind": str(memory.kind),
            "dra.cpu/numaNodeID": memory.numa_node,  # older names, by which existing claims align
            "dra.net/numaNode": memory.numa_node,
        },
        capacity={SIZE: Capacity(size)},
        taints=() if memory.kind == MemoryKind.ORDINARY else [taint],
        hardware=memory,
    )
    return sharing.apply(device)


def _granted(device: AllocatedDevice[Any]) -> int:
    """Return how many bytes the scheduler granted; all of the device if its capacity cannot be consumed in parts."""
    granted = device.consumed_capacity.get(SIZE)
    if granted is None:
        return int(device.hardware.size)
    return int(granted)
