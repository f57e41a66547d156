"""What the author of a driver tests: `pytest` in this directory."""

from pathlib import Path

import pytest
from fpga_driver import FpgaConfig, FpgaDriver

from dra_sdk import ConfigError, HealthStatus
from dra_sdk.testing import DriverHarness, FakeNode, NotAllocatedError, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes

REGION = 'device.attributes["fpga.example.com"].type == "region"'
CARD = 'device.attributes["fpga.example.com"].type == "card"'
DMA = 'device.attributes["fpga.example.com"].type == "dma"'


@pytest.fixture
def driver(tmp_path: Path) -> DriverHarness:
    """Start the driver on a node with two cards of two regions."""
    node = FakeNode(tmp_path)
    for number in range(2):
        card = f"/sys/class/fpga/card{number}"
        for file, content in (("model", "v80\n"), ("regions", "2\n"), ("health", "ok\n")):
            node.file(f"{card}/{file}", content)
        for region in range(2):
            node.file(f"{card}/region{region}", "blank")
        node.device_node(f"/dev/fpga{number}", major=240, minor=number)
    return DriverHarness(FpgaDriver, node)


def test_every_release_accepts_the_slices(driver: DriverHarness) -> None:
    driver.assert_publishable()
    assert len(driver.devices) == 8


def test_configuration_reaches_the_card_and_the_container(driver: DriverHarness) -> None:
    aes = claim(request("fpga", where=REGION), config=FpgaConfig(bitstream="aes", clock_mhz=300))
    prepared = driver.prepare(aes)
    assert prepared.container().env == {"FPGA_CLOCK_MHZ": "300", "FPGA_MODE": "stream"}
    assert prepared.container().devices["/dev/fpga"]["minor"] == 0
    region = driver.node.path("/sys/class/fpga/card0/region0")
    assert region.read_text() == "aes"
    driver.unprepare(prepared)
    assert region.read_text() == "blank"
    driver.assert_clean()


def test_an_error_about_a_wrong_clock_names_the_limit(driver: DriverHarness) -> None:
    wrong = {"apiVersion": "fpga.example.com/v1", "kind": "FpgaConfig", "clockMhz": 500}
    with pytest.raises(ConfigError, match=r"clockMhz: must be less than or equal to 400 \(got 500\)"):
        driver.prepare(claim(request("fpga", where=REGION), config=wrong))


def test_a_card_with_a_region_in_use_is_not_allocated_whole(driver: DriverHarness) -> None:
    driver.prepare(claim(request("fpga", where=REGION)))
    assert driver.prepare(claim(request("fpga", where=CARD))).names == ["card1"]
    with pytest.raises(NotAllocatedError, match="1 short of counter regions"):
        driver.prepare(claim(request("fpga", where=CARD)))


def test_claims_share_bandwidth_until_none_is_left(driver: DriverHarness) -> None:
    most = driver.prepare(claim(request("dma", where=DMA, capacity={"bandwidth": "15Gi"})))
    rest = driver.prepare(claim(request("dma", where=DMA)))
    assert (most.names, rest.names) == (["card0-dma"], ["card0-dma"])
    assert rest.container().env["FPGA_BANDWIDTH"] == "1Gi"
    assert driver.prepare(claim(request("dma", where=DMA))).names == ["card1-dma"]


def test_a_broken_card_makes_all_its_devices_unhealthy_until_it_is_well(driver: DriverHarness) -> None:
    with driver.watching_health() as health:
        health.wait("card0", HealthStatus.HEALTHY)
        driver.node.file("/sys/class/fpga/card0/health", "overheated\n")
        assert health.wait("card0-region1", HealthStatus.UNHEALTHY).message == "overheated"
        assert health.devices["card0-dma"].status is HealthStatus.UNHEALTHY
        assert health.devices["card1"].status is HealthStatus.HEALTHY
        driver.node.file("/sys/class/fpga/card0/health", "ok\n")
        health.wait("card0", HealthStatus.HEALTHY)


def test_a_card_that_is_removed_is_no_longer_published(driver: DriverHarness) -> None:
    with driver.watching() as watch:
        driver.node.remove("/sys/class/fpga/card0")
        watch.wait_changed()
    assert list(driver.devices) == ["card1", "card1-region0", "card1-region1", "card1-dma"]


def test_a_crash_at_any_line_leaves_no_bitstream_behind(driver: DriverHarness) -> None:
    assert_survives_crashes(driver, claim(request("fpga", where=REGION), config=FpgaConfig(bitstream="aes")))
