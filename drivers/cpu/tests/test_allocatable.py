"""Which CPUs claims can get, which they hold, which are shared; and a kubelet that gives them away itself."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_cpu import CpuSettings
from dra_driver_cpu.allocatable import (
    StaticPolicyError,
    allocatable_cpus,
    cpus_of,
    held_cpus,
    refuse_static_policy,
)

from dra_sdk import DraError, HeldClaim, HeldDevice
from dra_sdk.hardware import CpuTopology, Host, format_cpuset, parse_cpuset, read_cpus
from dra_sdk.testing.sysfs import FakeMachine, regular_machine


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
    found = read_cpus(made.offlined(*parse_cpuset(offline)).write(tmp_path))
    assert found.online - allocatable_cpus(found, CpuSettings.model_validate(settings)) == kept


def test_a_reserved_cpu_that_does_not_exist_is_an_error(tmp_path):
    found = read_cpus(regular_machine(cores=2, threads=1).offlined(1).write(tmp_path))
    assert allocatable_cpus(found, CpuSettings(reserved_cpus=parse_cpuset("1"), shared_pool="optional")) == {0}
    with pytest.raises(DraError, match="reserved CPUs 7-8 do not exist; online are 0"):
        allocatable_cpus(found, CpuSettings(reserved_cpus=parse_cpuset("7-8")))


def test_isolated_cpus_only_needs_isolated_cpus(tmp_path):
    with pytest.raises(DraError, match="isolatedCpus is only, and the kernel isolates no CPU"):
        allocatable_cpus(read_cpus(regular_machine().write(tmp_path)), CpuSettings(isolated_cpus="only"))


def test_a_claim_holds_the_cpus_of_its_devices_and_of_its_journal():
    assert cpus_of(held("a", "1,5", journal="5-6")) == {1, 5, 6}
    assert held_cpus([held("a", "1"), held("b", "4"), held("c", "")]) == {1, 4}


def test_a_device_with_admin_access_holds_nothing():
    assert cpus_of(held("a", "0-7", admin=True)) == set()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("cpu_manager_state", '{"policyName":"static","defaultCpuSet":"0-7","checksum":1}'),
        ("cpu_manager_state", '{"policyName":"","data":"{\\"policyName\\":\\"static\\"}","dataChecksum":1}'),
        ("config.yaml", "kind: KubeletConfiguration\ncpuManagerPolicy: static\n"),
        ("config.yaml", 'kind: KubeletConfiguration\n"cpuManagerPolicy" : "static"\n'),
        ("config.json", '{"kind":"KubeletConfiguration","cpuManagerPolicy":"static"}'),
    ],
)
def test_a_kubelet_with_the_static_policy_is_refused(tmp_path, name, content):
    directory = tmp_path / "var/lib/kubelet"
    directory.mkdir(parents=True)
    (directory / name).write_text(content)
    with pytest.raises(StaticPolicyError) as error:
        refuse_static_policy(Host(tmp_path), "/var/lib/kubelet")
    assert str(error.value) == (
        f"the kubelet has cpuManagerPolicy static (/var/lib/kubelet/{name}): it gives exclusive CPUs to containers by "
        "itself, the same ones as this driver; set the policy to none, remove /var/lib/kubelet/cpu_manager_state and "
        "restart the kubelet"
    )


@pytest.mark.parametrize(
    "files",
    [
        {},
        {"cpu_manager_state": '{"policyName":"none","defaultCpuSet":"","checksum":1}'},
        {"cpu_manager_state": '{"policyName":"none"}', "config.yaml": "cpuManagerPolicy: static\n"},
        {"cpu_manager_state": "{", "config.yaml": "# cpuManagerPolicy: static\ncpuManagerPolicy: none\n"},
        {"cpu_manager_state": "[]"},
        {"cpu_manager_state": '{"data": 1}'},
    ],
    ids=["no files", "none", "the state counts", "a comment", "no object", "no text"],
)
def test_other_policies_are_fine(tmp_path, files):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    refuse_static_policy(Host(tmp_path), "/")
