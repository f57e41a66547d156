"""What is beyond a limit is refused or left out, is said once, and harms no other plugin."""

from __future__ import annotations

from pathlib import Path

import grpc
import pytest
from dra_driver_plugin import limits
from dra_driver_plugin.devices import read_devices
from dra_driver_plugin.testing import RESOURCE, FakePlugin, wire_devices

from dra_sdk.testing import DriverHarness, claim
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]


def things(count: int, first: int = 0) -> dict[str, str]:
    return {f"thing{number}": "Healthy" for number in range(first, first + count)}


def of_resource(driver: DriverHarness, resource: str) -> list[object]:
    """The ids of the published devices of a resource."""
    devices = driver.devices.values()
    return [device.attributes["id"] for device in devices if device.attributes["resource"] == resource]


def test_a_resource_beyond_the_limit_is_refused_until_another_is_forgotten(
    bridge: object, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "RESOURCES", 2)
    driver: DriverHarness = bridge(forget_seconds=0.5)  # type: ignore[operator]
    first = FakePlugin(directory, things(1), resource="a.com/thing", endpoint="a.sock")
    second = FakePlugin(directory, things(1), resource="b.com/thing", endpoint="b.sock")
    third = FakePlugin(directory, things(1), resource="c.com/thing", endpoint="c.sock")
    with driver.watching(), second, third:
        with first:
            first.register()
            second.register()
            for _ in range(2):
                with pytest.raises(grpc.RpcError, match=r"c\.com/thing is refused: the bridge has 2 resources"):
                    third.register()
            first.register()  # which has its place
            wait(lambda: len(driver.devices) == 2)
        assert len(driver.warnings) == 1
        wait(lambda: len(driver.devices) == 1)
        third.register()
        wait(lambda: of_resource(driver, "c.com/thing"))
        with first, pytest.raises(grpc.RpcError, match="the bridge has 2 resources already"):
            first.register()
    assert [warning.partition(" is refused")[0] for warning in driver.warnings] == [
        "device plugin c.sock of c.com/thing",
        "device plugin a.sock of a.com/thing",
    ]


def test_a_list_may_have_as_many_devices_as_the_limit_and_no_more(driver: DriverHarness, directory: Path) -> None:
    with driver.watching(), FakePlugin(directory, things(limits.LISTED)) as plugin:
        plugin.register()
        wait(lambda: len(driver.devices) == limits.LISTED)
        assert not driver.warnings
        plugin.publish(things(limits.LISTED + 1, first=-1))
        wait(lambda: driver.warnings)
        plugin.publish({**things(limits.LISTED + 1), "thing0": "Unhealthy"})
        assert set(of_resource(driver, RESOURCE)) == set(things(limits.LISTED)), "those that were there stay"
        driver.prepare(claim("thing"))
    (warning,) = driver.warnings
    assert warning.startswith("device plugin thing.sock of vendor.com/thing lists too many devices, and 1 of them are")
    assert warning.endswith(": it may have 2000 now (limits: 2000 of one plugin, 5000 of all)")


def test_all_together_have_a_limit_and_the_last_one_is_cut(
    driver: DriverHarness, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "DEVICES", 5)
    other = FakePlugin(directory, things(4), resource="other.com/thing", endpoint="other.sock")
    with driver.watching(), FakePlugin(directory, things(3)) as plugin, other:
        plugin.register()
        wait(lambda: len(driver.devices) == 3)
        other.register()
        wait(lambda: len(driver.devices) == 5)
        assert of_resource(driver, RESOURCE) == ["thing0", "thing1", "thing2"]
        assert "other.sock of other.com/thing lists too many devices, and 2 of them are left out" in driver.warnings[0]
        plugin.publish({})
        wait(lambda: len(driver.devices) == 2)
        other.publish(things(4, first=1))
        wait(lambda: len(driver.devices) == 4)


def test_what_a_release_without_limits_has_remembered_is_cut(
    driver: DriverHarness, directory: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with driver.watching(), FakePlugin(directory, things(4)) as plugin:
        plugin.register()
        wait(lambda: len(driver.devices) == 4)
    monkeypatch.setattr(limits, "DEVICES", 3)
    driver.restart()
    driver.discover()
    assert of_resource(driver, RESOURCE) == ["thing0", "thing1", "thing2"]


@pytest.mark.parametrize(("length", "kept"), [(limits.ID, 1), (limits.ID + 1, 0)])
def test_an_id_has_a_limit(length: int, kept: int) -> None:
    devices, problems, _ = read_devices(RESOURCE, wire_devices({"x" * length: "Healthy"}))
    assert len(devices) == kept
    assert kept or problems == ["a device is left out, because its id has 257 characters, not 1 to 256"]


@pytest.mark.parametrize("count", [limits.NUMA_NODES, limits.NUMA_NODES + 1])
def test_the_numa_nodes_and_the_health_of_a_device_have_a_limit(count: int) -> None:
    listed = wire_devices({"thing0": "x" * 10_000}, {"thing0": range(count)})
    devices, problems, _ = read_devices(RESOURCE, listed)
    assert devices["thing0"].numa == tuple(range(limits.NUMA_NODES))
    assert len(devices["thing0"].health) == limits.TEXT
    assert problems == (
        ["device 'thing0': of its 65 NUMA nodes the first 64 count"] if count > limits.NUMA_NODES else []
    )
