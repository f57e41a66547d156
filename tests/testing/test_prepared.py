"""What a test sees of a prepared claim and of the pod's containers."""

from __future__ import annotations

import pytest

from dra_sdk.errors import DraError
from dra_sdk.testing import claim
from tests.testing.lamps import LampConfig, Reporting

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


def test_metadata_is_mounted_into_the_container(lamps, dra_driver):
    container = dra_driver(Reporting).prepare(claim("l")).container()
    (path,) = container.mounts
    assert '"led"' in container.read(path)
