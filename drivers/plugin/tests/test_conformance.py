"""The bridge keeps the contract, as a process of its own with a kubelet, an API server and a device plugin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from dra_driver_plugin import deviceplugin_v1beta1_pb2 as wire
from dra_driver_plugin.testing import FakePlugin

from dra_sdk.testing import FakeNode
from dra_sdk.testing.conformance import Target, Timeouts, assert_conforms
from dra_sdk.testing.sysfs import regular_machine

pytestmark = pytest.mark.faults
TIMEOUTS = Timeouts(stop=60, quiet=0.5)
"""More than a pod has, because a busy machine starts a process late."""
SDK = {"load"}
"""Levels of which the SDK alone decides; the tests of dra-driver-cpu have them."""


def variables(ids: Sequence[str]) -> wire.AllocateResponse:
    """An answer without device nodes, which a node made of files does not have."""
    response = wire.ContainerAllocateResponse(envs={"THINGS": ",".join(ids)})
    return wire.AllocateResponse(container_responses=[response])


@pytest.mark.timeout(1200)
def test_the_bridge_conforms(tmp_path: Path, directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = FakeNode(tmp_path)
    node.machine(regular_machine())
    things = [f"thing{number}" for number in range(8)]
    monkeypatch.setenv("DRA_PLUGIN_DIRECTORY", str(directory))
    with FakePlugin(directory, dict.fromkeys(things, "Healthy")) as plugin:
        plugin.allocate = variables
        plugin.follow_kubelet()
        target = Target(driver="device-plugin", host_root=node.root, timeouts=TIMEOUTS)
        assert_conforms(target, without=SDK)
