"""What kind of memory NUMA nodes have."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_sdk.hardware import Host, read_numa_nodes
from dra_sdk.hardware.memory_kinds import MemoryKind, read_memory_kinds
from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.fixture
def host(dra_node: FakeNode) -> Host:
    """Two NUMA nodes, the second without CPUs."""
    machine = regular_machine(sockets=2)
    host = dra_node.machine(machine)
    dra_node.file("/sys/devices/system/node/node1/cpulist", "\n")
    for cpu in machine.cpus:
        if cpu.numa_node == 1:
            dra_node.remove(f"/sys/devices/system/cpu/cpu{cpu.id}/node1")
    return host


def kinds(host: Host) -> dict[int, MemoryKind]:
    return read_memory_kinds(host, read_numa_nodes(host))


def tiers(node: FakeNode, **lists: str) -> None:
    for tier, nodes in lists.items():
        node.file(f"/sys/devices/virtual/memory_tiering/{tier}/nodelist", f"{nodes}\n")


def test_nodes_with_cpus_have_ordinary_memory_also_while_these_are_offline(dra_node: FakeNode) -> None:
    machine = regular_machine(sockets=2)
    host = dra_node.machine(machine)
    dra_node.file("/sys/devices/system/node/node1/cpulist", "\n")
    assert kinds(host) == {0: "ordinary", 1: "ordinary"}
    assert kinds(FakeNode(dra_node.root / "plain").machine(replace(machine, numa=False))) == {0: "ordinary"}


@pytest.mark.parametrize(
    ("fast", "own", "kind"),
    [("0", "memory_tier2", "fast"), ("0", "memory_tier22", "slow"), ("0-1", "", "ordinary"), ("0", "", "unknown")],
)
def test_a_tier_says_whether_memory_is_faster_or_slower(
    host: Host, dra_node: FakeNode, fast: str, own: str, kind: str
) -> None:
    tiers(dra_node, memory_tier4=fast, **({own: "1"} if own else {}))
    assert kinds(host) == {0: "ordinary", 1: kind}


@pytest.mark.parametrize(
    ("device", "kind"),
    [
        ("platform/ACPI0017:00/root0/decoder0.0/region0/dax_region0/dax0.0", "cxl"),
        ("LNXSYSTM:00/ndbus0/region1/dax1.0/dax0.0", "persistent"),
        ("platform/hmem.0/dax0.0", "unknown"),
    ],
)
def test_the_dax_device_that_became_the_memory_says_what_it_is(
    host: Host, dra_node: FakeNode, device: str, kind: str
) -> None:
    dra_node.file(f"/sys/devices/{device}/target_node", "1\n")
    dra_node.link("/sys/bus/dax/devices/dax0.0", f"../../../devices/{device}")
    dra_node.file("/sys/devices/platform/dax9/target_node", "-1\n")
    dra_node.link("/sys/bus/dax/devices/dax9.0", "../../../devices/platform/dax9")
    assert kinds(host)[1] == kind


def test_the_memory_of_a_gpu_is_that_of_an_accelerator(host: Host, dra_node: FakeNode) -> None:
    tiers(dra_node, memory_tier4="0-1")
    dra_node.file("/proc/driver/nvidia/gpus/0009:01:00.0/numa_status", "Node:\t1\nStatus:\tonline\n")
    assert kinds(host)[1] == "accelerator"
