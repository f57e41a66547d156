"""Clusters in which a claim cannot be had, each for another reason, and one in which it can."""

from __future__ import annotations

from collections.abc import Callable

from dra_sdk.tools.scheduling.cluster.snapshot import Snapshot, plain_node
from tests.tools.scheduling.worlds import (
    GPU,
    JSON,
    NIC,
    NUMA,
    ROOT,
    claim,
    device,
    device_class,
    exactly,
    given,
    gpus,
    mig,
    nics,
    pod,
    pool_slice,
    world,
)

MIG = "mig.nvidia.com"
BIG = 'device.capacity["gpu.nvidia.com"].memory.compareTo(quantity("80Gi")) >= 0'
A100 = 'device.attributes["gpu.nvidia.com"].productName == "A100"'


def profile(name: str) -> str:
    return f'device.attributes["gpu.nvidia.com"].profile == "{name}"'


def held(node: str, driver: str, *devices: str) -> list[JSON]:
    """A claim for each device, `old-<device>`, that holds it."""
    cls = driver
    return [given(claim(f"old-{each}", exactly("x", cls)), ("x", driver, node, each), node=node) for each in devices]


def memory() -> Snapshot:
    """The GPUs are too small; those on l0 and l1 are of another model besides."""
    small = [gpus(f"l{index}", 2, memory="24Gi", model="L4") for index in range(2)]
    return world(
        [gpus(f"a{i}", 4) for i in range(5)], small, nics("a0", 2), claim("c", exactly("gpu", GPU, f"{BIG} && {A100}"))
    )


def taken() -> Snapshot:
    """Two are wanted; on n1 none is free, on n2 one."""
    old = [
        *held("n1", GPU, "gpu-0", "gpu-1"),
        given(claim("o", exactly("x", GPU)), ("x", GPU, "n2", "gpu-0"), node="n2"),
    ]
    return world(gpus("n1"), gpus("n2"), old, claim("c", exactly("gpu", GPU, count=2)))


def tainted() -> Snapshot:
    """All GPUs have a taint."""
    taints = [{"key": "gpu.nvidia.com/xid", "value": "79", "effect": "NoExecute"}]
    return world(gpus("n1", taints=taints), claim("c", exactly("gpu", GPU)))


def aligned() -> Snapshot:
    """GPUs are free below two PCIe roots, NICs below two others."""
    old = [*held("n1", GPU, "gpu-0", "gpu-1"), *held("n1", NIC, "nic-2", "nic-3")]
    constraints = [{"matchAttribute": ROOT, "requests": ["gpu", "nic"]}]
    wanted = claim("c", exactly("gpu", GPU), exactly("nic", NIC), constraints=constraints)
    return world(gpus("n1", 4), nics("n1", 4), old, wanted)


def counters() -> Snapshot:
    """A whole GPU is wanted, and each has one small partition in use."""
    old = held("n1", GPU, "gpu-0-mig-1g-5gb-6", "gpu-1-mig-1g-5gb-6")
    return world(mig("n1", 2), old, claim("c", exactly("whole", MIG, profile("7g.40gb"))))


def counters_together() -> Snapshot:
    """Three partitions are wanted, of which any two fill the GPU."""
    halves = exactly("b", MIG, profile("3g.20gb"), count=2)
    return world(mig("n1"), claim("c", exactly("a", MIG, profile("4g.20gb")), halves))


def error() -> Snapshot:
    """The selector asks for an attribute that is a capacity."""
    return world(gpus("n1"), claim("c", exactly("gpu", GPU, 'device.attributes["gpu.nvidia.com"].memory > 40')))


def partly_error() -> Snapshot:
    """Only the GPU on n1, which is tried first, lacks the attribute."""
    good = pool_slice("n2", GPU, [device("gpu-0", {"type": "gpu", "fast": True})])
    return world(gpus("n1", 1), good, claim("c", exactly("gpu", GPU, 'device.attributes["gpu.nvidia.com"].fast')))


def shared() -> Snapshot:
    """16 CPUs are wanted, 12 and 8 are left."""
    numa = [device(f"numa-{i}", {NUMA: i}, {"dra.cpu/cpu": "32"}, allowMultipleAllocations=True) for i in (0, 1)]
    old = [
        given(claim(f"old-{i}", exactly("cpu", "cpu")), ("cpu", "dra.cpu", "n1", f"numa-{i}"), shareID=f"s{i}",
              consumedCapacity={"dra.cpu/cpu": used})
        for i, used in enumerate(("20", "24"))
    ]  # fmt: skip
    wanted = exactly("cpu", "cpu", capacity={"requests": {"dra.cpu/cpu": "16"}})
    cls = device_class("cpu", 'device.driver == "dra.cpu"')
    return world(pool_slice("n1", "dra.cpu", numa), old, cls, claim("c", wanted))


def incomplete() -> Snapshot:
    """A slice of the pool is missing."""
    slice_ = gpus("n1")
    slice_["spec"]["pool"]["resourceSliceCount"] = 2
    return world(slice_, claim("c", exactly("gpu", GPU)))


def everything() -> Snapshot:
    """All are wanted, one is in use."""
    return world(gpus("n1", 4), held("n1", GPU, "gpu-3"), claim("c", exactly("all", GPU, allocationMode="All")))


def too_many() -> Snapshot:
    """All are wanted, more than a claim can have."""
    return world(gpus("n1", 40), claim("c", exactly("all", GPU, allocationMode="All")))


def cordoned() -> Snapshot:
    """The pod cannot run where the devices are."""
    node = plain_node("n1") | {"spec": {"unschedulable": True}}
    return world(node, gpus("n1"), claim("c", exactly("gpu", GPU)), pod("p", "c"))


def together() -> Snapshot:
    """Another claim of the same pod takes what this one needs."""
    return world(
        gpus("n1"), claim("a", exactly("gpu", GPU)), claim("c", exactly("gpu", GPU, count=2)), pod("p", "a", "c")
    )


def no_class() -> Snapshot:
    """The class does not exist."""
    return world(gpus("n1"), claim("c", exactly("gpu", "nothing")))


def two_things() -> Snapshot:
    """The GPUs are tainted, and too small."""
    taints = [{"key": "broken", "effect": "NoSchedule"}]
    return world(gpus("n1", taints=taints), claim("c", exactly("gpu", GPU, BIG)))


def alternatives() -> Snapshot:
    """The first alternative cannot be had, the second can."""
    big = {"name": "big", "deviceClassName": GPU, "selectors": [{"cel": {"expression": BIG}}]}
    two = {"name": "two", "deviceClassName": GPU, "allocationMode": "ExactCount", "count": 2}
    return world(gpus("n1", 4), claim("c", {"name": "gpu", "firstAvailable": [big, two]}))


FAILING: dict[str, Callable[[], Snapshot]] = {
    each.__name__: each
    for each in (memory, taken, tainted, aligned, counters, counters_together, error, partly_error, shared, incomplete,
                 everything, too_many, cordoned, together, no_class, two_things)
}  # fmt: skip
