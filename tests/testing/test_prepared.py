"""What a test sees of a prepared claim and of the pod's containers."""

from __future__ import annotations

import pytest

from dra_sdk import ContainerEdits, DeviceNode, Mount
from dra_sdk.errors import DraError
from dra_sdk.testing import claim
from tests.lamps import NAME, LampConfig
from tests.testing.lamps import Reporting, SwitchedLamps

pytest_plugins = ["dra_sdk.testing.plugin"]


def test_a_container_gets_everything_of_its_device(driver, lamps):
    prepared = driver.prepare(claim("desk", config=LampConfig(brightness=30)))
    container = prepared.container()
    assert prepared.names == ["lamp-0"]
    assert lamps.path("/sys/class/lamps/lamp-0/on").read_text() == prepared.ref.uid
    assert container.env == {"LAMP_DESK": "30"}
    assert (container.devices["/dev/desk"]["major"], container.devices["/dev/desk"]["minor"]) == (99, 5)
    assert container.access == [{"allow": True, "type": "c", "major": 99, "minor": 5, "access": "rwm"}]
    assert container.mounts["/run/desk"]["source"] == "/run/lamp-0"
    assert container.read("/run/desk/socket") == "lamp-0"
    assert (container.hooks, container.net_devices, container.groups) == ({}, {}, [])
    with pytest.raises(AssertionError, match="no mount with /run/other"):
        container.read("/run/other")


def test_each_container_gets_the_requests_that_it_uses(driver):
    prepared = driver.prepare(claim("a", "b"), containers={"one": ["a"], "both": ["a", "b"], "none": []})
    env = {name: sorted(prepared.container(name).env) for name in prepared.containers}
    assert env == {"one": ["LAMP_A"], "both": ["LAMP_A", "LAMP_B"], "none": []}


def test_a_missing_device_node_is_an_error(driver, lamps):
    prepared = driver.prepare(claim())
    lamps.remove("/dev/lamp-0")
    with pytest.raises(DraError, match="the node has no device node /dev/lamp-0"):
        prepared.container()


def test_a_missing_source_of_a_mount_is_an_error(driver, lamps):
    prepared = driver.prepare(claim())
    lamps.remove("/run/lamp-0")
    with pytest.raises(AssertionError, match="mounts what the node does not have: /run/lamp-0"):
        prepared.container()


def test_a_container_that_the_pod_does_not_have_is_an_error(driver):
    prepared = driver.prepare(claim("desk"))
    with pytest.raises(AssertionError, match="the pod has no container 'side'; it has main"):
        prepared.container("side")


class Same(SwitchedLamps):
    """Mistake: every device sets one variable, one device node and one mount, each to another value."""

    def edits(self, device):
        return ContainerEdits(
            env={"LAMP": device.name},
            device_nodes=[DeviceNode("/dev/lamp", host_path=f"/dev/{device.name}")],
            mounts=[Mount(f"/run/{device.name}", "/run/lamp")],
        )


def test_what_two_requests_set_differently_in_one_container_is_a_warning(lamps, dra_driver):
    prepared = dra_driver(Same).prepare(claim("a", "b"), containers={"one": ["a"], "both": ["a", "b"]})
    prepared.container("one")
    with pytest.warns(UserWarning, match="the last is used") as caught:
        container = prepared.container("both")
    texts = [str(warning.message) for warning in caught]
    names = [f"{NAME}/device=claim-{prepared.ref.uid}_{request}_lamp-{n}" for n, request in enumerate("ab")]
    assert texts == [
        f"container both: {what} is {first} by {names[0]} and {second} by {names[1]}; the last is used"
        for what, first, second in (
            ("environment variable LAMP", "'lamp-0'", "'lamp-1'"),
            ("device node /dev/lamp", "/dev/lamp-0", "/dev/lamp-1"),
            ("mount /run/lamp", "/run/lamp-0", "/run/lamp-1"),
        )
    ]
    assert container.env == {"LAMP": "lamp-1"}
    assert all(warning.filename == __file__ for warning in caught)


class Vfio(SwitchedLamps):
    """Every device needs a node that all of them share."""

    def edits(self, device):
        return ContainerEdits(device_nodes=[DeviceNode("/dev/vfio/vfio"), DeviceNode(f"/dev/{device.name}")])


def test_a_device_node_that_all_devices_need_is_there_once_in_each_container(lamps, dra_driver):
    lamps.device_node("/dev/vfio/vfio", major=10, minor=196)
    containers = {"a": ["a"], "b": ["b"], "both": ["a", "b"]}
    prepared = dra_driver(Vfio).prepare(claim("a", "b"), containers=containers)
    nodes = {
        name: [device["path"] for device in prepared.container(name).oci["linux"]["devices"]] for name in containers
    }
    assert {name: sorted(paths) for name, paths in nodes.items()} == {
        "a": ["/dev/lamp-0", "/dev/vfio/vfio"],
        "b": ["/dev/lamp-1", "/dev/vfio/vfio"],
        "both": ["/dev/lamp-0", "/dev/lamp-1", "/dev/vfio/vfio"],
    }


def test_metadata_is_mounted_into_the_container(lamps, dra_driver):
    container = dra_driver(Reporting).prepare(claim("l")).container()
    (path,) = container.mounts
    assert '"led"' in container.read(path)
