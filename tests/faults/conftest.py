"""One cluster and one driver for all tests of a module: what one test does to the driver, the next must not feel."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk.tools.simulator import EmbeddedCluster
from tests.faults.site import Inside


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inside]:
    """A driver that runs for a whole module."""
    with EmbeddedCluster() as cluster:
        site = Inside(cluster, tmp_path_factory.mktemp("lamps"))
        with site.running():
            site.wait_registered()
            yield site


@pytest.fixture
def site(shared: Inside) -> Iterator[Inside]:
    """The driver of this module; at the end of each test it must be as good as new."""
    yield shared
    shared.cluster.server.faults.clear()
    shared.assert_sound()


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Inside]:
    """A cluster for one test, which starts the driver itself."""
    (tmp_path / "lamps").mkdir()
    with EmbeddedCluster() as cluster:
        yield Inside(cluster, tmp_path / "lamps")
