"""Clusters in which a claim cannot be allocated, each for a different reason, and one in which it can."""

from __future__ import annotations

from collections.abc import Callable

from dra_sdk.tools.scheduling.cluster.scheduling_cycle import schedule
from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, bare_node
from dra_sdk.tools.scheduling.explain.allocation_problem import AllocationProblem, ScheduledCluster
from dra_sdk.tools.scheduling.explain.request_inspection import (
    RequestInspection,
    RequestInspector,
)
from tests.tools.scheduling.clusters import (
    GPU,
    JSON,
    NIC,
    NUMA,
    ROOT,
    claim,
    cluster,
    device,
    device_class,
    exactly,
    gpus,
    mig,
    nics,
    pod,
    pool_slice,
    with_devices,
)
from tests.tools.scheduling.explain import situations

MIG = "mig.nvidia.com"
BIG = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'
A100 = 'device.attributes["gpu.nvidia.com"].productName == "A100"'


def profile(name: str) -> str:
    return f'device.attributes["gpu.nvidia.com"].profile == "{name}"'


def held(node: str, driver: str, *devices: str) -> list[JSON]:
    """A claim for each device, `old-<device>`, that holds it."""
    cls = driver
    return [
        with_devices(claim(f"old-{device}", exactly("x", cls)), ("x", driver, node, device), node=node)
        for device in devices
    ]


def memory() -> Snapshot:
    """The GPUs are too small; those on l0 and l1 are also of another model."""
    small = [gpus(f"l{index}", 2, memory="24Gi", model="L4") for index in range(2)]
    return cluster(
        [gpus(f"a{i}", 4) for i in range(5)], small, nics("a0", 2), claim("c", exactly("gpu", GPU, f"{BIG} && {A100}"))
    )


def taken() -> Snapshot:
    """Two are requested; on n1 none is free, on n2 one."""
    old = [
        *held("n1", GPU, "gpu-0", "gpu-1"),
        with_devices(claim("o", exactly("x", GPU)), ("x", GPU, "n2", "gpu-0"), node="n2"),
    ]
    return cluster(gpus("n1"), gpus("n2"), old, claim("c", exactly("gpu", GPU, count=2)))


def tainted() -> Snapshot:
    """All GPUs have a taint."""
    taints = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoExecute"}]
    return cluster(gpus("n1", taints=taints), claim("c", exactly("gpu", GPU)))


def aligned() -> Snapshot:
    """GPUs are free below two PCIe roots, NICs below two others."""
    old = [*held("n1", GPU, "gpu-0", "gpu-1"), *held("n1", NIC, "nic-2", "nic-3")]
    constraints = [{"matchAttribute": ROOT, "requests": ["gpu", "nic"]}]
    wanted = claim("c", exactly("gpu", GPU), exactly("nic", NIC), constraints=constraints)
    return cluster(gpus("n1", 4), nics("n1", 4), old, wanted)


def counters() -> Snapshot:
    """A whole GPU is requested, and each has one small partition in use."""
    old = held("n1", GPU, "gpu-0-mig-1g-5gb-6", "gpu-1-mig-1g-5gb-6")
    return cluster(mig("n1", 2), old, claim("c", exactly("whole", MIG, profile("7g.40gb"))))


def counters_together() -> Snapshot:
    """Three partitions are requested, any two of which fill the GPU."""
    halves = exactly("b", MIG, profile("3g.20gb"), count=2)
    return cluster(mig("n1"), claim("c", exactly("a", MIG, profile("4g.20gb")), halves))


def error() -> Snapshot:
    """The selector asks for an attribute that is a capacity."""
    return cluster(gpus("n1"), claim("c", exactly("gpu", GPU, 'device.attributes["gpu.nvidia.com"].memory > 40')))


def partly_error() -> Snapshot:
    """Only the GPU on n1, which is tried first, lacks the attribute."""
    good = pool_slice("n2", GPU, [device("gpu-0", {"type": "gpu", "fast": True})])
    return cluster(gpus("n1", 1), good, claim("c", exactly("gpu", GPU, 'device.attributes["gpu.nvidia.com"].fast')))


def shared() -> Snapshot:
    """16 CPUs are requested, 12 and 8 are left."""
    numa = [device(f"numa-{i}", {NUMA: i}, {"dra.cpu/cpu": "32"}, allowMultipleAllocations=True) for i in (0, 1)]
    old = [
        with_devices(claim(f"old-{i}", exactly("cpu", "cpu")), ("cpu", "dra.cpu", "n1", f"numa-{i}"), shareID=f"s{i}",
              consumedCapacity={"dra.cpu/cpu": used})
        for i, used in enumerate(("20", "24"))
    ]  # fmt: skip
    wanted = exactly("cpu", "cpu", capacity={"requests": {"dra.cpu/cpu": "16"}})
    cls = device_class("cpu", 'device.driver == "dra.cpu"')
    return cluster(pool_slice("n1", "dra.cpu", numa), old, cls, claim("c", wanted))


def incomplete() -> Snapshot:
    """A slice of the pool is missing."""
    slice_ = gpus("n1")
    slice_["spec"]["pool"]["resourceSliceCount"] = 2
    return cluster(slice_, claim("c", exactly("gpu", GPU)))


def everything() -> Snapshot:
    """All are requested, one is in use."""
    return cluster(gpus("n1", 4), held("n1", GPU, "gpu-3"), claim("c", exactly("all", GPU, allocationMode="All")))


def too_many() -> Snapshot:
    """All are requested, more than a claim can have."""
    return cluster(gpus("n1", 40), claim("c", exactly("all", GPU, allocationMode="All")))


def cordoned() -> Snapshot:
    """The pod cannot run where the devices are."""
    node = bare_node("n1") | {"spec": {"unschedulable": True}}
    return cluster(node, gpus("n1"), claim("c", exactly("gpu", GPU)), pod("p", "c"))


def together() -> Snapshot:
    """Another claim of the same pod needs the same devices."""
    return cluster(
        gpus("n1"), claim("a", exactly("gpu", GPU)), claim("c", exactly("gpu", GPU, count=2)), pod("p", "a", "c")
    )


def no_class() -> Snapshot:
    """The class does not exist."""
    return cluster(gpus("n1"), claim("c", exactly("gpu", "nothing")))


def two_things() -> Snapshot:
    """The GPUs are tainted, and too small."""
    taints = [{"key": "broken", "effect": "NoSchedule"}]
    return cluster(gpus("n1", taints=taints), claim("c", exactly("gpu", GPU, BIG)))


def alternatives() -> Snapshot:
    """The first alternative cannot be allocated, the second can."""
    big = {"name": "big", "deviceClassName": GPU, "selectors": [{"cel": {"expression": BIG}}]}
    two = {"name": "two", "deviceClassName": GPU, "allocationMode": "ExactCount", "count": 2}
    return cluster(gpus("n1", 4), claim("c", {"name": "gpu", "firstAvailable": [big, two]}))


FAILING: dict[str, Callable[[], Snapshot]] = {
    situation.__name__: situation
    for situation in (memory, taken, tainted, aligned, counters, counters_together, error, partly_error, shared,
                      incomplete, everything, too_many, cordoned, together, no_class, two_things)
}  # fmt: skip


def problem_of(name: str) -> AllocationProblem:
    target = ScheduledCluster(schedule(situations.FAILING[name]())).target_of_claim(("default", "c"))
    return target.problem(target.claims, target.snapshot.nodes)


def inspected(problem: AllocationProblem) -> list[RequestInspection]:
    return [
        RequestInspector(problem).inspect(problem.parsed_claim, request, problem.nodes[0])
        for request in problem.parsed_claim.requests
    ]
