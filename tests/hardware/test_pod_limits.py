"""What all pods of a node together may use, with both versions of cgroups and both drivers of the kubelet."""

from __future__ import annotations

import pytest

from dra_sdk.hardware.pod_limits import PodLimits, read_pod_limits
from dra_sdk.testing import FakeNode

pytest_plugins = ["dra_sdk.testing.plugin"]
GIB = 1 << 30


@pytest.mark.parametrize(
    "place", ["kubepods.slice", "kubepods", "kubelet.slice/kubelet-kubepods.slice", "kubelet/kubepods"]
)
def test_limits_of_cgroup_v2(dra_node: FakeNode, place: str) -> None:
    root = "/sys/fs/cgroup"
    dra_node.file(f"{root}/cgroup.controllers", "cpuset memory hugetlb\n")
    assert read_pod_limits(dra_node.node) == PodLimits()
    for name, content in {
        "cpuset.cpus": "",
        "cpuset.cpus.effective": "0-3",
        "cpuset.mems.effective": "0",
        "memory.max": str(GIB),
        "hugetlb.2MB.max": "0",
        "hugetlb.1GB.max": "max",
        "hugetlb.64KB.max": "nonsense",
        "hugetlb.2MB.rsvd.max": "7",
        "hugetlb.2MB.events": "max 0",
    }.items():
        dra_node.file(f"{root}/{place}/{name}", f"{content}\n")
    expected = PodLimits(frozenset(range(4)), frozenset({0}), GIB, {2 << 20: 0})
    assert read_pod_limits(dra_node.node) == expected


def test_limits_of_cgroup_v1(dra_node: FakeNode) -> None:
    for path, content in {
        "cpuset/kubepods/cpuset.cpus": "0-3",
        "memory/kubepods/memory.limit_in_bytes": "9223372036854771712",
        "hugetlb/kubepods/hugetlb.2MB.limit_in_bytes": str(GIB),
    }.items():
        dra_node.file(f"/sys/fs/cgroup/{path}", f"{content}\n")
    assert read_pod_limits(dra_node.node) == PodLimits(frozenset(range(4)), None, None, {2 << 20: GIB})


def test_files_that_say_nothing_limit_nothing(dra_node: FakeNode) -> None:
    dra_node.file("/sys/fs/cgroup/cgroup.controllers", "")
    for name, content in {"cpuset.cpus.effective": "", "memory.max": "max", "cpuset.mems.effective": "x"}.items():
        dra_node.file(f"/sys/fs/cgroup/kubepods.slice/{name}", f"{content}\n")
    assert read_pod_limits(dra_node.node) == PodLimits()
