"""Devices whose CPUs go offline, and come back."""

from __future__ import annotations

from dataclasses import replace

import pytest
from dra_driver_cpu import CpuDriver, CpuSettings
from dra_driver_cpu.devices import cpu_groups
from dra_driver_cpu.health import CpuHealth

from dra_sdk import HealthStatus
from dra_sdk.hardware import Host, read_cpus
from dra_sdk.testing.sysfs import FakeMachine, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
MACHINE = regular_machine(cores=2, sockets=2)


def health_of(host: Host, settings: CpuSettings) -> CpuHealth:
    shared = settings.device_mode == "grouped"
    return CpuHealth(host, lambda: cpu_groups(read_cpus(host), settings), shared=shared)


def write(machine: FakeMachine, tmp_path, number: int) -> Host:
    """Write a machine, and let the link `host` lead to it."""
    machine.write(tmp_path / str(number))
    link = tmp_path / "host"
    link.unlink(missing_ok=True)
    link.symlink_to(tmp_path / str(number))
    return Host(link)


def messages(health: CpuHealth) -> dict[str, tuple[HealthStatus, str]]:
    return {device.device: (device.status, device.message) for device in health.look()}


def test_a_group_stays_healthy_and_says_which_cpus_are_offline(tmp_path):
    health = health_of(write(MACHINE, tmp_path, 0), CpuSettings())
    healthy = {"cpudevnuma000": (HealthStatus.HEALTHY, ""), "cpudevnuma001": (HealthStatus.HEALTHY, "")}
    assert messages(health) == healthy
    write(MACHINE.offlined(3, 7), tmp_path, 1)
    assert messages(health)["cpudevnuma001"] == (HealthStatus.HEALTHY, "CPUs 3,7 are offline")
    write(MACHINE, tmp_path, 2)
    assert messages(health) == healthy


def test_a_group_without_an_online_cpu_is_unhealthy_until_one_is_back(tmp_path):
    health = health_of(write(MACHINE, tmp_path, 0), CpuSettings())
    health.look()
    write(MACHINE.offlined(2, 3, 6, 7), tmp_path, 1)
    assert messages(health)["cpudevnuma001"] == (HealthStatus.UNHEALTHY, "CPUs 2-3,6-7 are offline")
    write(MACHINE.offlined(3, 6, 7), tmp_path, 2)
    assert messages(health)["cpudevnuma001"] == (HealthStatus.HEALTHY, "CPUs 3,6-7 are offline")


@pytest.mark.parametrize(("mode", "name"), [("individual", "cpudev003"), ("partitionable", "cpudevsocket001core001")])
def test_a_device_that_is_had_as_a_whole_is_unhealthy_while_a_cpu_is_offline(tmp_path, mode, name):
    health = health_of(write(MACHINE, tmp_path, 0), CpuSettings(device_mode=mode))
    health.look()
    write(MACHINE.offlined(3), tmp_path, 1)
    assert messages(health)[name] == (HealthStatus.UNHEALTHY, "CPUs 3 are offline")
    assert messages(health)[name.replace("3", "1").replace("socket001", "socket000")] == (HealthStatus.HEALTHY, "")
    write(MACHINE, tmp_path, 2)
    assert messages(health)[name] == (HealthStatus.HEALTHY, "")


def test_a_cpu_that_was_offline_at_the_start_is_no_fault(tmp_path):
    health = health_of(write(MACHINE.offlined(3), tmp_path, 0), CpuSettings())
    assert set(messages(health).values()) == {(HealthStatus.HEALTHY, "")}


def test_the_driver_reports_health(dra_node, dra_driver):
    dra_node.machine(replace(MACHINE))
    assert {health.status for health in dra_driver(CpuDriver).health().values()} == {HealthStatus.HEALTHY}
