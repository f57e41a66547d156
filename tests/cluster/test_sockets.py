"""Which sockets a driver has, who opens them and when: a registrar of its own, a late service, one for everything."""

from __future__ import annotations

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.pods import insist, run_pod, start_pod, started_at


@pytest.fixture
def service(drivers: Drivers) -> DriverUnderTest:
    """A process that has the service, started after another one has registered with the kubelet."""
    drivers.knobs("--serve", "registration", instance="registrar", until=DriverUnderTest.registrations)
    return drivers.knobs("--serve", "service", until=DriverUnderTest.slices)


def test_a_service_that_starts_after_its_registration(cluster: Cluster, service: DriverUnderTest) -> None:
    start_pod(cluster, "lit", "knobs")
    insist(cluster, "lit")
    cluster.kubectl("delete", "pod", "lit")
    service.wait_free()


def test_a_service_that_restarts_under_its_registration(cluster: Cluster, service: DriverUnderTest) -> None:
    start_pod(cluster, "lit", "knobs")
    insist(cluster, "lit")
    before, since = service.slices(), started_at(cluster, "lit")
    assert service.stop() == 0
    service.start("--serve", "service")
    start_pod(cluster, "lit-too", "knobs")
    insist(cluster, "lit-too")
    service.assert_kept(before)
    assert started_at(cluster, "lit") == since
    cluster.kubectl("delete", "pod", "lit", "lit-too")
    service.wait_free()


def test_one_socket_for_everything_and_a_restart(cluster: Cluster, drivers: Drivers) -> None:
    driver = drivers.knobs("--serve", "common")
    run_pod(cluster, "lit", "knobs")
    before, since = driver.slices(), started_at(cluster, "lit")
    assert driver.stop() == 0
    driver.start("--serve", "common")
    driver.wait(driver.registrations)
    run_pod(cluster, "lit-too", "knobs")
    driver.assert_kept(before)
    assert started_at(cluster, "lit") == since
    cluster.kubectl("delete", "pod", "lit", "lit-too")
    driver.wait_free()
