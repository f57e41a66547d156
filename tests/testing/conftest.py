"""A node with two lamps, and the lamp driver on it. The test modules load `dra_sdk.testing.plugin`."""

from __future__ import annotations

import pytest

from dra_sdk.testing import DriverHarness, FakeNode
from tests.testing.lamps import SwitchedLamps


@pytest.fixture
def lamps(dra_node: FakeNode) -> FakeNode:
    """Two lamps, of 5 and 60 watts, with what a container needs of them."""
    for name, watt in (("lamp-0", 5), ("lamp-1", 60)):
        dra_node.file(f"/sys/class/lamps/{name}/watt", f"{watt}\n")
        dra_node.file(f"/sys/class/lamps/{name}/on")
        dra_node.device_node(f"/dev/{name}", major=99, minor=watt)
        dra_node.file(f"/run/{name}/socket", name)
    return dra_node


@pytest.fixture
def driver(lamps: FakeNode) -> DriverHarness:
    return DriverHarness(SwitchedLamps, lamps)
