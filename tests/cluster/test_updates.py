"""Replacing a running driver by another version: side by side, without success, and one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from threading import Event

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import SHORT
from tests.cluster.pods import failures, insist, run_pod, start_pod, started_at, wait_failure

PERIOD = 0.5


@contextmanager
def pods_starting(cluster: Cluster) -> Iterator[list[str]]:
    """Starts short pods until the block ends; yields the list of their names, which grows."""
    names: list[str] = []
    stop = Event()

    def start_pods() -> None:
        while not stop.wait(PERIOD):
            start_pod(cluster, f"load-{len(names)}", "knobs", command=SHORT)
            names.append(f"load-{len(names)}")

    with ThreadPoolExecutor(1) as pool:
        load = pool.submit(start_pods)
        try:
            yield names
        finally:
            stop.set()
            load.result()


def pids(driver: DriverUnderTest) -> set[int]:
    """Returns the processes that have prepared a claim."""
    return {call.pid for call in driver.knobs.calls("prepare", "done")}


def test_a_rolling_update_under_load(cluster: Cluster, drivers: Drivers) -> None:
    old = drivers.knobs("--pod-uid", "old", instance="old")
    run_pod(cluster, "steady", "knobs")
    before, since = old.slices(), started_at(cluster, "steady")

    with pods_starting(cluster) as names:
        old.wait(lambda: len(old.knobs.calls("prepare", "done")) >= 4)
        new = drivers.knobs("--pod-uid", "new", instance="new")
        new.wait(lambda: len(pids(new)) == 2)
        assert old.stop() == 0
        stopped = len(names)
        new.wait(lambda: len(names) >= stopped + 4)
    for name in names:
        cluster.wait_pod(name, phase="Succeeded")

    assert not failures(cluster, names)
    assert new.slices() == before
    assert started_at(cluster, "steady") == since
    cluster.kubectl("delete", "pod", "steady", *names)
    new.wait_free()
    assert len(new.knobs.calls("prepare", "begin")) == len(new.knobs.calls("unprepare", "done")) == len(names) + 1


def test_a_failed_update_leaves_the_old_driver_serving(cluster: Cluster, drivers: Drivers) -> None:
    old = drivers.knobs("--pod-uid", "old", instance="old")
    before = old.slices()
    new = drivers.knobs("--pod-uid", "new", instance="new")
    run_pod(cluster, "first", "knobs")
    assert pids(new) == {new.process.pid}
    new.kill()

    run_pod(cluster, "second", "knobs")
    assert pids(old) == {old.process.pid, new.process.pid}
    assert old.slices() == before
    cluster.kubectl("delete", "pod", "first", "second")
    old.wait_free()


def test_a_sequential_update_keeps_slices_and_serves_waiting_pods(cluster: Cluster, drivers: Drivers) -> None:
    driver = drivers.knobs()
    run_pod(cluster, "early", "knobs")
    before, since = driver.slices(), started_at(cluster, "early")
    assert driver.stop() == 0
    start_pod(cluster, "waiting", "knobs")
    wait_failure(cluster, "waiting")
    driver.start()
    insist(cluster, "waiting")
    driver.assert_kept(before)
    assert started_at(cluster, "early") == since
    cluster.kubectl("delete", "pod", "early", "waiting")
    driver.wait_free()
