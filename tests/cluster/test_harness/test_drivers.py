"""The drivers of tests, as processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.processes import marked
from tests.cluster.harness.progress import Progress
from tests.cluster.test_harness.states import make_state
from tests.cluster.test_harness.test_cluster import write_kubectl


@pytest.fixture
def driver(layout, tmp_path):
    write_kubectl(tmp_path, "echo a-token")
    cluster = Cluster(layout, make_state(cache=str(tmp_path)), Progress())
    made = DriverUnderTest(cluster, "tests.cluster.lamp_driver:NodeLamps", "lamps.example.com", tmp_path)
    yield made
    if made.running():
        made.kill()


def test_the_clean_up_of_a_cluster_finds_its_drivers(driver):
    driver.start()
    assert driver.process.pid in {each.pid for each in marked(driver.cluster.name)}


def test_its_port_is_outside_the_range_of_the_kernel(driver):
    first, last = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not first <= driver.port <= last
