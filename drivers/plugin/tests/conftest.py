"""Fixtures: a directory for sockets, and the bridge on a node with four device nodes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import pytest
from dra_driver_plugin import PluginDriver, PluginSettings

from dra_sdk.testing import DriverHarness, FakeNode


class Bridge(Protocol):
    """Makes the bridge with these settings, beyond the directory."""

    def __call__(self, **settings: Any) -> DriverHarness: ...


@pytest.fixture
def directory() -> Iterator[Path]:
    """The directory of the bridge; a short path, as sockets need."""
    with TemporaryDirectory(prefix="dra-") as directory:
        yield Path(directory)


@pytest.fixture
def bridge(dra_node: FakeNode, dra_driver: Any, directory: Path) -> Bridge:
    """Makes the bridge on a node with /dev/thing0 to /dev/thing3; a plugin that is away is unhealthy soon."""
    for number in range(4):
        dra_node.device_node(f"/dev/thing{number}", minor=number)

    def make(**settings: Any) -> DriverHarness:
        chosen = {"directory": str(directory), "away_seconds": 0.2, **settings}
        harness: DriverHarness = dra_driver(PluginDriver, settings=PluginSettings(**chosen))
        return harness

    return make


@pytest.fixture
def driver(bridge: Bridge) -> DriverHarness:
    """The bridge with its defaults."""
    return bridge()
