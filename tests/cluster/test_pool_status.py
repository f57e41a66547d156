"""Drawn pools and claims: what the real controller answers to ResourcePoolStatusRequests, and what this package does.

DRA_SDK_POOL_SEED repeats a run.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Iterator
from typing import Final

import pytest

from dra_sdk.kube.client import KubeClient
from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.tools.simulator.strategy import ADMIN_ACCESS_LABEL
from dra_sdk.tools.usage.pool_status import PoolObjects, pool_status
from dra_sdk.wire.profile import ServerProfile
from tests.cluster.features import MINOR, VERSION
from tests.cluster.harness.control_plane import BETA, ControlPlane, ControlPlaneSettings, control_plane
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.waiting import poll
from tests.tools.usage.pools import DRIVERS, draw_cluster

SEED: Final = os.environ.get("DRA_SDK_POOL_SEED", str(time.time_ns()))
GROUP: Final = "/apis/resource.k8s.io/v1"
REQUESTS: Final = "/apis/resource.k8s.io/v1alpha3/resourcepoolstatusrequests"
GATES: Final = {"DRAResourcePoolStatus": True} | ({"DRAPartitionableDevicesType": True} if MINOR > 36 else {})

pytestmark = [
    pytest.mark.kubernetes(since=36, because="ResourcePoolStatusRequest is not there"),
    pytest.mark.timeout(900),
]


@pytest.fixture(scope="module")
def plane(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    flags = {
        "apiserver": ["--runtime-config=api/ga=true,api/beta=true,resource.k8s.io/v1alpha3=true"],
        "controller-manager": ["--kube-api-qps=200", "--kube-api-burst=400"],
    }
    settings = ControlPlaneSettings(VERSION, {**BETA, **GATES}, controllers=True, flags=flags)
    with control_plane("pools", tmp_path_factory.mktemp("pools"), settings, Progress()) as running:
        yield running


def comparable(status: JSON) -> JSON:
    """Return a status without its time, and amounts as numbers: their notation depends on the order of the slices."""
    conditions = [{**entry, "lastTransitionTime": ""} for entry in status["conditions"]]
    return {**status, "conditions": conditions, "pools": [_with_numbers(pool) for pool in status.get("pools", ())]}


def _with_numbers(pool: JSON) -> JSON:
    summary = pool.get("shareableSummary")
    if summary is None:
        return pool
    amounts = [
        {key: value if key == "name" else Quantity(value) for key, value in entry.items()}
        for entry in summary["capacity"]
    ]
    return {**pool, "shareableSummary": {**summary, "capacity": amounts}}


def test_the_controller_answers_as_this_package(plane: ControlPlane) -> None:
    print(f"DRA_SDK_POOL_SEED={SEED}")
    drawn = draw_cluster(random.Random(SEED), MINOR)
    client = KubeClient.connect(plane.kubeconfig("admin"), agent="pools")
    try:
        for obj in drawn.slices:
            client.create(f"{GROUP}/resourceslices", obj)
        for obj in drawn.rules:
            client.create(f"{GROUP}/devicetaintrules" if MINOR > 36 else _beta("devicetaintrules"), obj)
        assert poll(lambda: _exists(client, "/api/v1/namespaces/default"))
        client.patch("/api/v1/namespaces/default", {"metadata": {"labels": {ADMIN_ACCESS_LABEL: "true"}}})
        for obj in drawn.claims:
            claims = f"{GROUP}/namespaces/default/resourceclaims"
            stored = client.create(claims, {key: value for key, value in obj.items() if key != "status"})
            client.update(f"{claims}/{stored['metadata']['name']}/status", {**stored, "status": obj["status"]})
        objects = PoolObjects(
            client.list(f"{GROUP}/resourceslices")["items"],
            client.list(f"{GROUP}/resourceclaims")["items"],
            client.list(f"{GROUP}/devicetaintrules" if MINOR > 36 else _beta("devicetaintrules"))["items"],
        )
        for spec in drawn.requests:
            request = {"apiVersion": "resource.k8s.io/v1alpha3", "kind": "ResourcePoolStatusRequest"}
            client.create(REQUESTS, {**request, "metadata": {"generateName": "ask-"}, "spec": spec})
        wanted = len(drawn.requests) - drawn.unanswered
        answered: list[JSON] = []

        def has_all() -> bool:
            answered[:] = [entry for entry in client.list(REQUESTS)["items"] if "status" in entry]
            return len(answered) >= wanted

        assert poll(has_all), f"{len(answered)} of {wanted} requests are answered"
        profile = ServerProfile.of(VERSION, {**GATES, "DRADeviceTaintRules": True})
        for entry in answered:
            ours = pool_status(entry["spec"], objects, profile, "")
            real, made = comparable(entry["status"]), comparable(ours)
            differing = [pair for pair in zip(real["pools"], made["pools"], strict=False) if pair[0] != pair[1]]
            assert real == made, f"{entry['spec']}: {differing}"
        assert len({entry["spec"]["driver"] for entry in answered}) > DRIVERS // 2
    finally:
        client.close()


def _beta(plural: str) -> str:
    return f"/apis/resource.k8s.io/v1beta2/{plural}"


def _exists(client: KubeClient, path: str) -> bool:
    try:
        client.get(path)
    except Exception:  # noqa: BLE001 (not yet)
        return False
    return True
