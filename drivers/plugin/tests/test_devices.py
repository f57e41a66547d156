"""Names and attributes of devices, for whatever ids plugins have."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_plugin import PluginSettings
from dra_driver_plugin.devices import PluginDevice, attribute_text, describe, in_order, read_devices, resource_problem
from dra_driver_plugin.testing import RESOURCE, FakePlugin, wire_devices
from hypothesis import given
from hypothesis import strategies as st

from dra_sdk import SettingsError
from dra_sdk.hardware import Host
from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.sysfs import FakePci, regular_machine

pytest_plugins = ["dra_sdk.testing.plugin"]
ADDRESS = "0000:3b:00.0"


NOTHING = Host(Path("/nonexistent"))


def attributes(id_: str, host: Host = NOTHING, **settings: object) -> dict[str, object]:
    published = describe(PluginDevice(RESOURCE, id_), host, PluginSettings.model_validate(settings))
    return dict(published.attributes)


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("thing0", "thing-thing0-"),
        ("/dev/bus/usb/001/002", "thing-dev-bus-usb-001-002-"),
        ("GPU-6ba7b810-9dad-11d1-80b4-00c04fd430c8::3", "thing-gpu-6ba7b810-9dad-11d1-80b4-00c04fd430c8-3-"),
        (ADDRESS, "thing-0000-3b-00-0-"),
        ("Ä", "thing-"),
    ],
)
def test_a_name_shows_resource_and_id(id_: str, name: str) -> None:
    device_name = PluginDevice(RESOURCE, id_).name
    assert device_name.startswith(name)
    assert len(device_name) == len(name) + 10


@given(st.text(min_size=1, max_size=300), st.sampled_from([RESOURCE, "a.b/X_y.Z", f"v.com/{'n' * 63}"]))
def test_a_name_is_a_dns_label_for_any_id(id_: str, resource: str) -> None:
    name = PluginDevice(resource, id_).name
    assert len(name) <= 63
    assert name.strip("-") == name
    assert name.replace("-", "a").isalnum()
    assert name.isascii()
    assert name == name.lower()


def test_ids_that_look_alike_have_different_names() -> None:
    alike = ["a/b", "a-b", "A-b", "a b", "x" * 200, "y" + "x" * 199]
    made = {PluginDevice(resource, id_).name for id_ in alike for resource in (RESOURCE, "other.com/thing")}
    assert len(made) == 2 * len(alike)


def test_long_texts_are_cut_to_what_an_attribute_holds() -> None:
    assert attribute_text("x" * 64) == "x" * 64
    long = [attribute_text("ä" * 200), attribute_text("ä" * 199)]
    assert all(len(name.encode()) <= 64 for name in long)
    assert len(set(long)) == 2


def test_an_id_with_a_pci_address_has_the_standard_attributes(dra_node: FakeNode) -> None:
    host = dra_node.machine(replace(regular_machine(sockets=2), pci=(FakePci(address=ADDRESS, numa_node=1),)))
    for id_ in (ADDRESS, f"vf-{ADDRESS.upper()}-3"):
        published = attributes(id_, host)
        assert published["resource.kubernetes.io/pciBusID"] == ADDRESS
        assert published["resource.kubernetes.io/numaNode"] == 1
    assert set(attributes("0000:99:00.0", host)) == {"resource", "id"}


def test_the_numa_node_is_that_of_the_plugin() -> None:
    plain = wire_devices({"a": "Healthy", "b": "Healthy", "c": "Healthy"}, {"a": [1], "b": [0, 1], "c": [-1]})
    devices, problems, _ = read_devices(RESOURCE, plain)
    numa = "resource.kubernetes.io/numaNode"
    for lists, expected in ((False, [1, None, None]), (True, [1, [0, 1], None])):
        settings = PluginSettings(numa_lists=lists)
        numa_nodes = [describe(device, NOTHING, settings).attributes.get(numa) for device in devices.values()]
        assert numa_nodes == expected
    assert problems == ["device 'c': NUMA nodes [-1] must lie between 0 and 1023"]


def test_replicas_of_the_same_hardware_are_recognised_by_a_rule() -> None:
    rule = {"replica_pattern": "(.+)::[0-9]+"}
    assert [attributes(f"GPU-1::{number}", **rule)["hardware"] for number in (0, 1)] == ["GPU-1", "GPU-1"]
    assert "hardware" not in attributes("GPU-1", **rule)


def test_devices_come_in_the_order_of_their_numbers() -> None:
    devices, *_ = read_devices(RESOURCE, wire_devices({f"gpu{number}": "Healthy" for number in (10, 9, 1)}))
    assert [device.id for device in in_order(devices)] == ["gpu1", "gpu9", "gpu10"]


def test_any_number_of_devices_is_publishable(driver: DriverHarness, directory: Path) -> None:
    many = {f"/dev/thing/{number:0200}": "Healthy" for number in range(300)}
    with driver.watching() as watching, FakePlugin(directory, many) as plugin:
        plugin.register()
        watching.wait_changed()
        assert len(driver.devices) == 300
        driver.assert_publishable()


@pytest.mark.parametrize("name", ["vendor.com/thing", "vendor.com/Thing_2.x", "a/b", f"v.com/{'n' * 63}"])
def test_extended_resources_are_known(name: str) -> None:
    assert resource_problem(name) is None


@pytest.mark.parametrize(
    "name",
    ["", "cpu", "/thing", "vendor.com/", "Vendor.com/x", "xkubernetes.io/y", f"v.com/{'n' * 64}", "kubernetes.io/x"],
)
def test_other_names_are_refused(name: str) -> None:
    assert resource_problem(name)


@pytest.mark.parametrize(
    ("setting", "problem"),
    [
        ({"DRA_PLUGIN_DIRECTORY": "/var/lib/kubelet/device-plugins"}, "is the kubelet's own"),
        ({"DRA_PLUGIN_ALLOWED_PATHS": "/dev,lib"}, "must be absolute paths without '..', has lib"),
        ({"DRA_PLUGIN_REPLICA_PATTERN": "("}, "is no regular expression"),
        ({"DRA_PLUGIN_REPLICA_PATTERN": "x"}, "must have one group, has 0"),
        ({"DRA_PLUGIN_ALLOCATE_SECONDS": "60"}, "the kubelet waits 45"),
    ],
)
def test_a_setting_that_makes_no_sense_is_refused_in_a_sentence(setting: dict[str, str], problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        PluginSettings.read(setting)


def test_the_readme_has_the_settings() -> None:
    text = (Path(__file__).parents[1] / "README.md").read_text()
    assert PluginSettings.markdown() in text
