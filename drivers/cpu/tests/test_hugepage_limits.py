"""The limits of a pod as a whole, with both versions of cgroups and both of the kubelet's cgroup drivers."""

from __future__ import annotations

import json

import pytest
from dra_driver_cpu.hugepage_limits import HugepageLimits

from dra_sdk import HardwareError
from dra_sdk.hardware.node_access import WriteError
from dra_sdk.nri import PodSandbox
from dra_sdk.testing import FakeNode

pytest_plugins = ["dra_sdk.testing.plugin"]

ROOT = "/sys/fs/cgroup"
SLICES = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1_2.slice"
MIB = 1 << 20
STATE = "/var/lib/kubelet/plugins/dra.memory"


def pod(parent: str) -> PodSandbox:
    return PodSandbox("p", "default", "pod", "1-2", cgroup_parent=parent)


def version_2(node: FakeNode, path: str, **limits: str) -> None:
    """A pod's cgroup of version 2; the names of `limits` have __ in place of dots."""
    node.file(f"{ROOT}/cgroup.controllers", "cpuset cpu memory hugetlb")
    node.file(f"{ROOT}/{path}/cgroup.procs")
    for name, limit in limits.items():
        node.file(f"{ROOT}/{path}/{name.replace('__', '.')}", f"{limit}\n")


def read(node: FakeNode, path: str) -> str:
    return node.path(f"{ROOT}/{path}").read_text().strip()


@pytest.mark.parametrize(
    ("parent", "path"),
    [
        ("/kubepods/burstable/pod1-2", "kubepods/burstable/pod1-2"),
        (f"/{SLICES}", SLICES),
        ("kubepods-burstable-pod1_2.slice", SLICES),
    ],
)
def test_the_cgroup_is_found_as_each_kubelet_names_it(dra_node: FakeNode, parent: str, path: str) -> None:
    version_2(dra_node, path, hugetlb__2MB__max="0", hugetlb__2MB__rsvd__max="0", hugetlb__1GB__max="0")
    HugepageLimits(STATE).add(dra_node.access, pod(parent), {"2MB": 8 * MIB})
    assert read(dra_node, f"{path}/hugetlb.2MB.max") == read(dra_node, f"{path}/hugetlb.2MB.rsvd.max") == "8388608"
    assert read(dra_node, f"{path}/hugetlb.1GB.max") == "0"


def test_version_1_has_a_hierarchy_for_each_controller(dra_node: FakeNode) -> None:
    for name in ("hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.rsvd.limit_in_bytes"):
        dra_node.file(f"{ROOT}/hugetlb/kubepods/pod1/{name}", "0\n")
    one = pod("/kubepods/pod1")
    HugepageLimits(STATE).add(dra_node.access, one, {"2MB": 8 * MIB})
    assert read(dra_node, "hugetlb/kubepods/pod1/hugetlb.2MB.limit_in_bytes") == "8388608"
    assert read(dra_node, "hugetlb/kubepods/pod1/hugetlb.2MB.rsvd.limit_in_bytes") == "8388608"


def test_claims_come_on_top_of_what_the_kubelet_allows_and_only_once(dra_node: FakeNode) -> None:
    version_2(dra_node, "kubepods/pod1", hugetlb__2MB__max=str(4 * MIB))
    limits, one = HugepageLimits(STATE), pod("/kubepods/pod1")
    for _ in range(2):  # the kubelet makes a second sandbox if the first one dies
        limits.add(dra_node.access, one, {"2MB": 8 * MIB})
        assert read(dra_node, "kubepods/pod1/hugetlb.2MB.max") == str(12 * MIB)


def test_a_new_pod_of_the_same_name_begins_with_the_kubelets_limit(dra_node: FakeNode) -> None:
    limits, one = HugepageLimits(STATE), pod("/kubepods/pod1")
    for own in (4, 6):
        version_2(dra_node, "kubepods/pod1", hugetlb__2MB__max=str(own * MIB))
        limits.add(dra_node.access, one, {"2MB": 8 * MIB})
        assert read(dra_node, "kubepods/pod1/hugetlb.2MB.max") == str((own + 8) * MIB)
        dra_node.remove(f"{ROOT}/kubepods/pod1")
        version_2(dra_node, "kubepods/other", hugetlb__2MB__max="0")
        limits.add(dra_node.access, pod("/kubepods/other"), {"2MB": MIB})


def test_a_restart_of_the_driver_raises_nothing_twice(dra_node: FakeNode) -> None:
    version_2(dra_node, "kubepods/pod1", hugetlb__2MB__max=str(4 * MIB), hugetlb__1GB__max=str(9 << 30))
    for _ in range(3):
        HugepageLimits(STATE).add(dra_node.access, pod("/kubepods/pod1"), {"2MB": 8 * MIB, "1GB": 1 << 30})
        assert read(dra_node, "kubepods/pod1/hugetlb.2MB.max") == str(12 * MIB)
        assert read(dra_node, "kubepods/pod1/hugetlb.1GB.max") == str(10 << 30)


def test_a_limit_that_could_not_be_raised_is_raised_by_the_next_call(dra_node: FakeNode) -> None:
    version_2(dra_node, "kubepods/pod1", hugetlb__2MB__max=str(4 * MIB), hugetlb__2MB__rsvd__max="0")
    for after in (False, True):
        dra_node.effects.fail_call(1, after=after)
        with pytest.raises(WriteError):
            HugepageLimits(STATE).add(dra_node.access, pod("/kubepods/pod1"), {"2MB": 8 * MIB})
    dra_node.effects.clear()
    HugepageLimits(STATE).add(dra_node.access, pod("/kubepods/pod1"), {"2MB": 8 * MIB})
    assert read(dra_node, "kubepods/pod1/hugetlb.2MB.max") == str(12 * MIB)
    assert read(dra_node, "kubepods/pod1/hugetlb.2MB.rsvd.max") == str(8 * MIB)


def test_a_pod_that_ended_is_forgotten(dra_node: FakeNode) -> None:
    """The record has the pods that exist. A later pod of the same path has a cgroup and a limit of its own."""
    limits = HugepageLimits(STATE)
    for number in range(3):
        version_2(dra_node, f"kubepods/pod{number}", hugetlb__2MB__max="0")
        limits.add(dra_node.access, pod(f"/kubepods/pod{number}"), {"2MB": 8 * MIB})
        dra_node.path(f"{ROOT}/kubepods/pod{number}").rename(dra_node.path(f"{ROOT}/ended{number}"))
    version_2(dra_node, "kubepods/pod2", hugetlb__2MB__max=str(2 * MIB))
    limits.add(dra_node.access, pod("/kubepods/pod2"), {"2MB": 8 * MIB})
    assert read(dra_node, "kubepods/pod2/hugetlb.2MB.max") == str(10 * MIB)
    record = json.loads(dra_node.path(f"{STATE}/limits/hugepages/record.json").read_text())
    assert list(record["limits"].values()) == [2 * MIB]


@pytest.mark.parametrize("unlimited", ["max", "9223372036854771712"])
def test_a_pod_without_a_limit_stays_without(dra_node: FakeNode, unlimited: str) -> None:
    version_2(dra_node, "kubepods/pod1", hugetlb__2MB__max=unlimited)
    one = pod("/kubepods/pod1")
    HugepageLimits(STATE).add(dra_node.access, one, {"2MB": 8 * MIB})
    assert dra_node.effects.calls == []


def test_a_controller_that_is_turned_off_limits_nothing(dra_node: FakeNode) -> None:
    version_2(dra_node, "kubepods/pod1")
    one = pod("/kubepods/pod1")
    HugepageLimits(STATE).add(dra_node.access, one, {"2MB": 8 * MIB})
    assert dra_node.effects.calls == []


def test_version_1_without_the_controller_limits_nothing(dra_node: FakeNode) -> None:
    dra_node.file(f"{ROOT}/cpu/kubepods/pod1/cpu.cfs_quota_us", "-1\n")
    HugepageLimits(STATE).add(dra_node.access, pod("/kubepods/pod1"), {"2MB": 8 * MIB})
    assert dra_node.effects.calls == []


def test_a_driver_that_does_not_see_the_hosts_cgroups_says_so(dra_node: FakeNode) -> None:
    with pytest.raises(HardwareError, match=r"has no hierarchies of cgroups: mount the host's /sys/fs/cgroup into the"):
        HugepageLimits(STATE).add(dra_node.access, pod("/kubepods/pod1"), {"2MB": MIB})
    version_2(dra_node, "somewhere")
    with pytest.raises(HardwareError, match=r"has no kubepods: mount the host's /sys/fs/cgroup into the driver"):
        HugepageLimits(STATE).add(dra_node.access, pod("/kubepods/pod1"), {"2MB": MIB})


@pytest.mark.parametrize("parent", ["", "/", "/kubepods/../../etc"])
def test_a_path_that_is_none_is_refused(dra_node: FakeNode, parent: str) -> None:
    version_2(dra_node, "kubepods/pod1")
    with pytest.raises(HardwareError, match=r"is not the cgroup of a container or pod"):
        HugepageLimits(STATE).add(dra_node.access, pod(parent), {"2MB": MIB})
