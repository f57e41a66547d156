"""Which CPUs claims can get, which they hold, which are shared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dra_driver_cpu import CpuDriver, CpuSettings
from dra_driver_cpu.allocatable import allocatable_cpus, cpus_of, held_cpus, read_topology, read_usable_cpus

from dra_sdk import DraError, HeldClaim, HeldDevice
from dra_sdk.hardware import CpuTopology, format_cpuset, parse_cpuset, read_cpus
from dra_sdk.testing import FakeNode, NotAllocatedError, claim, request
from dra_sdk.testing.sysfs import FakeMachine, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.fixture
def topology(tmp_path: Path) -> CpuTopology:
    """CPUs 0-7; the threads of a core are n and n + 4; 3 and 7 are isolated."""
    return read_cpus(machine().write(tmp_path))


def machine() -> FakeMachine:
    made = regular_machine()
    return FakeMachine(cpus=made.cpus, isolated=parse_cpuset("3,7"))


def held(uid: str, cpus: str, *, admin: bool = False, journal: str = "") -> HeldClaim:
    device = HeldDevice("cpu", "node-1", "cpudevnuma000", admin_access=admin, data={"cpus": cpus} if cpus else {})
    return HeldClaim("default", uid, uid, devices=[device], journal=[{"cpus": journal}] if journal else [])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "1-7"),
        ({"shared_pool": "optional"}, "0-7"),
        ({"full_cores": True}, "1-3,5-7"),
        ({"device_mode": "individual"}, "1-7"),
        ({"device_mode": "partitionable"}, "1-3,5-7"),
        ({"reserved_cpus": "0"}, "1-7"),
        ({"reserved_cpus": "0", "full_cores": True}, "1-3,5-7"),
        ({"isolated_cpus": "exclude"}, "0-2,4-6"),
        ({"isolated_cpus": "only"}, "3,7"),
        ({"isolated_cpus": "only", "reserved_cpus": "3"}, "7"),
        ({"isolated_cpus": "only", "reserved_cpus": "3", "full_cores": True}, ""),
    ],
)
def test_claims_get_what_the_settings_leave(topology, settings, expected):
    assert format_cpuset(allocatable_cpus(topology, CpuSettings.model_validate(settings))) == expected


@pytest.mark.parametrize(
    ("offline", "isolated", "settings", "kept"),
    [
        ("", "", {}, {0}),
        ("0", "", {}, {1}),
        ("0-2", "", {}, {3}),
        ("", "0-1", {}, {2}),
        ("", "0-3", {}, {0}),
        ("", "0-3", {"isolated_cpus": "only"}, {0}),
        ("1", "", {"reserved_cpus": "1"}, {0}),
    ],
)
def test_the_lowest_online_cpu_is_kept_back_if_the_settings_leave_none(tmp_path, offline, isolated, settings, kept):
    """A CPU that the kernel isolates only if it isolates all, a reserved CPU counts only while it is online."""
    made = replace(regular_machine(cores=4, threads=1), isolated=parse_cpuset(isolated))
    topology = read_cpus(made.offlined(*parse_cpuset(offline)).write(tmp_path))
    assert topology.online - allocatable_cpus(topology, CpuSettings.model_validate(settings)) == kept


def test_a_reserved_cpu_that_does_not_exist_is_an_error(tmp_path):
    topology = read_cpus(regular_machine(cores=2, threads=1).offlined(1).write(tmp_path))
    assert allocatable_cpus(topology, CpuSettings(reserved_cpus=parse_cpuset("1"), shared_pool="optional")) == {0}
    with pytest.raises(DraError, match="reserved CPUs 7-8 do not exist; online are 0"):
        allocatable_cpus(topology, CpuSettings(reserved_cpus=parse_cpuset("7-8")))


def test_isolated_cpus_only_needs_isolated_cpus(tmp_path):
    with pytest.raises(DraError, match="isolatedCpus is only, and the kernel isolates no CPU"):
        allocatable_cpus(read_cpus(regular_machine().write(tmp_path)), CpuSettings(isolated_cpus="only"))


def test_a_claim_holds_the_cpus_of_its_devices_and_of_its_journal():
    assert cpus_of(held("a", "1,5", journal="5-6")) == {1, 5, 6}
    assert held_cpus([held("a", "1"), held("b", "4"), held("c", "")]) == {1, 4}


def test_a_device_with_admin_access_holds_nothing():
    assert cpus_of(held("a", "0-7", admin=True)) == set()


def test_cpus_that_no_pod_may_use_count_as_switched_off(dra_node: FakeNode) -> None:
    dra_node.machine(machine())
    assert format_cpuset(read_topology(dra_node.node).online) == "0-7"
    dra_node.file("/sys/fs/cgroup/cgroup.controllers", "cpuset\n")
    limit = dra_node.file("/sys/fs/cgroup/kubepods/cpuset.cpus.effective", "2-5\n")
    topology = read_topology(dra_node.node)
    assert format_cpuset(topology.online) == format_cpuset(read_usable_cpus(dra_node.node)) == "2-5"
    assert format_cpuset(topology.offline) == "0-1,6-7"
    limit.write_text("32-40\n")
    assert format_cpuset(read_topology(dra_node.node).online) == "0-7", "of another machine"


def test_claims_and_the_shared_pool_are_within_what_pods_may_use(dra_node: FakeNode, dra_driver: Any) -> None:
    dra_node.machine(regular_machine())
    dra_node.file("/sys/fs/cgroup/cgroup.controllers", "cpuset\n")
    dra_node.file("/sys/fs/cgroup/kubepods/cpuset.cpus.effective", "2-3,6-7\n")
    driver = dra_driver(CpuDriver)
    with driver.nri() as runtime:
        shared = runtime.create_container()
        assert shared.cpus == {2, 3, 6, 7}
        pinned = runtime.create_container(driver.prepare(claim(request(capacity={"dra.cpu/cpu": "2"}))))
        assert pinned.cpus is not None
        assert len(pinned.cpus) == 2
        assert shared.cpus == {2, 3, 6, 7} - pinned.cpus
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(request(capacity={"dra.cpu/cpu": "4"})))
