"""One real cluster for all tests here, and drivers as processes on it. It needs root; see tests/cluster/harness.

DRA_SDK_TEST_CLUSTER is the name of the cluster (at most 10 characters). If it is up already, the tests use it and
leave it up.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.features import MARK, VERSION, header, left_out, turned_on
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import ADMINS, admin_namespace, device_class

LIMIT = 900.0
"""Seconds for one test. It is more than some waits that fail, because their messages say more."""
NAME = os.environ.get("DRA_SDK_TEST_CLUSTER", "test")
BLUE = 'device.attributes["lamps.example.com"].colour == "blue"'


LEFT_OUT = pytest.StashKey[dict[str, list[str]]]()


def pytest_configure(config: pytest.Config) -> None:
    described = "the releases that a test is for: since=36, until=36, because=why it means nothing on others"
    config.addinivalue_line("markers", f"{MARK}({described})")
    config.addinivalue_line("markers", "core: what CI runs each time: `make test-core`")
    config.stash[LEFT_OUT] = {}
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # removes clusters and drivers, as Ctrl-C does


def pytest_report_header() -> list[str]:
    return header()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Gives these tests more time, because a kubelet retries after ten seconds, a minute, or more."""
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent) and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LIMIT))
    dropped = list(left_out(items))
    for item, reason in dropped:
        config.stash[LEFT_OUT].setdefault(reason, []).append(item.nodeid)
    if dropped:
        config.hook.pytest_deselected(items=[item for item, _ in dropped])
        items[:] = [item for item in items if item not in {gone for gone, _ in dropped}]


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Says what is left out on this release, and why."""
    found = config.stash[LEFT_OUT].items()
    return [f"left out on Kubernetes {VERSION}: {', '.join(names)}: {reason}" for reason, names in found]


@contextmanager
def running_cluster(name: str, gates: Mapping[str, bool] | None = None) -> Iterator[Cluster]:
    """Runs a cluster with the classes and the namespace of administrators of the tests."""
    assert os.geteuid() == 0, "the cluster tests need root"
    found = Cluster.find(name)
    wanted = {**turned_on(), **(gates or {})}
    cluster = found or Cluster.up(VERSION, name=name, gates=wanted)
    assert cluster.version == VERSION.removeprefix("v"), f"{name} runs Kubernetes {cluster.version}, not {VERSION}"
    assert wanted.items() <= cluster.gates.items(), f"{name} runs with gates {cluster.gates}, these tests need {wanted}"
    try:
        classes = {"dra.cpu": "dra.cpu", "lamp": "lamps.example.com"}
        classes |= {"knobs": "knobs.example.com", "other": "other.example.com"}
        cluster.apply(*(device_class(name, driver) for name, driver in classes.items()))
        cluster.apply(device_class("blue-lamp", "lamps.example.com", BLUE), admin_namespace(ADMINS))
        cluster.wait_namespace(ADMINS)
        yield cluster
    finally:
        if found is None:
            cluster.down()


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """The cluster of this test run, which is removed afterwards."""
    with running_cluster(NAME) as running:
        yield running


@pytest.fixture
def drivers(cluster: Cluster, tmp_path: Path) -> Iterator[Drivers]:
    """Starts drivers. When the test ends, their claims are deleted and they are stopped."""
    made = Drivers(cluster, tmp_path)
    yield made
    made.clean()


@pytest.fixture
def lamps(drivers: Drivers) -> DriverUnderTest:
    return drivers.start("tests.cluster.lamp_driver:NodeLamps", "lamps.example.com")


@pytest.fixture
def cpus(drivers: Drivers, monkeypatch: pytest.MonkeyPatch) -> DriverUnderTest:
    """The CPU driver. It gives the last CPU away too, because this machine may have only two."""
    monkeypatch.setenv("DRA_CPU_SHARED_POOL", "optional")
    return drivers.start("cpu", "dra.cpu")


@pytest.fixture
def knobs(drivers: Drivers) -> DriverUnderTest:
    return drivers.knobs()
