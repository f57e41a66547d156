"""A cluster with features off: the driver logs what the server drops, with the feature's name; the rest works."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cluster.conftest import NAME, running_cluster
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.features import known
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.pods import allocated, device_health, run_pod

FIELDS = {
    "taints": "DRADeviceTaints",
    "consumesCounters": "DRAPartitionableDevices",
    "allowMultipleAllocations": "DRAConsumableCapacity",
    "bindingConditions": "DRADeviceBindingConditions",
}
# These gates, and those that depend on them.
OFF = {*FIELDS.values(), "DRADeviceTaintRules", "DRAFractionalCapacityRange"}
OFF |= {"ResourceHealthStatus", "ResourceHealthStatusMessage"}
WITHHELD = ("overlap", "tainted", "bound")
DROPPED = "probably these feature gates are disabled"
WRITTEN = {'resource="resourceslices"', 'dry_run=""'}
FOREIGN = Path(__file__).with_name("foreign-slice.yaml")


@pytest.fixture(scope="module")
def old_cluster() -> Iterator[Cluster]:
    """A second cluster, without the features."""
    with running_cluster(f"{NAME}-gates", dict.fromkeys(sorted(known(OFF)), False)) as running:
        yield running


@pytest.fixture
def driver(old_cluster: Cluster, tmp_path: Path) -> Iterator[DriverUnderTest]:
    """A driver whose devices use all the features."""
    drivers = Drivers(old_cluster, tmp_path)
    yield drivers.knobs(devices="everything")
    drivers.clean()


def writes(cluster: Cluster) -> int:
    """Returns how many requests to write ResourceSlices the API server has had, without dry runs."""
    lines = cluster.kubectl("get", "--raw", "/metrics").splitlines()
    counted = [
        line
        for line in lines
        if line.startswith("apiserver_request_total{")
        and WRITTEN.issubset(re.findall(r'\w+="\w*"', line))
        and 'dry_run="All"' not in line
    ]
    return sum(
        int(float(line.rpartition(" ")[2])) for line in counted if re.search('verb="(POST|PUT|PATCH|DELETE)"', line)
    )


def test_dropped_fields_are_logged_with_their_gates_and_nothing_loops(
    old_cluster: Cluster, driver: DriverUnderTest
) -> None:
    driver.wait(lambda: DROPPED in driver.log_text())
    logged = driver.log_text()
    for field, gate in FIELDS.items():
        assert field in logged
        assert gate in logged
    for device in WITHHELD:
        assert f"not published: {device}, because" in logged
    before, slices = writes(old_cluster), driver.slices()
    node = old_cluster.node_name
    here = (
        FOREIGN.read_text()
        .replace("nodeName: elsewhere", f"nodeName: {node}")
        .replace("name: elsewhere", f"name: {node}/old")
    )
    old_cluster.kubectl("create", "-f", "-", input=here.replace("lamps.example.com", driver.name))
    driver.wait(lambda: writes(old_cluster) >= before + 2)  # this one, and the driver deletes it when it syncs
    assert driver.slices() == slices
    assert writes(old_cluster) == before + 2
    assert driver.log_text().count(DROPPED) == logged.count(DROPPED)


def test_devices_that_could_be_given_away_wrongly_are_not_published(driver: DriverUnderTest) -> None:
    driver.wait(lambda: DROPPED in driver.log_text())
    published = [device["name"] for each in driver.slices() for device in each["spec"].get("devices", [])]
    assert published == ["plain", "partition", "spot"]


def test_devices_work_without_the_dropped_fields(old_cluster: Cluster, driver: DriverUnderTest) -> None:
    everything = claim("everything", [request("all", "knobs", allocationMode="All")])
    old_cluster.apply(everything, pod_with("lit", everything))
    old_cluster.wait_pod("lit")
    given = {each["device"] for each in allocated(old_cluster, "everything")}
    assert given == {"plain", "partition", "spot"}
    assert len(driver.held()) == 1


def test_health_that_the_kubelet_does_not_ask_for_does_no_harm(old_cluster: Cluster, driver: DriverUnderTest) -> None:
    run_pod(old_cluster, "lit", "knobs")
    driver.knobs.set(unhealthy={"plain": "broken"})
    driver.wait(lambda: "plain is unhealthy: broken" in driver.log_text())
    assert device_health(old_cluster, "lit") == []
    run_pod(old_cluster, "lit-too", "knobs")
