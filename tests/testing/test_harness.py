"""The harness: discovery, errors of the driver, and the life of a claim over replays, restarts and reboots."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from dra_sdk import Device, DriverSettings
from dra_sdk.errors import ClaimError, ConfigError, DeviceHeldError, HookError, NotFoundError
from dra_sdk.testing import DriverHarness, FakeNode, claim, harness
from tests.lamps import NAME, LampConfig
from tests.testing.lamps import SwitchedLamps

pytest_plugins = ["dra_sdk.testing.plugin"]


# -- the driver


def test_discovery_reads_the_node(driver, lamps):
    assert {name: device.attributes["watt"] for name, device in driver.devices.items()} == {"lamp-0": 5, "lamp-1": 60}
    lamps.remove("/sys/class/lamps/lamp-0")
    assert [device.name for pool in driver.discover() for device in pool.devices] == ["lamp-1"]
    (published,) = driver.slices()
    assert [device["name"] for device in published["spec"]["devices"]] == ["lamp-1"]
    driver.assert_publishable()


def test_wrong_configuration_is_an_error(driver):
    with pytest.raises(ConfigError, match="brightness: must be a valid integer"):
        driver.prepare(claim(config={**LampConfig().encode(), "brightness": "very"}))
    driver.assert_clean()


def test_a_failing_hook_is_an_error(driver, lamps):
    lamps.remove("/sys/class/lamps/lamp-0/on")
    with pytest.raises(HookError, match="FileNotFoundError"):
        driver.prepare(claim())


def test_a_restart_makes_a_new_driver_unless_it_is_an_instance(lamps, dra_driver):
    instance = SwitchedLamps()
    given = dra_driver(instance)
    given.restart()
    assert given.plugin is instance
    made = dra_driver(SwitchedLamps)
    before = made.plugin
    made.restart()
    assert made.plugin is not before


class DimmedSettings(DriverSettings, prefix="DIMMED_"):
    watt: int = 5


class DimmedDriver(SwitchedLamps):
    settings_class = DimmedSettings

    def __init__(self, settings: DimmedSettings):
        super().__init__()
        self.settings = settings


def test_a_class_with_settings_gets_those_of_the_test_or_the_defaults(lamps, dra_driver, monkeypatch):
    monkeypatch.setenv("DIMMED_WATT", "60")
    assert dra_driver(DimmedDriver).plugin.settings.watt == 5
    made = dra_driver(DimmedDriver, settings=DimmedSettings(watt=7))
    made.restart()
    assert made.plugin.settings.watt == 7
    made = dra_driver(partial(DimmedDriver), settings=DimmedSettings(watt=8))
    assert made.plugin.settings.watt == 8
    with pytest.raises(TypeError, match="settings are for a driver's class or a function"):
        dra_driver(made.plugin, settings=DimmedSettings())


def test_a_device_that_another_claim_holds_is_refused(driver):
    held = driver.prepare(claim("l"))
    other = {**claim("l").encoded(NAME, NAME), "status": held.claim["status"]}
    driver.cluster.adopt(other)
    with pytest.raises(DeviceHeldError):
        driver.prepare(other)
    assert [claim.uid for claim in driver.held] == [held.ref.uid]


@pytest.mark.parametrize("driver", ["LampDriver", None])
def test_what_is_not_a_driver_is_refused(driver: Any, tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="driver must be a driver's class, a function that makes one, or an instance, is "
    ):
        DriverHarness(driver, FakeNode(tmp_path))


# -- the driver's own object


class ByPath(SwitchedLamps):
    """Attaches the path of each lamp to its device."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[Any] = []

    def dra_discover(self, node):
        for path in sorted((node.sys / "class/lamps").iterdir()):
            yield Device(path.name, hardware=path)

    def dra_prepare(self, claim):
        self.seen += [device.hardware for device in claim.devices]
        yield from super().dra_prepare(claim)


def test_prepare_gets_the_object_of_discovery_also_after_a_restart(lamps, dra_driver):
    driver = dra_driver(ByPath)
    path = lamps.path("/sys/class/lamps/lamp-0")
    prepared = driver.prepare(claim())
    driver.unprepare(prepared)
    assert driver.plugin.seen == [path]
    driver.restart()
    driver.prepare(driver.cluster.adopt(prepared.claim))
    assert driver.plugin.seen == [path]
    (published,) = driver.slices()
    assert published["spec"]["devices"][0] == {"name": "lamp-0"}
    driver.assert_publishable()


def test_a_claim_whose_device_has_gone_is_refused_before_the_hook_runs(lamps, dra_driver):
    driver = dra_driver(ByPath)
    allocated = driver.allocate(claim())
    lamps.remove("/sys/class/lamps/lamp-0")
    driver.discover()
    with pytest.raises(ClaimError, match=r"node-1/lamp-0 is not among those that driver lamps\.example\.com publishes"):
        driver.prepare(allocated)
    assert driver.plugin.seen == []


# -- the life of a claim


def test_unprepare_leaves_nothing_and_can_be_repeated(driver, lamps):
    fake = claim()
    prepared = driver.prepare(fake)
    with pytest.raises(AssertionError, match="has left: claim"):
        driver.assert_clean()
    assert driver.leftovers()
    driver.unprepare(prepared)
    driver.unprepare(fake)
    driver.assert_clean()
    assert lamps.path("/sys/class/lamps/lamp-0/on").read_text() == ""
    assert driver.held == []


def test_a_replay_gets_the_same_answer(driver):
    first = driver.prepare(claim())
    assert driver.prepare(first) == first
    driver.restart()
    again = driver.prepare(first)
    assert (again, again.container().env) == (first, first.container().env)
    shutil.rmtree(driver.node.cdi_dir)
    assert driver.prepare(first).cdi == first.cdi


def test_the_hook_runs_again_after_a_reboot(driver):
    first = driver.prepare(claim())
    driver.reboot()
    assert not driver.held[0].complete or driver.held[0].rebooted
    assert driver.prepare(first).names == first.names
    driver.unprepare(first)
    driver.assert_clean()


def test_a_deleted_claim_cannot_be_prepared_again(driver):
    prepared = driver.prepare(claim())
    driver.unprepare(prepared)
    with pytest.raises(NotFoundError, match=prepared.ref.name):
        driver.prepare(prepared)


def test_a_prepare_that_takes_longer_than_the_kubelet_waits_is_an_error(lamps, monkeypatch):
    now = [0.0]
    monkeypatch.setattr(harness, "monotonic", lambda: now[0])
    left: list[float] = []

    class Slow(SwitchedLamps):
        def dra_prepare(self, claim):
            left.append(claim.deadline.remaining())
            now[0] += 60.0
            yield from super().dra_prepare(claim)

    driver = DriverHarness(Slow, lamps)
    with pytest.raises(AssertionError, match=r"dra_prepare of driver .* took 60\.0 s: the kubelet gives up after 45 s"):
        driver.prepare(claim())
    assert left == [45.0]
