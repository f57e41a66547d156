"""Claims that two drivers serve together: if one fails, the kubelet asks the other one again as well."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.features import STATUS_BREAKS_AFTER_A_RETRY
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import pod_with, request, template
from tests.cluster.pods import nudge, printed, wait_failure

OTHER = "other.example.com"
# The kubelet asks the drivers in random order. More pods make it likely that one asks the good driver first.
NAMES = ["a", "b", "c", "d"]
Pair = tuple[DriverUnderTest, DriverUnderTest]


@pytest.fixture
def pair(drivers: Drivers) -> Pair:
    """The driver that works and the one that fails. They start at the same time."""
    good = drivers.knobs(until=DriverUnderTest.running)
    bad = drivers.knobs(name=OTHER)
    good.wait(good.ready)
    return good, bad


def start_pods(cluster: Cluster, *names: str) -> None:
    """Starts pods, each with a claim that both drivers serve."""
    both = template("both", [request("mine", "knobs"), request("theirs", "other")])
    cluster.apply(both, *(pod_with(name, both) for name in names))


def restart_kubelet(cluster: Cluster, pair: Pair) -> None:
    """Restarts the kubelet, and waits until it knows both drivers again."""
    before = [driver.registrations() for driver in pair]
    cluster.restart("kubelet")
    for driver, seen in zip(pair, before, strict=True):
        driver.wait_registered_again(seen)


def contents(driver: DriverUnderTest) -> dict[Path, str]:
    """Returns the CDI specs of one driver."""
    return {path: path.read_text() for path in driver.specs() if path.name.startswith(driver.name)}


def prepared(cluster: Cluster, driver: DriverUnderTest) -> dict[Path, str]:
    """Returns the CDI specs of one driver; if it has none, makes the kubelet try again."""
    if not (found := contents(driver)):
        nudge(cluster, *NAMES)
        time.sleep(1)
    return found


def named_twice(cluster: Cluster) -> bool:
    """Returns whether the kubelet has tried to name a device twice in the status of a pod."""
    lines = cluster.log("kubelet").read_text().splitlines()
    refused = [line for line in lines if "Failed to update status for pod" in line]
    return any("allocatedResourcesStatus" in line and "Duplicate value" in line for line in refused)


def test_two_drivers_serve_one_claim(cluster: Cluster, pair: Pair) -> None:
    start_pods(cluster, *NAMES)
    for name in NAMES:
        cluster.wait_pod(name)
        assert {"LAMP_MINE", "LAMP_THEIRS"} <= printed(cluster, name).keys()
    cluster.kubectl("delete", "pod", *NAMES)
    for driver in pair:
        driver.wait_free()
        assert len(driver.knobs.calls("prepare", "done")) == len(driver.knobs.calls("unprepare", "done")) == len(NAMES)


def test_the_kubelet_restarts_while_one_of_two_prepares(cluster: Cluster, pair: Pair) -> None:
    _, slow = pair
    slow.knobs.set(hold=["prepare"])
    start_pods(cluster, "lit")
    slow.wait(lambda: slow.knobs.calls("prepare", "begin"))
    restart_kubelet(cluster, pair)
    slow.knobs.reset()
    cluster.wait_pod("lit")
    slow.wait(lambda: slow.answered("prepare") == 2)
    for driver in pair:
        assert len(driver.knobs.calls("prepare", "begin")) == len(contents(driver)) == 1


def test_the_kubelet_restarts_while_one_of_two_unprepares(cluster: Cluster, pair: Pair) -> None:
    _, slow = pair
    start_pods(cluster, "lit")
    cluster.wait_pod("lit")
    slow.knobs.set(hold=["unprepare"])
    cluster.kubectl("delete", "pod", "lit", "--wait=false")
    slow.wait(lambda: slow.knobs.calls("unprepare", "begin"))
    restart_kubelet(cluster, pair)
    slow.knobs.reset()
    cluster.wait_gone("pod", "lit")
    for driver in pair:
        driver.wait_free()
        assert len(driver.knobs.calls("unprepare", "begin")) == 1


def test_one_of_two_fails_to_prepare(cluster: Cluster, pair: Pair) -> None:
    good, bad = pair
    bad.knobs.set(fail=["prepare"])
    start_pods(cluster, *NAMES)
    for name in NAMES:
        wait_failure(cluster, name, "the knob for prepare is set to fail")
    before = cluster.wait_until(
        lambda: prepared(cluster, good), "a pod for which the kubelet asks the good driver first"
    )
    assert not contents(bad)
    bad.knobs.reset()
    nudge(cluster, *NAMES)
    for name in NAMES:
        if not STATUS_BREAKS_AFTER_A_RETRY:
            cluster.wait_pod(name)
        assert {"LAMP_MINE", "LAMP_THEIRS"} <= printed(cluster, name).keys()
    if STATUS_BREAKS_AFTER_A_RETRY:
        cluster.wait_until(lambda: named_twice(cluster), "a status that the API server refuses")
    assert before.items() <= contents(good).items()
    assert len(good.knobs.calls("prepare", "begin")) == len(NAMES)
    assert good.answered("prepare") > len(NAMES), "it was asked again, and answered from its state"


def test_one_of_two_fails_to_unprepare(cluster: Cluster, pair: Pair) -> None:
    good, bad = pair
    start_pods(cluster, *NAMES)
    for name in NAMES:
        cluster.wait_pod(name)
    bad.knobs.set(fail=["unprepare"])
    cluster.kubectl("delete", "pod", *NAMES, "--wait=false")
    bad.wait(lambda: len({call.claim for call in bad.knobs.calls("unprepare", "failed")}) == len(NAMES))
    assert len(contents(bad)) == len(NAMES)
    good.wait(lambda: good.answered("unprepare"))
    bad.knobs.reset()
    for name in NAMES:
        cluster.wait_gone("pod", name)
    for driver in pair:
        driver.wait_free()
    assert len(good.knobs.calls("unprepare", "begin")) == len(NAMES)
