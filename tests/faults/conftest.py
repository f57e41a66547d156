"""One cluster and one driver for all tests of a module, as long as every test leaves them as it found them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dra_sdk.tools.simulator import EmbeddedCluster
from tests.faults.lamps import WatchedLamps
from tests.faults.site import Inside, SharedSite


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSite]:
    """The driver of a module."""
    with SharedSite(WatchedLamps, lambda: tmp_path_factory.mktemp("lamps")) as shared:
        yield shared


@pytest.fixture
def site(shared: SharedSite) -> Iterator[Inside]:
    """The driver of this module. A test that leaves something behind fails, and the next test gets a new driver."""
    site = shared.get()
    yield site
    try:
        site.cluster.server.faults.clear()
        site.assert_sound()
    except BaseException:
        shared.discard()
        raise


@pytest.fixture
def fresh(tmp_path: Path) -> Iterator[Inside]:
    """A cluster for one test, which starts the driver itself."""
    (tmp_path / "lamps").mkdir()
    with EmbeddedCluster() as cluster:
        yield Inside(cluster, tmp_path / "lamps")
