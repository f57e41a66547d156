"""What the driver adds to its metrics, while claims come and go and CPUs go offline."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from dra_driver_cpu import CpuDriver, CpuSettings

from dra_sdk.hardware import parse_cpuset
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.sysfs import regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]

MACHINE = replace(regular_machine(sockets=2, cores=4, threads=1), isolated=parse_cpuset("7"))
"""NUMA node 0 has CPUs 0-3, node 1 has 4-7."""


@pytest.fixture
def driver(dra_node: FakeNode, dra_driver: Any) -> DriverHarness:
    dra_node.machine(MACHINE)
    made: DriverHarness = dra_driver(CpuDriver, settings=CpuSettings(reserved_cpus=parse_cpuset("0,4")))
    return made


def measured(driver: DriverHarness) -> dict[str, list[float]]:
    """The values of each metric, in the order of NUMA nodes."""
    values: dict[str, list[float]] = {}
    for metric in driver.metrics():
        values.setdefault(metric.name.removeprefix("dra_cpu_"), []).append(metric.value)
    return values


def ask(node: int, cpus: str, **more: Any) -> dict[str, Any]:
    where = [f'device.attributes["resource.kubernetes.io"].numaNode == {node}']
    return request("cpus", where=where, capacity={"dra.cpu/cpu": cpus}, **more)


def test_claims_and_the_shared_pool_are_counted_by_numa_node(driver: DriverHarness) -> None:
    before = measured(driver)
    assert before == {
        "allocated_cpus": [0, 0],
        "available_cpus": [3, 3],
        "reserved_cpus": [1, 1],
        "shared_cpus": [3, 2],  # not the isolated one
        "offline_cpus": [0],
        "resource_claims_active": [0],
    }
    first = driver.prepare(claim(ask(0, "2")))
    second = driver.prepare(claim(ask(1, "3")))
    during = measured(driver)
    assert (during["allocated_cpus"], during["available_cpus"]) == ([2, 3], [1, 0])
    assert (during["shared_cpus"], during["resource_claims_active"]) == ([1, 0], [2])
    driver.restart()
    assert measured(driver) == during
    driver.unprepare(first)
    driver.unprepare(second)
    assert measured(driver) == before


def test_an_offline_cpu_is_not_available(dra_node: FakeNode, driver: DriverHarness) -> None:
    dra_node.file("/sys/devices/system/cpu/online", "0-2,4-7\n")
    values = measured(driver)
    assert (values["available_cpus"], values["offline_cpus"]) == ([2, 3], [1])


def test_a_claim_with_admin_access_has_no_cpus(driver: DriverHarness) -> None:
    driver.prepare(claim(request("look", admin_access=True), namespace="admins"))
    assert measured(driver)["resource_claims_active"] == [0]


def labels(driver: DriverHarness) -> Iterator[dict[str, str]]:
    yield from (dict(metric.labels) for metric in driver.metrics() if metric.name == "dra_cpu_shared_cpus")


def test_values_have_the_number_of_the_numa_node_as_a_label(driver: DriverHarness) -> None:
    assert list(labels(driver)) == [{"numa_node": "0"}, {"numa_node": "1"}]
