"""What a test of a driver can see and do with the harness; a lamp that is on is a file with the claim's UID."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.errors import ConfigError, DeviceHeldError, HookError, InvalidObjectError, NotFoundError
from dra_sdk.testing import DriverHarness, FakeNode, NotAllocatedError, claim, request
from tests.testing.lamps import NAME, Dimmable, Hot, LampConfig, LampDriver, Reporting, Uneven

pytest_plugins = ["dra_sdk.testing.plugin"]


@pytest.fixture
def lamps(dra_node):
    """Two lamps, of 5 and 60 watts, with what a container needs of them."""
    for name, watt in (("lamp-0", 5), ("lamp-1", 60)):
        dra_node.file(f"/sys/class/lamps/{name}/watt", f"{watt}\n")
        dra_node.file(f"/sys/class/lamps/{name}/on")
        dra_node.device_node(f"/dev/{name}", major=99, minor=watt)
        dra_node.file(f"/run/{name}/socket", name)
    return dra_node


@pytest.fixture
def driver(lamps, dra_driver):
    return dra_driver(LampDriver)


def on(node, name):
    return node.path(f"/sys/class/lamps/{name}/on").read_text()


class TestContainers:
    def test_everything_a_container_gets(self, driver, lamps):
        prepared = driver.prepare(claim("desk", config=LampConfig(brightness=30)))
        container = prepared.container()
        assert prepared.names == ["lamp-0"]
        assert on(lamps, "lamp-0") == prepared.ref.uid
        assert container.env == {"LAMP_DESK": "30"}
        assert (container.devices["/dev/desk"]["major"], container.devices["/dev/desk"]["minor"]) == (99, 5)
        assert container.access == [{"allow": True, "type": "c", "major": 99, "minor": 5, "access": "rwm"}]
        assert container.mounts["/run/desk"]["source"] == "/run/lamp-0"
        assert container.read("/run/desk/socket") == "lamp-0"
        assert (container.hooks, container.net_devices, container.groups) == ({}, {}, [])
        with pytest.raises(AssertionError, match="no mount with /run/other"):
            container.read("/run/other")

    def test_each_container_gets_its_requests(self, driver):
        prepared = driver.prepare(claim("a", "b"), containers={"one": ["a"], "both": ["a", "b"], "none": []})
        env = {name: sorted(prepared.container(name).env) for name in prepared.containers}
        assert env == {"one": ["LAMP_A"], "both": ["LAMP_A", "LAMP_B"], "none": []}

    def test_a_device_node_that_is_not_there(self, driver, lamps):
        prepared = driver.prepare(claim())
        lamps.remove("/dev/lamp-0")
        with pytest.raises(Exception, match="the node has no device node /dev/lamp-0"):
            prepared.container()

    def test_a_mount_of_what_is_not_there(self, driver, lamps):
        prepared = driver.prepare(claim())
        lamps.remove("/run/lamp-0")
        with pytest.raises(AssertionError, match="mounts what the node does not have: /run/lamp-0"):
            prepared.container()


class TestMatch:
    def test_by_expression(self, driver):
        chosen = request("lamp", where=f'device.attributes["{NAME}"].watt > 10')
        assert driver.prepare(claim(chosen)).names == ["lamp-1"]

    def test_by_class(self, driver):
        opaque = {"opaque": {"driver": NAME, "parameters": LampConfig(brightness=7).encode()}}
        driver.add_class("bright", f'device.attributes["{NAME}"].watt > 10', config=[opaque])
        prepared = driver.prepare(claim(request("lamp", device_class="bright")))
        assert (prepared.names, prepared.container().env) == (["lamp-1"], {"LAMP_LAMP": "7"})

    def test_nobody_gets_what_another_has(self, driver):
        first = driver.prepare(claim())
        assert driver.prepare(claim()).names == ["lamp-1"]
        with pytest.raises(NotAllocatedError):
            driver.prepare(claim())
        driver.unprepare(first)
        assert driver.prepare(claim()).names == ["lamp-0"]

    def test_what_cannot_be_had_is_explained(self, driver):
        chosen = request("lamp", where=f'device.attributes["{NAME}"].watt > 100')
        with pytest.raises(NotAllocatedError, match=r"watt") as caught:
            driver.allocate(claim(chosen))
        assert "60" in str(caught.value)

    def test_shared_capacity(self, dra_driver):
        driver = dra_driver(Dimmable)
        lit = [driver.prepare(claim(request("l", capacity={"light": "40"}))).container().env for _ in range(2)]
        assert lit == [{"LIGHT": "40"}, {"LIGHT": "40"}]
        with pytest.raises(NotAllocatedError):
            driver.allocate(claim(request("l", capacity={"light": "40"})))

    def test_what_the_api_server_would_refuse(self, driver):
        with pytest.raises(InvalidObjectError, match="line 1, column 1: "):
            driver.allocate(claim(request("l", where="nothing")))
        with pytest.raises(InvalidObjectError, match="at most 10240 bytes"):
            driver.allocate(claim(config={"kind": "x" * 10_300}))
        with pytest.raises(InvalidObjectError, match="colour"):
            driver.allocate(claim({"name": "l", "exactly": {"colour": "red"}}))

    def test_gates_of_the_cluster(self, dra_driver):
        assert "taints" in dra_driver(Hot, version="1.36").slices()[0]["spec"]["devices"][0]
        assert "taints" not in dra_driver(Hot, version="1.35").slices()[0]["spec"]["devices"][0]

    def test_told_devices(self, driver):
        asked = claim("l").encoded(NAME, NAME)
        results = [{"request": "l", "driver": NAME, "pool": "node-1", "device": "lamp-1"}]
        told = driver.match.adopt({**asked, "status": {"allocation": {"devices": {"results": results}}}})
        assert driver.prepare(told).names == ["lamp-1"]


class TestDriver:
    def test_discovery(self, driver, lamps):
        assert {name: device.attributes["watt"] for name, device in driver.devices.items()} == {
            "lamp-0": 5,
            "lamp-1": 60,
        }
        lamps.remove("/sys/class/lamps/lamp-0")
        assert [device.name for pool in driver.discover() for device in pool.devices] == ["lamp-1"]
        (published,) = driver.slices()
        assert [device["name"] for device in published["spec"]["devices"]] == ["lamp-1"]
        driver.assert_publishable()

    def test_slices_that_releases_refuse_with_their_default_gates(self, dra_driver):
        driver = dra_driver(Uneven)
        with pytest.raises(AssertionError) as caught:
            driver.assert_publishable("1.36", "1.37")
        said = [line.split(": requestPolicy")[0] for line in str(caught.value).splitlines()]
        assert said == [f"Kubernetes {release}: device lamp-0: capacity light" for release in ("1.36", "1.37")]

    def test_wrong_configuration(self, driver):
        with pytest.raises(ConfigError, match="brightness: must be a valid integer"):
            driver.prepare(claim(config={**LampConfig().encode(), "brightness": "very"}))
        driver.assert_clean()

    def test_a_hook_that_fails(self, driver, lamps):
        lamps.remove("/sys/class/lamps/lamp-0/on")
        with pytest.raises(HookError, match="FileNotFoundError"):
            driver.prepare(claim())

    def test_an_instance_or_a_function(self, lamps, dra_driver):
        made = LampDriver()
        assert dra_driver(made).plugin is made
        made_anew = dra_driver(LampDriver)
        before = made_anew.plugin
        made_anew.restart()
        assert made_anew.plugin is not before

    def test_devices_that_another_claim_holds(self, driver):
        held = driver.prepare(claim("l"))
        other = claim("l")
        told = {**other.encoded(NAME, NAME), "status": held.claim["status"]}
        driver.match.adopt(told)
        with pytest.raises(DeviceHeldError):
            driver.prepare(told)
        assert [each.uid for each in driver.held] == [held.ref.uid]


class TestLife:
    def test_unprepare_and_again(self, driver, lamps):
        asked = claim()
        prepared = driver.prepare(asked)
        with pytest.raises(AssertionError, match="has left: claim"):
            driver.assert_clean()
        assert driver.leftovers()
        driver.unprepare(prepared)
        driver.unprepare(asked)
        driver.assert_clean()
        assert (on(lamps, "lamp-0"), driver.held) == ("", [])

    def test_a_replay_answers_the_same(self, driver):
        first = driver.prepare(claim())
        assert driver.prepare(first) == first
        driver.restart()
        again = driver.prepare(first)
        assert (again, again.container().env) == (first, first.container().env)
        shutil.rmtree(driver.node.cdi_dir)
        assert driver.prepare(first).cdi == first.cdi

    def test_after_a_reboot_the_hook_runs_again(self, driver, lamps):
        first = driver.prepare(claim())
        driver.reboot()
        assert not driver.held[0].complete or driver.held[0].rebooted
        assert driver.prepare(first).names == first.names
        driver.unprepare(first)
        driver.assert_clean()

    def test_a_claim_that_was_deleted_meanwhile(self, driver):
        allocated = claim()
        prepared = driver.prepare(allocated)
        driver.unprepare(prepared)
        with pytest.raises(NotFoundError, match=prepared.ref.name):
            driver.prepare(prepared)


class TestReports:
    def test_metadata_and_status(self, lamps, dra_driver):
        prepared = dra_driver(Reporting).prepare(claim("l"))
        (said,) = prepared.claim["status"]["devices"]
        assert (said["device"], said["conditions"][0]["type"]) == ("lamp-0", "Ready")
        container = prepared.container()
        (path,) = container.mounts
        assert '"led"' in container.read(path)

    def test_a_status_that_no_server_takes(self, lamps, dra_driver):
        with pytest.raises(AssertionError, match=r"no server takes: .*reason"):
            dra_driver(lambda: Reporting("not one word")).prepare(claim("l"))


@pytest.mark.parametrize("driver", ["LampDriver", None])
def test_what_is_no_driver_is_told(driver: Any, tmp_path: Path) -> None:
    with pytest.raises(
        TypeError, match="driver must be a driver's class, a function that makes one, or an instance, is "
    ):
        DriverHarness(driver, FakeNode(tmp_path))


def test_a_container_that_the_pod_does_not_have_is_told(dra_node, dra_driver):
    dra_node.file("/sys/class/lamps/lamp-0/watt", "5")
    dra_node.file("/sys/class/lamps/lamp-0/on", "")
    dra_node.device_node("/dev/lamp-0")
    prepared = dra_driver(LampDriver).prepare(claim(request("desk")))
    with pytest.raises(AssertionError, match="the pod has no container 'side'; there are main"):
        prepared.container("side")
