"""The driver on machines made of files, from discovery to what a container gets."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from dra_driver_cpu import CpuConfig, CpuDriver
from dra_driver_cpu.config import NodeSettings
from dra_driver_cpu.pick import CoreAlignmentError, NotEnoughCpusError

from dra_sdk import ClaimError, DraError, PermanentError
from dra_sdk.hardware import parse_cpuset
from dra_sdk.testing import DriverHarness, FakeClaim, NotAllocatedError, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.sysfs import regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.fixture
def driver(dra_node: Any, dra_driver: Any) -> DriverHarness:
    """On a machine with CPUs 0-3,8-11 and 4-7,12-15, of which CPU 0 is reserved."""
    dra_node.machine(regular_machine(sockets=2, cores=4))
    found: DriverHarness = dra_driver(partial(CpuDriver, NodeSettings(parse_cpuset("0"))))
    return found


def cpus(amount: str = "", name: str = "cpu", numa: int = 0) -> dict[str, Any]:
    """A request for CPUs of one NUMA node; for as many as it is if no number is named."""
    where = f'device.attributes["resource.kubernetes.io"].numaNode == {numa}'
    return request(name, where=where, capacity={"dra.cpu/cpu": amount} if amount else None)


def told(driver: DriverHarness, asked: FakeClaim, *results: dict[str, Any]) -> dict[str, Any]:
    """The claim with devices that no scheduler would have given it."""
    same = {"request": "cpu", "driver": "dra.cpu", "pool": "node-1", "device": "cpudevnuma000"}
    allocation = {"devices": {"results": [{**same, **each} for each in results]}}
    return driver.cluster.adopt({**asked.encoded("dra.cpu", "dra.cpu"), "status": {"allocation": allocation}})


def held(driver: DriverHarness) -> list[dict[str, str]]:
    return [dict(device.data) for each in driver.held for device in each.devices]


def test_every_release_takes_its_slices(driver: DriverHarness) -> None:
    driver.assert_publishable()


def test_a_claim_with_one_request_has_the_names_that_users_know(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(cpus("2")))
    assert prepared.container().env == {f"DRA_CPUSET_{prepared.ref.uid}": "1,9"}
    assert prepared.container().cdi_ids == (f"dra.k8s.io/cpu=claim-{prepared.ref.uid}",)
    assert held(driver) == [{"cpus": "1,9"}]


def test_what_others_hold_and_what_is_reserved_is_not_given_out(driver: DriverHarness) -> None:
    for amount, wanted in (("2", "1,9"), ("1", "8"), ("4", "2-3,10-11")):
        assert set(driver.prepare(claim(cpus(amount))).container().env.values()) == {wanted}
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(cpus("1")))


def test_cpus_that_are_not_there_any_more(driver: DriverHarness) -> None:
    driver.prepare(claim(cpus("4")))
    asked = told(driver, claim(cpus("4")), {"consumedCapacity": {"dra.cpu/cpu": "4"}, "shareID": "s"})
    with pytest.raises(NotEnoughCpusError, match="need 4 CPUs, have 3"):
        driver.prepare(asked)


def test_each_request_has_its_own_cdi_device_and_all_its_cpus(driver: DriverHarness) -> None:
    asked = claim(cpus("2", "a"), cpus("1", "b"), cpus("2", "far", numa=1))
    prepared = driver.prepare(asked, containers={"a": ["a"], "b": ["b"], "far": ["far"]})
    prefix = f"DRA_CPUSET_{prepared.ref.uid}"
    env = {name: prepared.container(name).env for name in prepared.containers}
    assert env == {"a": {f"{prefix}_a": "1,9"}, "b": {f"{prefix}_b": "8"}, "far": {f"{prefix}_far": "4,12"}}


def test_a_request_for_several_devices_has_all_their_cpus_in_one(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(request("cpu", count=2)))
    assert prepared.container().env == {f"DRA_CPUSET_{prepared.ref.uid}": "4,8"}
    assert prepared.names == ["cpudevnuma000", "cpudevnuma001"]


def test_a_subrequest_belongs_to_its_request(driver: DriverHarness) -> None:
    alternative = {"name": "big", "deviceClassName": "dra.cpu"}
    prepared = driver.prepare(claim({"name": "cpu", "firstAvailable": [alternative]}))
    assert prepared.container().cdi_ids == (f"dra.k8s.io/cpu=claim-{prepared.ref.uid}",)


def test_the_whole_node_where_capacity_cannot_be_shared(dra_node: Any, dra_driver: Any) -> None:
    dra_node.machine(regular_machine(sockets=2, cores=4))
    make = partial(CpuDriver, NodeSettings(parse_cpuset("0")))
    driver = dra_driver(make, version="1.35")
    driver.prepare(claim(cpus()))
    assert held(driver) == [{"cpus": "1-3,8-11"}]
    with pytest.raises(ClaimError, match="cpudevnuma009 is not among those"):
        driver.prepare(told(driver, claim("cpu"), {"device": "cpudevnuma009"}))


@pytest.mark.parametrize("amount", ["0", "-1", "1500m"])
def test_only_whole_cpus(driver: DriverHarness, amount: str) -> None:
    asked = told(driver, claim("cpu"), {"consumedCapacity": {"dra.cpu/cpu": amount}, "shareID": "s"})
    with pytest.raises(PermanentError, match=r"dra\.cpu/cpu must be a whole number of CPUs from 1"):
        driver.prepare(asked)


def test_full_cores_on_request(driver: DriverHarness) -> None:
    config = CpuConfig(full_cores=True)
    driver.prepare(claim(cpus("2"), config=config))
    assert held(driver) == [{"cpus": "1,9"}]
    with pytest.raises(CoreAlignmentError):
        driver.prepare(claim(cpus("3"), config=config))


def test_a_restart_changes_nothing_and_a_reboot_gives_everything_back(driver: DriverHarness) -> None:
    first = driver.prepare(claim(cpus("2")))
    driver.restart()
    assert driver.prepare(first) == first
    driver.reboot()
    driver.unprepare(first)
    driver.assert_clean()


def test_it_survives_being_killed_anywhere(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, claim(cpus("2")), lines=False) > 10


def test_settings_come_from_the_environment() -> None:
    assert NodeSettings.read({"DRA_CPU_RESERVED_CPUS": "0-1"}).reserved == {0, 1}
    with pytest.raises(DraError, match="DRA_CPU_RESERVED_CPUS"):
        NodeSettings.read({"DRA_CPU_RESERVED_CPUS": "one"})
