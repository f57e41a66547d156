"""A kill at every line and every write of prepare and unprepare, without gRPC, which does not survive forks."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dra_driver_plugin import PluginDriver, PluginSettings
from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.client import PluginClient
from dra_driver_plugin.plugin import PluginRegistration
from dra_driver_plugin.testing import RESOURCE, device_of_each

from dra_sdk.hardware.polling import Clock
from dra_sdk.hardware.records import Records
from dra_sdk.testing import FakeNode, claim, request
from dra_sdk.testing.crashes import assert_survives_crashes

pytest_plugins = ["dra_sdk.testing.plugin"]


class Unconnected(PluginClient):
    """A plugin that answers without a socket."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def allocate(self, ids: Sequence[str], seconds: float) -> wire.ContainerAllocateResponse:
        return device_of_each(ids).container_responses[0]

    def pre_start(self, ids: Sequence[str], seconds: float) -> None:
        assert ids

    def close(self) -> None:
        assert self.path


def test_a_kill_at_any_point_leaves_nothing_behind(dra_node: FakeNode, dra_driver: Any, directory: Path) -> None:
    for number in range(2):
        dra_node.device_node(f"/dev/thing{number}", minor=number)
    known = PluginRegistration(RESOURCE, "thing.sock", pre_start=True, devices={"thing0": [], "thing1": []})
    records = Records(directory / ".registrations", PluginRegistration, dra_node.boot_id, Clock())
    with records.locked("vendor.com_thing"):
        records.save("vendor.com_thing", known)
    settings = PluginSettings(directory=str(directory))
    driver = dra_driver(lambda: PluginDriver(settings, connect=Unconnected))
    assert assert_survives_crashes(driver, claim(request("things", count=2))) > 10
