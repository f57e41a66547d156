"""The driver on machines made of files, from discovery to what a container gets."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest
from dra_driver_cpu import CpuConfig, CpuDriver, CpuSettings
from dra_driver_cpu.pick import CoreAlignmentError

from dra_sdk import Capacity, ClaimError, PermanentError, Quantity, RequestPolicy, SettingsError
from dra_sdk.errors import DeviceHeldError
from dra_sdk.hardware import parse_cpuset
from dra_sdk.testing import DriverHarness, FakeClaim, NotAllocatedError, PreparedClaim, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.testing.uevents import FakeUevents

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.fixture
def driver(dra_node: Any, dra_driver: Any) -> DriverHarness:
    """On a machine with CPUs 0-3,8-11 and 4-7,12-15, of which CPU 0 is reserved."""
    dra_node.machine(regular_machine(sockets=2, cores=4))
    harness: DriverHarness = dra_driver(CpuDriver, settings=CpuSettings(reserved_cpus=parse_cpuset("0")))
    return harness


def cpus(amount: str = "", name: str = "cpu", numa: int = 0) -> dict[str, Any]:
    """A request for `amount` CPUs of one NUMA node; without a number the API server fills in the default."""
    where = f'device.attributes["resource.kubernetes.io"].numaNode == {numa}'
    return request(name, where=where, capacity={"dra.cpu/cpu": amount} if amount else None)


def allocated(driver: DriverHarness, asked: FakeClaim, *results: dict[str, Any]) -> dict[str, Any]:
    """The claim with an allocation that no scheduler would make."""
    common = {"request": "cpu", "driver": "dra.cpu", "pool": "node-1", "device": "cpudevnuma000"}
    allocation = {"devices": {"results": [{**common, **result} for result in results]}}
    return driver.cluster.adopt({**asked.encoded("dra.cpu", "dra.cpu"), "status": {"allocation": allocation}})


def variables(prepared: PreparedClaim, name: str = "main") -> dict[str, str]:
    """The variables of this driver; the SDK has its own, which begin with DRA_CLAIM_."""
    return {key: text for key, text in prepared.container(name).env.items() if key.startswith("DRA_CPUSET_")}


def recorded_data(driver: DriverHarness) -> list[dict[str, str]]:
    """What the driver stored with each prepared device."""
    return [dict(device.data) for held in driver.held for device in held.devices]


def test_every_release_accepts_its_slices(driver: DriverHarness) -> None:
    driver.assert_publishable()


def test_each_numa_node_is_a_device_whose_cpus_are_consumed_by_number(driver: DriverHarness) -> None:
    assert list(driver.devices) == ["cpudevnuma000", "cpudevnuma001"]
    second = driver.devices["cpudevnuma001"]
    assert second.attributes == {
        "resource.kubernetes.io/numaNode": 1,
        "numaNodeID": 1,
        "dra.net/numaNode": 1,
        "socketID": 1,
        "cacheL3ID": 1,
        "coreType": "standard",
        "smtEnabled": True,
        "numCPUs": 8,
    }
    capacity = second.capacity["dra.cpu/cpu"]
    assert isinstance(capacity, Capacity)
    assert capacity.value == 8
    assert capacity.policy is not None
    assert capacity.policy == RequestPolicy(default=1, min=Quantity(1), step=Quantity(1))
    assert second.allow_multiple_allocations


def test_a_numa_node_with_one_cpu_left_is_published_and_claimed(dra_node: Any, dra_driver: Any) -> None:
    dra_node.machine(regular_machine(sockets=2, cores=2, threads=1))
    driver = dra_driver(CpuDriver, settings=CpuSettings(reserved_cpus=parse_cpuset("0")))
    driver.assert_publishable()
    driver.prepare(claim(cpus("1")))
    assert [data["cpus"] for data in recorded_data(driver)] == ["1"]


def test_a_claim_with_one_request_has_the_names_that_users_know(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(cpus("2")))
    assert variables(prepared) == {f"DRA_CPUSET_{prepared.ref.uid}": "1,9"}
    assert prepared.container().cdi_ids[0] == f"dra.k8s.io/cpu=claim-{prepared.ref.uid}"
    assert recorded_data(driver) == [{"cpus": "1,9"}]


def test_cpus_of_other_claims_and_reserved_cpus_are_not_given_to_a_claim(driver: DriverHarness) -> None:
    for amount, wanted in (("2", "1,9"), ("1", "8"), ("4", "2-3,10-11")):
        assert set(variables(driver.prepare(claim(cpus(amount)))).values()) == {wanted}
    with pytest.raises(NotAllocatedError):
        driver.allocate(claim(cpus("1")))


def test_a_claim_is_refused_while_other_claims_leave_too_few_cpus(driver: DriverHarness) -> None:
    driver.prepare(claim(cpus("4")))
    asked = allocated(driver, claim(cpus("4")), {"consumedCapacity": {"dra.cpu/cpu": "4"}, "shareID": "s"})
    with pytest.raises(DeviceHeldError, match=r"takes 4 of capacity dra.cpu/cpu of .*, which has 7, and 4 of it"):
        driver.prepare(asked)


def test_each_request_has_its_own_cdi_device_with_all_its_cpus(driver: DriverHarness) -> None:
    asked = claim(cpus("2", "a"), cpus("1", "b"), cpus("2", "far", numa=1))
    prepared = driver.prepare(asked, containers={"a": ["a"], "b": ["b"], "far": ["far"]})
    prefix = f"DRA_CPUSET_{prepared.ref.uid}"
    env = {name: variables(prepared, name) for name in prepared.containers}
    assert env == {"a": {f"{prefix}_a": "1,9"}, "b": {f"{prefix}_b": "8"}, "far": {f"{prefix}_far": "4,12"}}


def test_a_request_for_several_devices_has_their_cpus_in_one_variable(driver: DriverHarness) -> None:
    prepared = driver.prepare(claim(request("cpu", count=2)))
    assert variables(prepared) == {f"DRA_CPUSET_{prepared.ref.uid}": "4,8"}
    assert prepared.names == ["cpudevnuma000", "cpudevnuma001"]


def test_a_subrequest_belongs_to_its_request(driver: DriverHarness) -> None:
    alternative = {"name": "big", "deviceClassName": "dra.cpu"}
    prepared = driver.prepare(claim({"name": "cpu", "firstAvailable": [alternative]}))
    assert prepared.container().cdi_ids[0] == f"dra.k8s.io/cpu=claim-{prepared.ref.uid}"


def test_a_release_without_consumable_capacity_gives_the_whole_numa_node(dra_node: Any, dra_driver: Any) -> None:
    dra_node.machine(regular_machine(sockets=2, cores=4))
    driver = dra_driver(CpuDriver, settings=CpuSettings(reserved_cpus=parse_cpuset("0")), version="1.35")
    driver.prepare(claim(cpus()))
    assert recorded_data(driver) == [{"cpus": "1-3,8-11"}]
    with pytest.raises(ClaimError, match="cpudevnuma009 is not among those"):
        driver.prepare(allocated(driver, claim("cpu"), {"device": "cpudevnuma009"}))


@pytest.mark.parametrize("amount", ["0", "-1", "1500m"])
def test_a_number_that_is_not_whole_or_below_1_is_refused(driver: DriverHarness, amount: str) -> None:
    asked = allocated(driver, claim("cpu"), {"consumedCapacity": {"dra.cpu/cpu": amount}, "shareID": "s"})
    with pytest.raises(PermanentError, match=r"dra\.cpu/cpu must be a whole number of CPUs from 1"):
        driver.prepare(asked)


def test_full_cores_refuses_a_number_that_is_no_sum_of_cores(driver: DriverHarness) -> None:
    config = CpuConfig(full_cores=True)
    driver.prepare(claim(cpus("2"), config=config))
    assert recorded_data(driver) == [{"cpus": "1,9"}]
    with pytest.raises(CoreAlignmentError):
        driver.prepare(claim(cpus("3"), config=config))


def test_cpus_that_go_offline_and_online_are_published(dra_node: Any, dra_driver: Any) -> None:
    dra_node.machine(regular_machine(sockets=2, cores=4))
    uevents = FakeUevents()
    driver = dra_driver(partial(CpuDriver, source=uevents.open))
    with driver.watching() as watch:
        for online, number in (("0-14", 7), ("0-15", 8)):
            dra_node.file("/sys/devices/system/cpu/online", online)
            uevents.send("change", "/devices/system/cpu/cpu15", "cpu")
            watch.wait_changed()
            assert driver.devices["cpudevnuma001"].attributes["numCPUs"] == number


def test_a_cpu_that_went_offline_after_discovery_is_not_given_to_a_claim(dra_node: Any, driver: DriverHarness) -> None:
    asked = driver.allocate(claim(cpus("2")))
    driver.discover()
    dra_node.file("/sys/devices/system/cpu/online", "0,2-15")
    driver.prepare(asked)
    assert recorded_data(driver) == [{"cpus": "2,10"}]


def test_a_restart_changes_nothing_and_a_reboot_gives_everything_back(driver: DriverHarness) -> None:
    first = driver.prepare(claim(cpus("2")))
    driver.restart()
    assert driver.prepare(first) == first
    driver.reboot()
    driver.unprepare(first)
    driver.assert_clean()


def test_prepare_and_unprepare_survive_a_kill_at_every_write(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, claim(cpus("2")), lines=False) > 10


def test_settings_come_from_the_environment() -> None:
    assert CpuSettings.read({}).reserved_cpus == frozenset()
    assert CpuSettings.read({"DRA_CPU_RESERVED_CPUS": "0-1"}).reserved_cpus == {0, 1}
    with pytest.raises(SettingsError, match=r"environment variable DRA_CPU_RESERVED_CPUS='one': .*one"):
        CpuSettings.read({"DRA_CPU_RESERVED_CPUS": "one"})


def test_the_readme_has_the_table_of_settings() -> None:
    assert CpuSettings.markdown() in (Path(__file__).parents[1] / "README.md").read_text()
