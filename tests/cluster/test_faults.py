"""Slices, claims and pods while a part of a real cluster is down, and when it is back."""

from __future__ import annotations

from pathlib import Path
from signal import SIGKILL

import pytest

from tests.cluster.deployed import kubeconfig
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import STUBBORN
from tests.cluster.pods import nudge, read_pod, run_pod, start_pod, started_at, wait_failure, wait_printed
from tests.cluster.trouble import without_api_server


def test_a_driver_restart_touches_neither_slices_nor_pods(cluster: Cluster, lamps: DriverUnderTest) -> None:
    run_pod(cluster, "lit")
    before, since = lamps.slices(), started_at(cluster, "lit")
    assert lamps.stop() == 0
    assert not list((cluster.kubelet_dir / "plugins_registry").iterdir())
    lamps.start()
    lamps.wait(lamps.registrations)
    run_pod(cluster, "lit-too")
    lamps.assert_kept(before)
    assert started_at(cluster, "lit") == since


def test_a_killed_driver_replaces_its_stale_sockets(cluster: Cluster, lamps: DriverUnderTest) -> None:
    run_pod(cluster, "lit")
    lamps.kill()
    for spec in lamps.specs():  # as after a reboot, which empties the tmpfs
        spec.unlink()
    lamps.start()
    lamps.wait(lamps.registrations)
    assert len(lamps.specs()) == 1
    cluster.kubectl("delete", "pod", "lit")
    lamps.wait_free()


@pytest.mark.core
def test_a_kubelet_restart_brings_slices_back_and_keeps_pods(cluster: Cluster, lamps: DriverUnderTest) -> None:
    run_pod(cluster, "lit")
    before, since = lamps.slices(), started_at(cluster, "lit")
    registered, old = lamps.registrations(), {each["metadata"]["uid"] for each in before}
    cluster.restart("kubelet")
    lamps.wait(lambda: (now := lamps.slices()) and old.isdisjoint(each["metadata"]["uid"] for each in now))
    lamps.wait_registered_again(registered)
    assert [each["spec"] for each in lamps.slices()] == [each["spec"] for each in before]
    assert started_at(cluster, "lit") == since
    run_pod(cluster, "lit-too")
    cluster.kubectl("delete", "pod", "lit", "lit-too")
    lamps.wait(lambda: not lamps.held())


def test_a_prepare_that_fails_leaves_nothing_and_succeeds_later(cluster: Cluster, knobs: DriverUnderTest) -> None:
    knobs.knobs.set(fail=["prepare"])
    start_pod(cluster, "lit", "knobs")
    wait_failure(cluster, "lit", "the knob for prepare is set to fail")
    assert not knobs.held()
    assert not knobs.specs()
    knobs.knobs.reset()
    nudge(cluster, "lit")
    cluster.wait_pod("lit")


def test_an_unprepare_that_fails_holds_the_pod_and_succeeds_later(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod(cluster, "lit", "knobs")
    knobs.knobs.set(fail=["unprepare"])
    cluster.kubectl("delete", "pod", "lit", "--wait=false")
    knobs.wait(lambda: knobs.knobs.calls("unprepare", "failed"))
    assert len(knobs.held()) == 1
    assert read_pod(cluster, "lit")["metadata"]["deletionTimestamp"]
    knobs.knobs.reset()
    cluster.wait_gone("pod", "lit")
    knobs.wait_free()


def test_unprepare_needs_no_api_server(cluster: Cluster, lamps: DriverUnderTest) -> None:
    run_pod(cluster, "stubborn", command=STUBBORN, grace=120)
    wait_printed(cluster, "stubborn", "done")
    container = cluster.container_process("stubborn")
    cluster.kubectl("delete", "pod", "stubborn", "--wait=false")
    wait_printed(cluster, "stubborn", "asked to end")  # so the kubelet knows that it is deleted
    with without_api_server(cluster):
        assert lamps.held()
        container.send(SIGKILL)
        lamps.wait_free()
    cluster.wait_gone("pod", "stubborn")
    run_pod(cluster, "lit")


def test_the_service_account_may_do_no_more_than_it_needs(cluster: Cluster, lamps: DriverUnderTest) -> None:
    account = kubeconfig(cluster, "lamps.example.com")
    as_driver = f"--kubeconfig={account}"
    assert lamps.slices(), "the account can publish"
    for verb, resource in (("list", "resourceclaims"), ("get", "secrets"), ("update", "nodes"), ("create", "pods")):
        assert cluster.kubectl("auth", "can-i", verb, resource, as_driver, check=False).startswith("no")
    elsewhere, other = foreign_slice(), foreign_slice().replace("lamps.example.com", "other.example.com")
    here = other.replace("elsewhere", cluster.node_name)
    for forged, reason in (
        (elsewhere, "may not touch ResourceSlices of node 'elsewhere'"),
        (here, "driver lamps.example.com may not touch ResourceSlices of driver 'other.example.com'"),
    ):
        assert reason in cluster.kubectl("create", "-f", "-", as_driver, input=forged, check=False)


def test_the_account_of_a_driver_may_not_delete_the_slices_of_another(
    cluster: Cluster, lamps: DriverUnderTest, drivers: Drivers
) -> None:
    knobs = drivers.knobs()
    (slice_of_knobs, *_) = knobs.slices()
    as_lamps = f"--kubeconfig={kubeconfig(cluster, lamps.name)}"
    name = slice_of_knobs["metadata"]["name"]
    said = cluster.kubectl("delete", "resourceslice", name, as_lamps, check=False)
    assert "driver lamps.example.com may not touch ResourceSlices of driver 'knobs.example.com'" in said
    assert name in {each["metadata"]["name"] for each in knobs.slices()}


def foreign_slice() -> str:
    return (Path(__file__).parent / "foreign-slice.yaml").read_text()
