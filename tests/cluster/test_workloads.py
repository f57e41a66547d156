"""Drawn workloads on a real API server and controller manager and in this package: the pods, and their claims.

DRA_SDK_WORKLOAD_CASES is their number (120). DRA_SDK_WORKLOAD_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Final

import pytest

from dra_sdk.kube.client import KubeClient
from dra_sdk.tools.scheduling.cluster import ObjectSource, read_snapshot, schedule
from dra_sdk.wire.documents import Document
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.api import collection
from tests.cluster.differential.case import JSON
from tests.cluster.differential.workloads import (
    NAMESPACE,
    claim_forms,
    draw_workload,
    is_ordered,
    nodes,
    pod_forms,
    pods_by_workload,
    templates,
)
from tests.cluster.features import VERSION
from tests.cluster.harness.control_plane import ControlPlane, ControlPlaneSettings, control_plane
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import poll

CASES: Final = int(os.environ.get("DRA_SDK_WORKLOAD_CASES", "120"))
SEED: Final = os.environ.get("DRA_SDK_WORKLOAD_SEED", str(time.time_ns()))
_TIMEOUT: Final = 600.0
_QUIET: Final = 10.0
"""Seconds without a new pod or claim after which there will be no more."""
_LONG: Final = 100.0
"""The same where some are missing; a CronJob waits up to a minute."""
_FLAGS: Final = {
    # Nothing keeps the nodes ready; more requests in a second than a busy cluster gives the controllers.
    "controller-manager": ["--node-monitor-grace-period=2h", "--kube-api-qps=200", "--kube-api-burst=400"]
}
_PATHS: Final = {"v1": "/api/v1", "apps/v1": "/apis/apps/v1", "batch/v1": "/apis/batch/v1"}

pytestmark = pytest.mark.timeout(3600)


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane with controllers and without a scheduler, so no pod runs or ends."""
    settings = ControlPlaneSettings(VERSION, controllers=True, flags=_FLAGS)
    with control_plane("workloads", tmp_path_factory.mktemp("workloads"), settings, Progress()) as running:
        yield running


def create(plane: ControlPlane, obj: JSON) -> None:
    """Create a workload."""
    path = f"{_PATHS[obj['apiVersion']]}/namespaces/{NAMESPACE}/{obj['kind'].lower()}s"
    plane.api.create(path, obj)


def listed(client: KubeClient, kind: str) -> list[JSON]:
    """All objects of a kind."""
    found: list[JSON] = client.list(collection(kind))["items"]
    return found


def settled(client: KubeClient, wanted: int, until: float) -> tuple[list[JSON], list[JSON]]:
    """Pods and claims, when there are as many as wanted or none came for long, and no more for a while."""
    seen, since = -1, time.monotonic()
    while True:
        pods, claims = listed(client, "Pod"), listed(client, "ResourceClaim")
        now, count = time.monotonic(), len(pods) + len(claims)
        if count != seen:
            seen, since = count, now
        if now > until or now - since > (_QUIET if count >= wanted else _LONG):
            return pods, claims
        time.sleep(0.5)


def test_controllers_make_the_same_pods_and_claims(plane: ControlPlane) -> None:
    print(f"DRA_SDK_WORKLOAD_SEED={SEED}")
    chance = random.Random(SEED)
    workloads = [draw_workload(chance, number) for number in range(CASES)]
    before = [*nodes(), *templates()]
    source = ObjectSource("drawn", [Document(each) for each in (*before, *workloads)])
    ours = schedule(read_snapshot([source], ServerProfile.of(VERSION)).snapshot).snapshot
    our_pods = pods_by_workload(ours.pods, workloads)
    for each in workloads:
        if is_ordered(each):  # the controller makes the next pod when the one before is ready; simulate makes all
            del our_pods[each["metadata"]["name"]][1:]
    kept = [pod for pods in our_pods.values() for pod in pods]
    wanted = len(kept) + sum(len(each["spec"].get("resourceClaims") or ()) for each in kept)
    client = KubeClient.connect(plane.kubeconfig("admin"), agent="workloads")
    try:
        assert poll(lambda: any(each["metadata"]["name"] == "default" for each in accounts(plane)))
        for each in nodes():
            plane.api.create("/api/v1/nodes", each)
        for each in templates():
            path = f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}/resourceclaimtemplates"
            plane.api.create(path, each)
        for each in workloads:
            create(plane, each)
        pods, claims = settled(client, wanted, time.monotonic() + _TIMEOUT)
    finally:
        client.close()
    plane.check()
    real_pods = pods_by_workload(pods, workloads)
    wrong = []
    for obj in workloads:
        name = obj["metadata"]["name"]
        for what, real, own in (
            ("pods", pod_forms(real_pods[name]), pod_forms(our_pods[name])),
            ("claims", claim_forms(claims, real_pods[name]), claim_forms(ours.claims, our_pods[name])),
        ):
            if real != own:
                spec = {key: value for key, value in obj["spec"].items() if key != "template"}
                wrong.append(f"{obj['kind']}/{name} {what} ({spec}):\n  real {real - own}\n  ours {own - real}")
    print(f"{len(workloads)} workloads, {len(pods)} pods, {len(claims)} claims; {len(wrong)} differences")
    assert not wrong, "\n".join([f"seed {SEED}", *wrong])
    assert len(pods) > len(workloads) // 2
    assert len(claims) > len(workloads) // 2


def accounts(plane: ControlPlane) -> list[JSON]:
    """The service accounts of the namespace, without which no pod is admitted."""
    found: list[JSON] = plane.api.get(f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts")["items"]
    return found
