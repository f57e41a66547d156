"""The kubelet restarts at a bad moment: calls are repeated, and nothing is done twice or forgotten."""

from __future__ import annotations

import time

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.pods import allocated, claim_of, end_container, nudge, run_pod, start_pod, wait_failure
from tests.cluster.trouble import paused, stopped

RESTARTS = 6
FORCE = ("--grace-period=0", "--force", "--wait=false")


def test_a_pod_that_was_created_while_the_kubelet_was_away(cluster: Cluster, knobs: DriverUnderTest) -> None:
    with stopped(cluster, "kubelet"):
        start_pod(cluster, "lit", "knobs")
        allocated(cluster, claim_of(cluster, "lit"))
    cluster.wait_pod("lit")
    assert len(knobs.held()) == 1


def test_slices_come_back_at_once_however_often_the_kubelet_restarts(cluster: Cluster, lamps: DriverUnderTest) -> None:
    """The kubelet deletes them at each start, and registers the driver a moment before or after that."""
    for restart in range(1, RESTARTS + 1):
        registered, old = lamps.registrations(), {each["metadata"]["uid"] for each in lamps.slices()}
        cluster.stop("kubelet")
        begun = time.monotonic()
        cluster.start("kubelet")
        lamps.wait_registered_again(registered)
        lamps.wait(lambda old=old: (now := lamps.slices()) and old.isdisjoint(each["metadata"]["uid"] for each in now))
        print(f"restart {restart}: registered and published after {time.monotonic() - begun:.1f} s")
    said = lamps.log_since_start()
    assert said.count("the kubelet has restarted; publishing its slices again") == RESTARTS
    assert "somebody else changed its slices" not in said  # after which each next time takes twice as long
    run_pod(cluster, "lit")


def test_a_failed_prepare_is_repeated_after_a_kubelet_restart(cluster: Cluster, knobs: DriverUnderTest) -> None:
    knobs.knobs.set(fail=["prepare"])
    start_pod(cluster, "lit", "knobs")
    wait_failure(cluster, "lit", "the knob for prepare is set to fail")
    assert not knobs.held()
    assert not knobs.specs()
    with stopped(cluster, "kubelet"):
        knobs.knobs.reset()
    cluster.wait_pod("lit")


def test_a_failed_unprepare_is_repeated_after_a_kubelet_restart(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod(cluster, "lit", "knobs")
    knobs.knobs.set(fail=["unprepare"])
    cluster.kubectl("delete", "pod", "lit", "--wait=false")
    knobs.wait(lambda: knobs.knobs.calls("unprepare", "failed"))
    assert len(knobs.held()) == 1
    with stopped(cluster, "kubelet"):
        knobs.knobs.reset()
    cluster.wait_gone("pod", "lit")
    knobs.wait_free()


def test_pods_that_end_while_the_kubelet_is_away_are_unprepared(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod(cluster, "short", "knobs")
    run_pod(cluster, "deleted", "knobs")
    with stopped(cluster, "kubelet"):
        cluster.kubectl("delete", "pod", "deleted", "--wait=false")
        end_container(cluster, "short")
        assert len(knobs.held()) == 2
    cluster.wait_pod("short", phase="Succeeded")
    cluster.wait_gone("pod", "deleted")
    knobs.wait_free()


def test_a_pod_that_vanished_while_the_kubelet_was_away_is_unprepared(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod(cluster, "lit", "knobs")
    with stopped(cluster, "kubelet"):
        cluster.kubectl("delete", "pod", "lit", *FORCE)
        cluster.wait_gone("pod", "lit")
        cluster.kubectl("delete", "resourceclaims", "--all")
        assert knobs.stop() == 0
        knobs.start()
    knobs.wait_free()


def test_a_force_deleted_pod_and_its_name_again(cluster: Cluster, knobs: DriverUnderTest) -> None:
    desk = claim("desk", [request("desk", "knobs")])
    cluster.apply(desk, pod_with("lit", desk))
    cluster.wait_pod("lit")
    first = knobs.held()
    knobs.knobs.set(hold=["unprepare"])
    cluster.kubectl("delete", "pod", "lit", *FORCE)
    knobs.wait(lambda: knobs.knobs.calls("unprepare", "begin"))
    cluster.wait_gone("pod", "lit")
    cluster.kubectl("delete", "resourceclaim", "desk")

    cluster.apply(desk, pod_with("lit", desk))
    wait_failure(cluster, "lit", "old ResourceClaim with same name desk and different UID")
    assert knobs.held() == first
    knobs.knobs.reset()
    knobs.wait(lambda: not knobs.held())
    nudge(cluster, "lit")
    cluster.wait_pod("lit")
    assert len(knobs.held()) == 1
    assert knobs.held() != first


def test_a_driver_that_is_late_to_say_who_it_is(cluster: Cluster, drivers: Drivers) -> None:
    def refused() -> bool:
        text = cluster.log("kubelet").read_text()[seen:]
        return "failed to get plugin info using RPC GetInfo" in text and "DeadlineExceeded" in text

    seen = len(cluster.log("kubelet").read_text())
    with paused(cluster, "kubelet"):
        driver = drivers.knobs(blocked=True, until=lambda driver: driver.knobs.calls("discover", "begin"))
    driver.wait(refused)
    driver.knobs.unblock()
    driver.wait(driver.ready)
    run_pod(cluster, "lit", "knobs")
