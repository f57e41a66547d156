"""The tests of `sriov_driver.py`: every write fails and hangs once, every line is the last one of a killed process."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from sriov_driver import SriovConfig, SriovDriver, SriovSettings

from dra_sdk import ConfigError, HealthStatus, RetriableError
from dra_sdk.hardware.host import link_target_name
from dra_sdk.testing import DriverHarness, FakeNode, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes
from dra_sdk.testing.sysfs import FakePci, regular_machine

CARDS = ("0000:3b:00.0", "0000:5e:00.0")
VF = "0000:3b:00.1"
DRIVER = "sriov.example.com"
NAME = "vf-0000-3b-00-1"
LATENCY = claim(config=SriovConfig(profile="latency"))
WRITES = ("the profile", "unbind", "driver_override", "bind")
UNDOING = ("unbind", "driver_override", "bind", "driver_override of before", "the profile")


def functions(pf: str, group: int) -> tuple[FakePci, ...]:
    """Make a PF and its two VFs."""
    bus = pf.removesuffix("0")
    card = FakePci(address=pf, class_code=0x120000, driver="accel", numa_node=0, iommu_group=group, total_vfs=8)
    vf = replace(card, driver="accel_vf", total_vfs=0, physical_function=pf)
    return card, *(replace(vf, address=f"{bus}{number}", iommu_group=group + number) for number in (1, 2))


def plug(node: FakeNode, *pci: FakePci) -> None:
    """Write a machine with these functions, and the files of the accelerators' kernel driver."""
    node.machine(replace(regular_machine(), pci=pci))
    for function in pci:
        pf = function.physical_function
        if pf is None:
            node.file(f"/sys/bus/pci/devices/{function.address}/health", "ok\n")
        else:
            node.file(f"/sys/bus/pci/devices/{pf}/profiles/{function.address}", "throughput")


@pytest.fixture
def node(tmp_path: Path) -> FakeNode:
    """Make a node with two cards of two VFs, and VFIO."""
    node = FakeNode(tmp_path)
    loaded = FakePci(address="0000:00:1f.0", driver="vfio-pci", iommu_group=9)
    plug(node, loaded, *functions(CARDS[0], 20), *functions(CARDS[1], 30))
    node.device_node("/dev/vfio/vfio", major=10, minor=196)
    return node


@pytest.fixture
def driver(node: FakeNode) -> DriverHarness:
    """Start the driver with its default settings."""
    return DriverHarness(lambda: SriovDriver(effects=node.effects), node)


def state(node: FakeNode) -> tuple[str | None, str]:
    """Return the kernel driver and the profile of the first VF."""
    pci = node.path("/sys/bus/pci/devices")
    return link_target_name(pci / VF / "driver"), (pci / CARDS[0] / "profiles" / VF).read_text()


def test_every_vf_is_published_with_the_standard_attributes(driver: DriverHarness) -> None:
    driver.assert_publishable()
    assert list(driver.devices) == [NAME, "vf-0000-3b-00-2", "vf-0000-5e-00-1", "vf-0000-5e-00-2"]
    assert driver.devices[NAME].attributes == {
        "resource.kubernetes.io/pcieRoot": "pci0000:00",
        "resource.kubernetes.io/pciBusID": VF,
        "resource.kubernetes.io/numaNode": 0,
        "pf": CARDS[0],
    }


@pytest.mark.parametrize("group", [None, 20])
def test_a_vf_without_an_iommu_group_of_its_own_is_not_published(tmp_path: Path, group: int | None) -> None:
    node = FakeNode(tmp_path)
    plug(node, *(replace(function, iommu_group=group) for function in functions(CARDS[0], 20)))
    assert DriverHarness(SriovDriver, node).devices == {}


def test_a_vf_goes_to_a_virtual_machine_and_back(driver: DriverHarness) -> None:
    prepared = driver.prepare(LATENCY)
    assert state(driver.node) == ("vfio-pci", "latency")
    assert set(prepared.container().devices) == {"/dev/vfio/21", "/dev/vfio/vfio"}
    driver.unprepare(prepared)
    assert state(driver.node) == ("accel_vf", "throughput")
    driver.assert_clean()


def test_an_operator_may_want_iommufd(driver: DriverHarness) -> None:
    node = driver.node
    for path in ("/dev/iommu", "/dev/vfio/devices/vfio0"):
        node.device_node(path)
    node.file(f"/sys/bus/pci/devices/{VF}/vfio-dev/vfio0/dev")
    settings = SriovSettings.read({"DRA_SRIOV_IOMMUFD": "true"})
    wanted = DriverHarness(lambda settings: SriovDriver(settings, effects=node.effects), node, settings=settings)
    assert set(wanted.prepare(claim()).container().devices) == {"/dev/iommu", "/dev/vfio/devices/vfio0"}


def test_claims_hold_their_own_vfs_of_one_card(driver: DriverHarness) -> None:
    first, second = driver.prepare(LATENCY), driver.prepare(claim("other"))
    assert (first.names, second.names) == ([NAME], ["vf-0000-3b-00-2"])
    driver.unprepare(second)
    assert state(driver.node) == ("vfio-pci", "latency")


def test_admin_access_to_a_vf_of_another_claim_changes_nothing(driver: DriverHarness) -> None:
    held = driver.prepare(LATENCY)
    admin = driver.prepare(claim(request(admin_access=True, where=f'device.attributes["{DRIVER}"].pf == "{CARDS[0]}"')))
    assert admin.names == held.names
    driver.unprepare(held)
    driver.unprepare(admin)
    assert state(driver.node) == ("accel_vf", "throughput")


def test_a_profile_that_does_not_exist_is_an_error(driver: DriverHarness) -> None:
    wrong = {"apiVersion": "sriov.example.com/v1", "kind": "SriovConfig", "profile": "fast"}
    with pytest.raises(ConfigError, match=r"profile: .*'throughput' or 'latency'"):
        driver.prepare(claim(config=wrong))


@pytest.mark.parametrize("nth", range(1, len(WRITES) + 1), ids=WRITES)
@pytest.mark.parametrize("after", [False, True])
def test_a_failure_of_any_write_leaves_nothing_behind(driver: DriverHarness, nth: int, after: bool) -> None:
    driver.node.effects.fail_call(nth, after=after)
    with pytest.raises(RetriableError, match="injected"):
        driver.prepare(LATENCY)
    assert state(driver.node) == ("accel_vf", "throughput")
    driver.node.effects.clear()
    driver.unprepare(driver.prepare(LATENCY))
    assert state(driver.node) == ("accel_vf", "throughput")


@pytest.mark.parametrize("nth", range(1, len(UNDOING) + 1), ids=UNDOING)
@pytest.mark.parametrize("after", [False, True])
def test_an_undo_that_fails_at_any_write_succeeds_when_it_is_repeated(
    driver: DriverHarness, nth: int, after: bool
) -> None:
    prepared = driver.prepare(LATENCY)
    driver.node.effects.fail_call(nth, after=after)
    with pytest.raises(RetriableError, match="injected"):
        driver.unprepare(prepared)
    driver.node.effects.clear()
    driver.unprepare(prepared)
    assert state(driver.node) == ("accel_vf", "throughput")
    driver.assert_clean()


@pytest.mark.parametrize("nth", range(1, len(WRITES) + 1), ids=WRITES)
def test_a_write_that_hangs_holds_its_vf_until_the_kernel_returns(driver: DriverHarness, nth: int) -> None:
    asked = driver.allocate(LATENCY)
    hang(driver, nth, lambda: driver.prepare(asked))
    driver.unprepare(driver.prepare(asked))
    assert state(driver.node) == ("accel_vf", "throughput")


@pytest.mark.parametrize("nth", range(1, len(UNDOING) + 1), ids=UNDOING)
def test_an_undo_that_hangs_is_completed_when_the_kernel_returns(driver: DriverHarness, nth: int) -> None:
    prepared = driver.prepare(LATENCY)
    hang(driver, nth, lambda: driver.unprepare(prepared))
    driver.unprepare(prepared)
    assert state(driver.node) == ("accel_vf", "throughput")
    driver.assert_clean()


def hang(driver: DriverHarness, nth: int, call: Callable[[], object]) -> None:
    """Let a write of a call hang: the VF is refused until the kernel returns, other VFs of the card are not."""
    driver.node.effects.hang_call(nth)
    with pytest.raises(RetriableError, match="the kernel did not return within 20 s"):
        call()
    driver.node.effects.clear()
    with pytest.raises(RetriableError, match="has been writing"):
        call()
    other = driver.prepare(claim("other"))
    assert other.names == ["vf-0000-3b-00-2"]
    driver.unprepare(other)
    driver.node.effects.release()


@pytest.mark.timeout(300)  # several hundred processes
def test_a_kill_at_any_line_leaves_nothing_behind(driver: DriverHarness) -> None:
    assert assert_survives_crashes(driver, LATENCY) > 50


def test_a_card_that_is_unplugged_while_a_claim_has_it_is_given_back(driver: DriverHarness) -> None:
    prepared = driver.prepare(LATENCY)
    unplug(driver.node)
    driver.unprepare(prepared)
    driver.assert_clean()


def unplug(node: FakeNode) -> None:
    """Remove the first card with its VFs."""
    for address in (CARDS[0], VF, "0000:3b:00.2"):
        node.remove(f"/sys/bus/pci/devices/{address}")


def test_cards_come_and_go(driver: DriverHarness) -> None:
    before = list(driver.devices)
    with driver.watching() as watch:
        unplug(driver.node)
        while list(driver.devices) != before[2:]:  # a discovery in the middle sees a part of the change
            watch.wait_changed()
        for address in (VF, "0000:3b:00.2", CARDS[0]):
            driver.node.link(f"/sys/bus/pci/devices/{address}", f"../../../devices/pci0000:00/{address}")
        while list(driver.devices) != before:
            watch.wait_changed()


def test_a_fault_of_a_pf_concerns_its_vfs_until_it_is_over(driver: DriverHarness) -> None:
    path = f"/sys/devices/pci0000:00/{CARDS[0]}/health"
    with driver.watching_health() as health:
        health.wait(NAME, HealthStatus.HEALTHY)
        driver.node.file(path, "overheated\n")
        assert health.wait(NAME, HealthStatus.UNHEALTHY).message == "overheated"
        assert health.devices["vf-0000-3b-00-2"].status is HealthStatus.UNHEALTHY
        assert health.devices["vf-0000-5e-00-1"].status is HealthStatus.HEALTHY
        driver.node.file(path, "ok\n")
        health.wait(NAME, HealthStatus.HEALTHY)
        unplug(driver.node)
        assert "health: cannot be read" in health.wait(NAME, HealthStatus.UNKNOWN).message
