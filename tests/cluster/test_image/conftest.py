"""A release of the drivers for CPUs and memory, of the image of this checkout."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.harness.cache import Cache
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.driver_image import ensure_image, import_image
from tests.cluster.harness.progress import Progress
from tests.cluster.test_image.release import Release


@pytest.fixture(scope="session")
def archive() -> Path:
    """The image of this checkout, as an archive."""
    return ensure_image(Cache.from_env(), Progress())


@pytest.fixture(scope="session")
def images(cluster: Cluster, archive: Path) -> None:
    """Puts the image into the cluster, under two tags."""
    import_image(cluster, Cache.from_env(), archive, "one", "two")


@pytest.fixture(scope="session")
def installed(cluster: Cluster, images: None) -> Iterator[Release]:
    made = Release(cluster)
    yield made
    made.remove()


@pytest.fixture
def users(cluster: Cluster) -> Iterator[None]:
    """Pods and claims of a test end with it."""
    yield
    cluster.kubectl("delete", "pods,resourceclaims,resourceclaimtemplates", "--all", "--wait=true")


@pytest.fixture
def release(installed: Release, users: None) -> Release:
    """The release, which is installed before a test and stays for the next."""
    installed.put("one")
    installed.wait_rolled_out()
    return installed
