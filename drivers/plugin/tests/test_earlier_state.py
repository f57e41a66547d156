"""Claims that the release 5134cc5 has prepared are continued: `samples/state-5134cc5` is what it kept on a node."""

from __future__ import annotations

from pathlib import Path

from dra_driver_plugin import PluginDriver, PluginSettings

from dra_sdk.testing import DriverHarness, FakeNode
from dra_sdk.testing.node_state import NodeState

pytest_plugins = ["dra_sdk.testing.plugin"]
SAMPLE = Path(__file__).parent / "samples/state-5134cc5/plugin"


def test_claims_of_a_plugin_that_does_not_register_again(dra_node: FakeNode) -> None:
    """What the plugin has registered with the former release is remembered, so its devices are published at once."""
    for number in range(4):
        dra_node.device_node(f"/dev/thing{number}", minor=number)
    state = NodeState(SAMPLE)
    state.restore(dra_node)
    settings = PluginSettings(directory=str(dra_node.root.parent / "plugins"))
    driver = DriverHarness(PluginDriver, dra_node, settings=settings)
    assert sorted(device.attributes["id"] for device in driver.devices.values()) == [
        f"thing{number}" for number in range(4)
    ]
    state.assert_continued(driver)
