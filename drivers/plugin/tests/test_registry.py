"""Registration, and the life of plugins: restart, update, several at once, lies; and a bridge that restarts."""

from __future__ import annotations

import logging
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import grpc
import pytest
from dra_driver_plugin.testing import KUBELET, FakePlugin, wire_devices

from dra_sdk import HealthStatus, PermanentError
from dra_sdk.testing import DriverHarness, FakeNode, claim
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]
THINGS = {"thing0": "Healthy", "thing1": "Healthy"}


def ids(driver: DriverHarness) -> list[Any]:
    """The ids of the published devices, with their resource."""
    return [f"{device.attributes['resource']} {device.attributes['id']}" for device in driver.devices.values()]


def name_of(driver: DriverHarness, device: str) -> str:
    """The name under which a plugin's device is published."""
    return next(name for name, published in driver.devices.items() if published.attributes["id"] == device)


@pytest.mark.parametrize(
    ("plugin", "problem"),
    [
        ({"resource": "thing"}, "resource name 'thing' must be a domain, a slash and a name"),
        ({"resource": "example.kubernetes.io/thing"}, "must not be of the domain kubernetes.io"),
        ({"resource": "requests.example.com/thing"}, r"must not .* begin with 'requests\.'"),
        ({"resource": "other.com/thing"}, "not among those that the bridge is set to take: vendor.com/thing"),
        ({"endpoint": "../thing.sock"}, "must be the name of a socket beside kubelet.sock"),
        ({"endpoint": KUBELET}, "must be the name of a socket beside kubelet.sock"),
        ({"endpoint": "t" * 100}, "has more than 107 bytes"),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused_in_a_sentence(
    bridge: Any, directory: Path, plugin: dict[str, Any], problem: str
) -> None:
    driver = bridge(resources=("vendor.com/thing",))
    refused = FakePlugin(directory, THINGS, **plugin)
    with driver.watching(), pytest.raises(grpc.RpcError, match=problem):
        refused.register()


def test_another_version_of_the_api_is_refused_in_a_sentence(driver: DriverHarness, directory: Path) -> None:
    refused = FakePlugin(directory, THINGS)
    with driver.watching(), pytest.raises(grpc.RpcError, match=r"'v1alpha' .* is not supported"):
        refused.register("v1alpha")


def test_several_plugins_have_their_devices_side_by_side(driver: DriverHarness, directory: Path) -> None:
    other = FakePlugin(directory, {"thing0": "Healthy"}, resource="other.com/thing", endpoint="other.sock")
    with driver.watching() as watching, FakePlugin(directory, THINGS) as plugin, other:
        plugin.register()
        watching.wait_changed()
        other.register()
        watching.wait_changed()
        assert ids(driver) == ["other.com/thing thing0", "vendor.com/thing thing0", "vendor.com/thing thing1"]
        driver.assert_publishable()


def test_devices_come_and_go_with_the_plugins_list(driver: DriverHarness, directory: Path) -> None:
    with driver.watching() as watching, FakePlugin(directory, {"thing0": "Healthy"}) as plugin:
        plugin.register()
        watching.wait_changed()
        name = name_of(driver, "thing0")
        for published in ({"thing10": "Healthy", "thing9": "Healthy", "thing0": "Unhealthy"}, {}):
            plugin.publish(published)
            watching.wait_changed()
            assert (
                ids(driver) == [f"vendor.com/thing {id_}" for id_ in ("thing0", "thing9", "thing10")][: len(published)]
            )
            assert not published or name_of(driver, "thing0") == name


def test_a_plugin_that_restarts_is_followed_again(driver: DriverHarness, directory: Path) -> None:
    with driver.watching() as watching, FakePlugin(directory, THINGS) as plugin:
        plugin.register()
        watching.wait_changed()
        plugin.stop()
        plugin.publish({"thing2": "Healthy"})
        plugin.start()
        watching.wait_changed()
        assert ids(driver) == ["vendor.com/thing thing2"]


def test_an_updated_plugin_takes_the_resource_over(
    driver: DriverHarness, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    newer = FakePlugin(directory, {"thing0": "Healthy"}, endpoint="newer.sock")
    with driver.watching() as watching, FakePlugin(directory, THINGS) as older, newer, caplog.at_level(logging.WARNING):
        older.register()
        watching.wait_changed()
        newer.register()
        watching.wait_changed()
        assert ids(driver) == ["vendor.com/thing thing0"]
        assert "newer.sock of vendor.com/thing replaces device plugin thing.sock" in caplog.text
        older.publish({"thing3": "Healthy"})
        driver.prepare(claim("thing"))
        assert (older.calls, newer.calls) == ([], [("Allocate", ("thing0",))])
        driver.discover()
        assert ids(driver) == ["vendor.com/thing thing0"]


def test_health_is_that_of_the_plugin_until_it_is_away(driver: DriverHarness, directory: Path) -> None:
    with driver.watching() as watching, FakePlugin(directory, THINGS) as plugin, driver.watching_health() as health:
        plugin.register()
        watching.wait_changed()
        name = name_of(driver, "thing0")
        health.wait(name, HealthStatus.HEALTHY)
        plugin.publish({"thing0": "on fire", "thing1": "Healthy"})
        message = health.wait(name, HealthStatus.UNHEALTHY).message
        assert message == "device plugin thing.sock of vendor.com/thing reports 'on fire'"
        assert health.devices[name_of(driver, "thing1")].status is HealthStatus.HEALTHY
        plugin.publish(THINGS)
        health.wait(name, HealthStatus.HEALTHY)
        plugin.stop()
        assert "is away: " in health.wait(name, HealthStatus.UNHEALTHY).message
        plugin.start()
        health.wait(name, HealthStatus.HEALTHY)


def test_a_list_that_makes_no_sense_leaves_the_devices_as_they_are(driver: DriverHarness, directory: Path) -> None:
    with driver.watching() as watching, FakePlugin(directory, THINGS) as plugin, driver.watching_health() as health:
        plugin.register()
        watching.wait_changed()
        plugin.publish(b"\xff\xff\xff")
        message = health.wait(name_of(driver, "thing0"), HealthStatus.UNHEALTHY).message
        assert "failed in ListAndWatch" in message
        driver.discover()
        assert len(driver.devices) == 2
        plugin.publish(THINGS)
        health.wait(name_of(driver, "thing0"), HealthStatus.HEALTHY)


def test_an_id_that_repeats_is_one_device_that_is_unhealthy_if_once_said_so(
    driver: DriverHarness, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lying = [
        *wire_devices({"thing0": "Healthy"}),
        *wire_devices({"thing0": "Unhealthy"}),
        *wire_devices({"": "Healthy"}),
    ]
    with driver.watching() as watching, FakePlugin(directory, lying) as plugin, driver.watching_health() as health:
        plugin.register()
        watching.wait_changed()
        assert ids(driver) == ["vendor.com/thing thing0"]
        health.wait(name_of(driver, "thing0"), HealthStatus.UNHEALTHY)
    assert "device 'thing0' is there twice" in caplog.text
    assert "its id has 0 characters" in caplog.text


def test_a_bridge_that_restarts_knows_its_plugins(driver: DriverHarness, directory: Path) -> None:
    with FakePlugin(directory, THINGS) as plugin:
        with driver.watching() as watching:
            plugin.register()
            watching.wait_changed()
            before = driver.devices
        driver.restart()
        driver.discover()
        assert driver.devices == before
        driver.prepare(claim("thing"))  # before it follows the plugin again
        with driver.watching(), driver.watching_health() as health:
            health.wait(name_of(driver, "thing0"), HealthStatus.HEALTHY)
        assert plugin.streams == 2


def test_after_a_reboot_plugins_must_register_again(driver: DriverHarness, directory: Path, dra_node: FakeNode) -> None:
    with FakePlugin(directory, THINGS) as plugin, driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
    dra_node.reboot()
    driver.restart()
    driver.discover()
    assert not driver.devices


def test_a_socket_that_somebody_removes_is_made_again(driver: DriverHarness, directory: Path) -> None:
    with driver.watching() as watching, FakePlugin(directory, THINGS) as plugin:
        wait((directory / KUBELET).exists)
        (directory / KUBELET).unlink()
        wait((directory / KUBELET).exists)
        plugin.register()
        watching.wait_changed()
    assert not (directory / KUBELET).exists()


def test_of_two_bridges_the_newer_one_waits_and_prepares_meanwhile(bridge: Any, directory: Path) -> None:
    older, newer = bridge(), bridge()
    with FakePlugin(directory, THINGS) as plugin:
        with ExitStack() as life:
            watching = life.enter_context(older.watching())
            plugin.register()
            watching.wait_changed()
            with newer.watching(), newer.watching_health() as health:
                assert list(newer.devices) == list(older.devices)
                newer.prepare(claim("thing"))
                assert plugin.streams == 1
                life.close()
                health.wait(name_of(newer, "thing0"), HealthStatus.HEALTHY)
        assert plugin.streams == 2


def test_the_kubelets_own_directory_is_refused(driver: DriverHarness, directory: Path) -> None:
    (directory / "kubelet_internal_checkpoint").touch()
    with pytest.raises(PermanentError, match="is the kubelet's own"), driver.watching() as watching:
        watching.wait_changed()


def test_a_damaged_memory_is_told_and_the_plugin_registers_again(
    driver: DriverHarness, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with FakePlugin(directory, THINGS) as plugin:
        with driver.watching() as watching:
            plugin.register()
            watching.wait_changed()
        (record,) = (directory / ".registrations").glob("*/record.json")
        record.write_text("{")
        driver.restart()
        with driver.watching() as watching:
            assert not driver.devices
            plugin.register()
            watching.wait_changed()
            assert len(driver.devices) == 2
    assert "is not known until it registers again" in caplog.text
