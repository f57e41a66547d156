"""pytest fixtures for the tests of drivers. In the test module, or in the conftest.py next to pyproject.toml:

    pytest_plugins = ["dra_sdk.testing.plugin"]

    def test_the_speed_reaches_the_container(
        dra_node: FakeNode, dra_driver: DriverFactory, dra_claim: ClaimFactory
    ) -> None:
        dra_node.device_node("/dev/ttyUSB3", major=188, minor=3)
        prepared = dra_driver(SerialDriver).prepare(dra_claim("port", config=SerialConfig(speed=9600)))
        assert prepared.container().env == {"PORT_SPEED": "9600"}

There is no entry point for this plugin, so it costs nothing in projects that do not name it.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from dra_sdk.testing.claims import ClaimFactory, claim
from dra_sdk.testing.harness import DriverFactory, DriverHarness
from dra_sdk.testing.node import FakeNode


@pytest.fixture
def dra_node(tmp_path: Path) -> FakeNode:
    """Return an empty node below `tmp_path / "node"`; `file`, `link`, `device_node` and `machine` add hardware."""
    return FakeNode(tmp_path / "node")


@pytest.fixture
def dra_driver(dra_node: FakeNode) -> DriverFactory:
    """Return a function: `dra_driver(SerialDriver)` runs a driver on the node; options as for `DriverHarness`."""
    return partial(DriverHarness, node=dra_node)


@pytest.fixture
def dra_claim() -> ClaimFactory:
    """Return `dra_sdk.testing.claims.claim`, which makes claims."""
    return claim
