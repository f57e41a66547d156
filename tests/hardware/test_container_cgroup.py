"""Writing a container's cgroup: in both versions, with both forms of the path, and containers that have gone."""

from __future__ import annotations

from pathlib import Path

import pytest

from dra_sdk import HardwareError
from dra_sdk.hardware import Host
from dra_sdk.hardware.container_cgroup import ContainerCgroup, Hierarchy
from dra_sdk.nri import ContainerResources

V2 = ("cgroup.controllers",)
V1 = tuple(f"{name}/cgroup.procs" for name in ("cpuset", "cpu,cpuacct", "hugetlb", "memory"))
CGROUPFS = "/kubepods/burstable/pod1/abc"
SYSTEMD = "kubepods-burstable-pod1.slice:cri-containerd:abc"
SCOPE = "kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-abc.scope"
RESOURCES = ContainerResources(frozenset({0, 1, 4}), frozenset({1}), 5000, {"2MB": 1 << 21})
FILES_V2 = {"cpuset.cpus": "0-1,4", "cpuset.mems": "1", "cpu.max": "5000", "hugetlb.2MB.max": "2097152"}
FILES_V1 = {
    "cpuset/{}/cpuset.cpus": "0-1,4",
    "cpuset/{}/cpuset.mems": "1",
    "cpu,cpuacct/{}/cpu.cfs_quota_us": "5000",
    "hugetlb/{}/hugetlb.2MB.limit_in_bytes": "2097152",
}


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def make(host: Host, hierarchies: tuple[str, ...], *files: str) -> None:
    for name in (*hierarchies, *files):
        file = host.root / "sys/fs/cgroup" / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("something longer than the new value\n")


@pytest.mark.parametrize(("path", "below"), [(CGROUPFS, CGROUPFS[1:]), (SYSTEMD, SCOPE)])
def test_cgroup_v2(host: Host, path: str, below: str) -> None:
    make(host, V2, *(f"{below}/{name}" for name in FILES_V2))
    assert ContainerCgroup(host, path).write(RESOURCES)
    directory = host.root / "sys/fs/cgroup" / below
    assert {file.name: file.read_text() for file in directory.iterdir()} == FILES_V2


@pytest.mark.parametrize(("path", "below"), [(CGROUPFS, CGROUPFS[1:]), (SYSTEMD, SCOPE)])
def test_cgroup_v1(host: Host, path: str, below: str) -> None:
    make(host, (*V1, "unified/cgroup.controllers"), *(name.format(below) for name in FILES_V1))
    assert ContainerCgroup(host, path).write(RESOURCES)
    for name, text in FILES_V1.items():
        assert (host.root / "sys/fs/cgroup" / name.format(below)).read_text() == text


@pytest.mark.parametrize(
    ("hierarchies", "name", "text"), [(V2, "a/cpu.max", "max"), (V1, "cpu,cpuacct/a/cpu.cfs_quota_us", "-1")]
)
def test_no_limit(host: Host, hierarchies: tuple[str, ...], name: str, text: str) -> None:
    make(host, hierarchies, name)
    assert ContainerCgroup(host, "/a").write(ContainerResources(cpu_quota=-1))
    assert (host.root / "sys/fs/cgroup" / name).read_text() == text


@pytest.mark.parametrize(
    ("path", "below"),
    [
        ("system.slice:crio:abc", "system.slice/crio-abc.scope"),
        ("system.slice::abc", "system.slice/abc.scope"),
        ("-.slice:crio:abc", "crio-abc.scope"),
        ("kubepods-pod1.slice", "kubepods.slice/kubepods-pod1.slice"),
        ("/kubepods.slice/kubepods-pod1.slice", "kubepods.slice/kubepods-pod1.slice"),
        ("a-b.slice:x:c.slice", "a.slice/a-b.slice/c.slice"),
    ],
)
def test_paths_of_systemd(host: Host, path: str, below: str) -> None:
    assert ContainerCgroup(host, path).below_root == below


def test_only_what_is_given_is_written(host: Host) -> None:
    make(host, V2, "a/cpuset.cpus", "a/cpuset.mems")
    assert ContainerCgroup(host, "/a").write(ContainerResources(cpus=frozenset({3})))
    assert (host.root / "sys/fs/cgroup/a/cpuset.cpus").read_text() == "3"
    assert (host.root / "sys/fs/cgroup/a/cpuset.mems").read_text().startswith("something")


def test_a_container_that_has_gone_is_no_error(host: Host) -> None:
    make(host, V2, "other/cpuset.cpus")
    assert not ContainerCgroup(host, "/gone").write(RESOURCES)


def test_a_file_that_the_cgroup_lacks_is_an_error_that_names_it(host: Host) -> None:
    make(host, V2, "a/cpuset.mems")
    with pytest.raises(HardwareError, match=r"cannot write '3' to .*/a/cpuset\.cpus: No such file or directory"):
        ContainerCgroup(host, "/a").write(ContainerResources(cpus=frozenset({3})))


def test_a_host_without_the_hierarchy(host: Host) -> None:
    make(host, ("memory/cgroup.procs",))
    with pytest.raises(HardwareError, match="/sys/fs/cgroup has no hierarchy with the controller cpuset"):
        ContainerCgroup(host, "/a").write(RESOURCES)


def test_cgroup_v2_beside_v1_counts_for_its_own_controllers(host: Host) -> None:
    make(host, (*V1, "unified/cgroup.controllers"), "unified/a/io.max")
    (host.sys / "fs/cgroup/unified/cgroup.controllers").write_text("io misc\n")
    assert Hierarchy.find(host, "io") == Hierarchy(host.sys / "fs/cgroup/unified", is_v2=True)
    assert Hierarchy.find(host, "cpu") == Hierarchy(host.sys / "fs/cgroup/cpu,cpuacct", is_v2=False)
    assert Hierarchy.find(host, "rdma") is None


def test_a_link_of_systemd_is_a_hierarchy_too(host: Host) -> None:
    make(host, V1, "cpu,cpuacct/a/cpu.cfs_quota_us")
    (host.sys / "fs/cgroup/cpu").symlink_to("cpu,cpuacct")
    assert ContainerCgroup(host, "/a").write(ContainerResources(cpu_quota=-1))
    assert (host.sys / "fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us").read_text() == "-1"


def test_without_the_hosts_mount_an_error_says_what_is_missing(host: Host) -> None:
    with pytest.raises(HardwareError, match="/sys/fs/cgroup has no hierarchies of cgroups: mount the host's"):
        ContainerCgroup(host, CGROUPFS).write(RESOURCES)
    make(host, V2, "cpuset.cpus")  # as a container sees its own cgroup
    with pytest.raises(HardwareError, match="has no kubepods: mount the host's /sys/fs/cgroup into the driver"):
        ContainerCgroup(host, CGROUPFS).write(RESOURCES)
    (host.sys / "fs/cgroup/kubepods").mkdir()
    assert not ContainerCgroup(host, CGROUPFS).write(RESOURCES)  # the container has gone


@pytest.mark.parametrize("path", ["", "/", "/../../etc", "../a.slice:x:y"])
def test_a_path_that_is_not_a_containers(host: Host, path: str) -> None:
    make(host, V2)
    with pytest.raises(HardwareError, match="is not the cgroup of a container"):
        ContainerCgroup(host, path).write(RESOURCES)
