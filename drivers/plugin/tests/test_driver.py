"""The bridge with device plugins on real sockets: what it publishes, and what a container gets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.testing import FakePlugin, device_of_each

from dra_sdk import PermanentError, RetriableError
from dra_sdk.testing import DriverHarness, FakeNode, PreparedClaim, claim, request
from dra_sdk.testing.sysfs import FakePci, regular_machine
from dra_sdk.testing.waiting import wait

pytest_plugins = ["dra_sdk.testing.plugin"]
THINGS = {"thing0": "Healthy", "thing1": "Healthy"}


def answer(**fields: Any) -> Callable[[Sequence[str]], wire.AllocateResponse]:
    """An answer to Allocate for any devices."""
    return lambda _ids: wire.AllocateResponse(container_responses=[wire.ContainerAllocateResponse(**fields)])


def device(path: str, **fields: str) -> wire.DeviceSpec:
    return wire.DeviceSpec(**{"host_path": path, "container_path": path, "permissions": "rw", **fields})


def prepared_with(driver: DriverHarness, plugin: FakePlugin, **fields: Any) -> PreparedClaim:
    """A claim for one device, where the plugin answers Allocate with these fields."""
    plugin.allocate = answer(**fields)
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        return driver.prepare(claim("thing"))


@pytest.fixture
def plugin(directory: Path) -> Any:
    """A plugin that is not registered yet, with two devices."""
    with FakePlugin(directory, THINGS) as plugin:
        yield plugin


def test_a_claim_gets_what_allocate_answers_for_all_devices_of_its_request(
    driver: DriverHarness, plugin: FakePlugin
) -> None:
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        assert [device.attributes["id"] for device in driver.devices.values()] == ["thing0", "thing1"]
        driver.assert_publishable()
        container = driver.prepare(claim(request("things", count=2))).container()
    assert container.env["THINGS"] == "thing0,thing1"
    assert set(container.devices) == {"/dev/thing0", "/dev/thing1"}
    assert plugin.calls == [("Allocate", ("thing0", "thing1"))]


def test_each_request_is_allocated_for_itself(driver: DriverHarness, plugin: FakePlugin) -> None:
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        asked = claim(request("one"), request("two"))
        prepared = driver.prepare(asked, containers={"first": ["one"], "second": ["two"]})
    assert [prepared.container(request).env["THINGS"] for request in ("first", "second")] == ["thing0", "thing1"]
    assert plugin.calls == [("Allocate", ("thing0",)), ("Allocate", ("thing1",))]


def test_a_repeated_prepare_has_the_same_answer_after_the_plugins_end(
    driver: DriverHarness, plugin: FakePlugin
) -> None:
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        first = driver.prepare(claim("thing"))
    plugin.stop()
    driver.restart()
    again = driver.prepare(first.claim)
    assert (again.devices, again.cdi) == (first.devices, first.cdi)
    assert len(plugin.calls) == 1
    driver.unprepare(again)
    driver.assert_clean()


def test_mounts_and_permissions_are_as_the_plugin_says(bridge: Any, plugin: FakePlugin, dra_node: FakeNode) -> None:
    dra_node.file("/opt/thing/lib.so")
    mounts = [
        wire.Mount(host_path="/opt/thing", container_path="/thing", read_only=True),
        wire.Mount(host_path="/opt/thing/lib.so", container_path="/lib.so"),
    ]
    devices = [device("/dev/thing0", container_path="/dev/x", permissions="r")]
    driver = bridge(allowed_paths=("/dev", "/opt/thing"))
    container = prepared_with(driver, plugin, mounts=mounts, devices=devices).container()
    assert container.devices["/dev/x"]["minor"] == 0
    assert [rule["access"] for rule in container.access if rule.get("major") == 240] == ["r"]
    assert {path: mount["options"][-1] for path, mount in container.mounts.items()} == {"/thing": "ro", "/lib.so": "rw"}


def test_cdi_devices_of_the_plugin_reach_the_kubelet(driver: DriverHarness, plugin: FakePlugin) -> None:
    names = [wire.CDIDevice(name="vendor.com/thing=0"), wire.CDIDevice(name="vendor.com/thing=all")]
    prepared = prepared_with(driver, plugin, cdi_devices=names)
    assert prepared.devices[0].cdi_ids == ("vendor.com/thing=0", "vendor.com/thing=all")


def test_annotations_are_told_because_cdi_has_none(driver: DriverHarness, plugin: FakePlugin) -> None:
    prepared = prepared_with(driver, plugin, annotations={"vendor.com/mode": "fast"})
    (status,) = driver.cluster.claims[prepared.ref.uid]["status"]["devices"]
    assert status["conditions"][0]["message"].endswith("because CDI has none: vendor.com/mode=fast")


def test_without_the_hosts_sys_no_pci_function_is_known_and_nothing_else_is_lost(
    driver: DriverHarness, plugin: FakePlugin, dra_node: FakeNode
) -> None:
    """What the mount of `/sys` in the bridge's pod is for."""
    dra_node.device_node("/dev/vfio/40")
    driver.unprepare(prepared_with(driver, plugin, devices=[device("/dev/vfio/40")]))
    driver.discover()
    known = {key for device in driver.devices.values() for key in device.attributes}
    assert "resource" in known
    assert not [key for key in known if key.startswith("resource.kubernetes.io/")]


def test_device_nodes_tell_the_pci_function_of_a_device_for_good(
    driver: DriverHarness, plugin: FakePlugin, dra_node: FakeNode
) -> None:
    address = "0000:3b:00.0"
    function = FakePci(address=address, driver="vfio-pci", iommu_group=40, numa_node=1)
    dra_node.machine(replace(regular_machine(sockets=2), pci=(function,)))
    for name in ("vfio", "40"):
        dra_node.device_node(f"/dev/vfio/{name}")
    prepared = prepared_with(driver, plugin, devices=[device("/dev/vfio/vfio"), device("/dev/vfio/40")])
    driver.unprepare(prepared)
    driver.restart()
    driver.discover()
    by_id = {device.attributes["id"]: device.attributes for device in driver.devices.values()}
    assert by_id["thing0"]["resource.kubernetes.io/pciBusID"] == address
    assert by_id["thing0"]["resource.kubernetes.io/numaNode"] == 1
    assert "resource.kubernetes.io/pciBusID" not in by_id["thing1"]


def test_links_are_followed_and_a_directory_stands_for_its_devices(
    driver: DriverHarness, plugin: FakePlugin, dra_node: FakeNode
) -> None:
    dra_node.link("/dev/serial/by-id/thing", "../../thing3")
    dra_node.device_node("/dev/snd/pcm", minor=20)
    dra_node.device_node("/dev/snd/deep/seq", minor=21)
    devices = [device("/dev/serial/by-id/thing"), device("/dev/snd")]
    container = prepared_with(driver, plugin, devices=devices).container()
    minors = {path: node["minor"] for path, node in container.devices.items()}
    assert minors == {"/dev/serial/by-id/thing": 3, "/dev/snd/pcm": 20, "/dev/snd/deep/seq": 21}


@pytest.mark.parametrize(
    ("fields", "problem"),
    [
        (
            {"devices": [device("/etc/shadow")]},
            r"may not give: devices\[0\]\.host_path: host path /etc/shadow is not below /dev ",
        ),
        ({"devices": [device("/dev/../etc/shadow")]}, "must be absolute, without '..'"),
        ({"devices": [device("dev/thing0")]}, "must be absolute"),
        ({"devices": [device("/devil")]}, "not below /dev"),
        (
            {"devices": [device("/dev/way-out")]},
            "/dev/way-out, which leads to /etc/shadow, is not below /dev",
        ),
        ({"devices": [device("/dev/loop")]}, "too many levels of symbolic links"),
        ({"mounts": [wire.Mount(host_path="/", container_path="/host")]}, "host path / is not below /dev"),
        ({"devices": [device("/dev/none")]}, "host path /dev/none is not there, or the bridge's pod does not have it"),
        (
            {"mounts": [wire.Mount(host_path="/dev/none", container_path="/x")]},
            "/dev/none is not there, or the bridge's",
        ),
    ],
)
def test_a_path_of_the_host_that_is_not_allowed_is_refused(
    driver: DriverHarness, plugin: FakePlugin, dra_node: FakeNode, fields: dict[str, Any], problem: str
) -> None:
    dra_node.file("/etc/shadow")
    dra_node.link("/dev/way-out", "/etc/shadow")
    dra_node.link("/dev/loop", "loop")
    with pytest.raises(PermanentError, match=problem):
        prepared_with(driver, plugin, **fields)
    driver.assert_clean()


@pytest.mark.parametrize(
    ("answers", "problem"),
    [
        (lambda _ids: wire.AllocateResponse(), "answered Allocate for 0 containers, not 1"),
        (lambda _ids: b"\xff\xff\xff", "failed in Allocate: INTERNAL"),
        (
            answer(devices=[device("/dev/thing0", permissions="all")]),
            r"devices\[0\]\.permissions 'all' must be of r, w",
        ),
        (answer(cdi_devices=[wire.CDIDevice(name="thing0")]), "must be vendor/class=name"),
        (answer(envs={"A=B": "1"}), "A=B"),
        (answer(mounts=[wire.Mount(host_path="/dev")]), r"mounts\[0\]\.container_path '' must be absolute"),
    ],
)
def test_an_answer_that_makes_no_sense_fails_the_claim_with_a_sentence(
    driver: DriverHarness, plugin: FakePlugin, answers: Any, problem: str
) -> None:
    plugin.allocate = answers
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        with pytest.raises(Exception, match=problem):
            driver.prepare(claim("thing"))
        driver.assert_clean()
        plugin.allocate = device_of_each
        driver.prepare(claim("thing"))


def test_an_error_of_the_plugin_is_in_the_claims_error(driver: DriverHarness, plugin: FakePlugin) -> None:
    def refuse(_ids: Sequence[str]) -> wire.AllocateResponse:
        raise ValueError("the thing is on fire")

    plugin.allocate = refuse
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        with pytest.raises(RetriableError, match=r"thing\.sock failed in Allocate: UNKNOWN: .*the thing is on fire"):
            driver.prepare(claim("thing"))


def test_a_plugin_that_hangs_fails_the_claim_in_time(bridge: Any, plugin: FakePlugin) -> None:
    driver = bridge(allocate_seconds=0.3)
    plugin.hangs.set()
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        with pytest.raises(RetriableError, match=r"thing\.sock has not answered Allocate within 0\.3 s"):
            driver.prepare(claim("thing"))
        plugin.hangs.clear()
        driver.prepare(claim("thing"))


def test_a_plugin_that_wants_it_is_told_before_the_container_starts(driver: DriverHarness, directory: Path) -> None:
    options = wire.DevicePluginOptions(pre_start_required=True)
    with FakePlugin(directory, THINGS, options=options) as plugin:
        prepared_with(driver, plugin)
    assert plugin.calls == [("Allocate", ("thing0",)), ("PreStartContainer", ("thing0",))]


def test_devices_that_the_plugin_would_not_have_chosen_are_told(
    driver: DriverHarness, directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    options = wire.DevicePluginOptions(get_preferred_allocation_available=True)
    with FakePlugin(directory, THINGS, options=options) as plugin, caplog.at_level(logging.WARNING):
        plugin.prefer = lambda available, size: available[-size:]
        prepared_with(driver, plugin)
        assert "the plugin would have preferred thing1 to thing0, which kube-scheduler chose" in caplog.text
        assert plugin.calls == [("GetPreferredAllocation", ("thing0", "thing1")), ("Allocate", ("thing0",))]


def test_a_claim_waits_for_a_plugin_that_has_not_come_back(driver: DriverHarness, plugin: FakePlugin) -> None:
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        plugin.stop()
        with pytest.raises(RetriableError, match=r"thing\.sock.* Allocate"):
            driver.prepare(claim("thing"))
        plugin.start()
        wait(lambda: plugin.streams == 2)
        driver.prepare(claim("thing"))


def test_a_claim_of_a_resource_that_was_forgotten_is_refused(bridge: Any, plugin: FakePlugin) -> None:
    driver = bridge(forget_seconds=0.1)
    with driver.watching() as watching:
        plugin.register()
        watching.wait_changed()
        allocated = driver.allocate(claim("thing"))
        plugin.stop()
        watching.wait_changed()
        assert not driver.devices
        with pytest.raises(Exception, match="thing"):
            driver.prepare(allocated)
