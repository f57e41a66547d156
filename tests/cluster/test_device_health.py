"""The health of devices: in the status of pods, through restarts of the driver, and as a taint that evicts."""

from __future__ import annotations

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.features import HAS_HEALTH_MESSAGES, HEALTH_IS_REPORTED_OF
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.pods import (
    allocated,
    apply_named,
    claim_of,
    device_health,
    nudge,
    printed,
    run_pod,
    run_pod_with_health,
    start_pod_with_health,
    started_at,
)

KINDS = ["named", "other", "template"]
WORDS = "the bulb is broken"
HEALTHY = ("Healthy", "")
BROKEN = ("Unhealthy", WORDS if HAS_HEALTH_MESSAGES else "")


def wait_health(cluster: Cluster, pod: str, *expected: tuple[str, str]) -> None:
    cluster.wait_until(lambda: device_health(cluster, pod) == list(expected), f"health of {pod}: {expected}")


def lamp_of(cluster: Cluster, pod: str) -> str:
    return str(allocated(cluster, claim_of(cluster, pod))[0]["device"])


def test_health_reaches_the_status_of_the_pod_that_has_the_device(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod_with_health(cluster, "first", "knobs")
    run_pod_with_health(cluster, "second", "knobs")
    wait_health(cluster, "first", HEALTHY)
    wait_health(cluster, "second", HEALTHY)
    knobs.knobs.set(unhealthy={lamp_of(cluster, "first"): WORDS})
    wait_health(cluster, "first", BROKEN)
    wait_health(cluster, "second", HEALTHY)
    knobs.knobs.reset()
    wait_health(cluster, "first", HEALTHY)


def test_health_is_unknown_while_the_driver_is_away_and_known_again(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod_with_health(cluster, "lit", "knobs")
    wait_health(cluster, "lit", HEALTHY)
    knobs.kill()

    def unknown() -> bool:
        nudge(cluster, "lit")  # the kubelet knows at once, but reports it when it next looks at the pod
        return [health for health, _ in device_health(cluster, "lit")] == ["Unknown"]

    cluster.wait_until(unknown, "health Unknown")
    knobs.start()
    wait_health(cluster, "lit", HEALTHY)
    run_pod_with_health(cluster, "lit-too", "knobs")
    knobs.knobs.set(unhealthy={lamp_of(cluster, "lit-too"): WORDS})
    wait_health(cluster, "lit-too", BROKEN)


def test_prepares_and_health_reports_go_on_together(cluster: Cluster, knobs: DriverUnderTest) -> None:
    names = ["a", "b", "c"]
    knobs.knobs.set(hold=["prepare"])
    for name in names:
        start_pod_with_health(cluster, name, "knobs")
    knobs.wait(lambda: len(knobs.knobs.calls("prepare", "begin")) == len(names))
    knobs.knobs.set(hold=[], unhealthy={lamp_of(cluster, "a"): WORDS})
    for name in names:
        cluster.wait_pod(name)
    wait_health(cluster, "a", BROKEN)
    wait_health(cluster, "b", HEALTHY)
    knobs.knobs.set(unhealthy={lamp_of(cluster, "b"): WORDS, lamp_of(cluster, "c"): WORDS})
    wait_health(cluster, "a", HEALTHY)
    wait_health(cluster, "b", BROKEN)
    wait_health(cluster, "c", BROKEN)


def test_health_of_a_share_of_a_device(cluster: Cluster, drivers: Drivers) -> None:
    driver = drivers.knobs(devices="shared")
    run_pod_with_health(cluster, "lit", "knobs")
    assert allocated(cluster, claim_of(cluster, "lit"))[0]["shareID"]
    wait_health(cluster, "lit", HEALTHY)
    driver.knobs.set(unhealthy={"spot": WORDS})
    wait_health(cluster, "lit", BROKEN)
    driver.knobs.set(unhealthy={})
    wait_health(cluster, "lit", HEALTHY)


def test_the_kubelet_reports_the_health_of_these_kinds_of_claims(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod(cluster, "template", "knobs")
    apply_named(cluster, "named", "knobs")
    apply_named(cluster, "other", "knobs", use="lamp")
    for name in ("named", "other"):
        cluster.wait_pod(name)
    for name in sorted(HEALTH_IS_REPORTED_OF):
        wait_health(cluster, name, HEALTHY)
    knobs.knobs.set(unhealthy={lamp_of(cluster, name): WORDS for name in KINDS})
    for name in sorted(HEALTH_IS_REPORTED_OF):
        wait_health(cluster, name, BROKEN)
    assert [name for name in KINDS if device_health(cluster, name)] == sorted(HEALTH_IS_REPORTED_OF)


def test_an_unhealthy_device_gets_no_new_pod_and_keeps_its_old_one(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run_pod(cluster, "old", "knobs")
    lamp, since = lamp_of(cluster, "old"), started_at(cluster, "old")
    knobs.knobs.set(unhealthy={lamp: WORDS})
    knobs.wait(lambda: knobs.published(lamp).get("taints"))
    (taint,) = knobs.published(lamp)["taints"]
    assert (taint["key"], taint["effect"]) == ("knobs.example.com/unhealthy", "NoSchedule")
    rest = claim("rest", [request("all", "knobs", count=7)])
    cluster.apply(rest, pod_with("rest", rest))
    cluster.wait_pod("rest")
    assert lamp not in {each["device"] for each in allocated(cluster, "rest")}
    assert started_at(cluster, "old") == since


def test_a_no_execute_taint_evicts_the_pod_and_its_successor_gets_another(cluster: Cluster, drivers: Drivers) -> None:
    # A name of its own: if a slice is deleted while the API server is down, the controller manager never forgets it
    # (1.36.3 ignores DeletedFinalStateUnknown), and it hides the taints of later slices of that driver and pool.
    driver = drivers.knobs("--unhealthy-taint", "NoExecute", name="other.example.com")
    run_pod(cluster, "lit", "other")
    run_pod(cluster, "bystander", "other")
    lamp, since = lamp_of(cluster, "lit"), started_at(cluster, "bystander")
    driver.knobs.set(unhealthy={lamp: WORDS})
    cluster.wait_gone("pod", "lit")
    driver.wait(lambda: len(driver.held()) == 1)
    run_pod(cluster, "lit", "other")
    assert printed(cluster, "lit")["LAMP_DESK"] != lamp
    assert started_at(cluster, "bystander") == since
    driver.knobs.reset()
    driver.wait(lambda: not driver.published(lamp).get("taints"))
