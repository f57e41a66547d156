"""The API server is slow or down while the driver must read a claim."""

from __future__ import annotations

import time

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, pod_with, request
from tests.cluster.pods import failures, nudge
from tests.cluster.trouble import paused, without_api_server


def start_pod_with_two_claims(cluster: Cluster, driver: DriverUnderTest) -> tuple[str, str]:
    """Starts a pod whose two claims come in one call. The driver waits in the hook for the first.

    Returns both names in the order of the call: the kubelet has the claims in a map, whose order is random.
    """
    names = ["first", "second"]
    driver.knobs.set(hold=[f"prepare {name}" for name in names])
    claims = [claim(name, [request(name, "knobs")]) for name in names]
    cluster.apply(*claims, pod_with("lit", *claims))
    driver.wait(lambda: driver.knobs.calls("prepare", "begin"))
    (begun,) = driver.knobs.calls("prepare", "begin")
    names.remove(begun.claim)
    return begun.claim, names[0]


def test_a_slow_api_server_delays_a_prepare(cluster: Cluster, knobs: DriverUnderTest) -> None:
    first, second = start_pod_with_two_claims(cluster, knobs)
    with paused(cluster, "apiserver"):
        knobs.knobs.reset()
        knobs.wait(lambda: knobs.knobs.calls("prepare", "done", first))
        paused_until = time.monotonic()
    cluster.wait_pod("lit")
    (begun,) = knobs.knobs.calls("prepare", "begin", second)
    assert begun.at > paused_until
    assert not failures(cluster, ["lit"])
    assert knobs.answered("prepare") == 2


def test_without_an_api_server_a_claim_fails_alone_and_works_later(cluster: Cluster, knobs: DriverUnderTest) -> None:
    first, second = start_pod_with_two_claims(cluster, knobs)
    with without_api_server(cluster):
        knobs.knobs.reset()
        knobs.wait(lambda: f"cannot prepare claim default/{second}" in knobs.log_text())
        assert [path for path in knobs.held() if first in path.read_text()] == knobs.held()
    nudge(cluster, "lit")
    cluster.wait_pod("lit")
    for name in (first, second):
        assert len(knobs.knobs.calls("prepare", "done", name)) == 1
