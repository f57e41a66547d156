"""A claim that is reserved for a PodGroup: its pods are served, a stranger is refused, events reach its pods.

Gates DRAWorkloadResourceClaims and GenericWorkload, which are on here from 1.37, where they are beta.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.deployed import install
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import KNOBS, Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import SHOW, container, pod, request, template
from tests.cluster.pods import allocated, cpus_of, read_pod
from tests.cluster.test_cpu_pinning import ALL
from tests.cluster.test_cpu_pinning import cpus as cpus  # noqa: PLC0414 (a fixture)
from tests.cluster.test_events import WORDS, told

JSON = dict[str, Any]
GROUPS = "/apis/scheduling.k8s.io/v1beta1/namespaces/default/podgroups"

pytestmark = pytest.mark.kubernetes(since=37, because="claims of PodGroups are alpha, with another API")


def grouped(name: str, one: JSON, group: str = "") -> JSON:
    """Returns a pod that uses a claim, of a group that has this claim or of none."""
    made = pod(
        name, [use(one)] if group else [], container("main", *([{"name": "desk"}] if group else []), command=SHOW)
    )
    if group:
        made["spec"]["schedulingGroup"] = {"podGroupName": group}
    return made


def use(one: JSON) -> JSON:
    return {"name": "desk", "resourceClaimTemplateName": one["metadata"]["name"]}


@pytest.fixture
def groups(cluster: Cluster, drivers: Drivers) -> Iterator[None]:
    """Removes pods and their groups before the drivers' claims, which a group reserves as long as it exists."""
    yield
    cluster.kubectl("delete", "pods,podgroups", "--all", "--wait=true")


def apply_group(cluster: Cluster, name: str, one: JSON) -> None:
    """Creates a group with a claim for all of its pods together."""
    head = {"apiVersion": "scheduling.k8s.io/v1beta1", "kind": "PodGroup", "metadata": {"name": name}}
    spec = {"schedulingPolicy": {"basic": {}}, "resourceClaims": [use(one)]}
    cluster.apply(one, {**head, "spec": spec})


def run_gang(cluster: Cluster, one: JSON) -> JSON:
    """Runs two pods of a group with one claim; returns the claim."""
    apply_group(cluster, "gang", one)
    for name in ("first", "second"):
        cluster.apply(grouped(name, one, "gang"))
        cluster.wait_pod(name)
    (claim,) = cluster.api.get("/apis/resource.k8s.io/v1/namespaces/default/resourceclaims")["items"]
    (consumer,) = claim["status"]["reservedFor"]
    assert (consumer["apiGroup"], consumer["resource"], consumer["name"]) == ("scheduling.k8s.io", "podgroups", "gang")
    return dict(claim)


def refused(cluster: Cluster, name: str) -> bool:
    return f"is not reserved for pod default/{name}" in cluster.kubectl("describe", "pod", name)


def test_pods_of_the_group_share_its_cpu_and_a_strangers_pod_is_refused(
    cluster: Cluster, groups: None, cpus: DriverUnderTest
) -> None:
    install(cluster, "dra.cpu", podGroupClaims=True)
    one = template("one-cpu", [request("cpu", "dra.cpu", capacity={"requests": {"dra.cpu/cpu": "1"}})])
    claim = run_gang(cluster, one)
    mine = cpus_of(cluster, "first")
    assert len(mine) == 1
    assert cpus_of(cluster, "second") == mine
    variable = {"name": f"DRA_CLAIM_dra.cpu_{claim['metadata']['uid']}_cpu", "value": claim["metadata"]["name"]}
    stranger = grouped("stranger", one)
    stranger["spec"]["containers"][0]["env"] = [variable]
    cluster.apply(stranger)
    cluster.wait_until(lambda: refused(cluster, "stranger"), "the stranger's container is refused")
    assert "state" not in cpu_status(cluster, "stranger") or "running" not in cpu_status(cluster, "stranger")["state"]
    cluster.apply(grouped("beside", one))
    cluster.wait_pod("beside")
    assert cpus_of(cluster, "beside") == ALL - mine
    cluster.kubectl("delete", "pod", "first", "--wait=false")
    cluster.wait_gone("pod", "first")
    assert cpus_of(cluster, "second") == mine
    assert len(cpus.held()) == 1


def cpu_status(cluster: Cluster, name: str) -> JSON:
    return dict(read_pod(cluster, name)["status"]["containerStatuses"][0])


def test_events_of_the_claim_are_on_the_pods_of_the_group(
    cluster: Cluster, groups: None, knobs: DriverUnderTest
) -> None:
    install(cluster, KNOBS, podGroupClaims=True)
    claim = run_gang(cluster, template("one-knob", [request("desk", "knobs")]))
    (device,) = allocated(cluster, claim["metadata"]["name"])
    knobs.knobs.set(unhealthy={device["device"]: WORDS})
    for name in ("first", "second"):
        uid = read_pod(cluster, name)["metadata"]["uid"]
        cluster.wait_until(lambda uid=uid: told(cluster, uid), f"an event on {name}")  # type: ignore[misc]
        assert WORDS in cluster.kubectl("describe", "pod", name)


def test_without_the_permission_the_group_gets_the_event(
    cluster: Cluster, groups: None, knobs: DriverUnderTest
) -> None:
    install(cluster, KNOBS)
    claim = run_gang(cluster, template("one-knob", [request("desk", "knobs")]))
    (device,) = allocated(cluster, claim["metadata"]["name"])
    knobs.knobs.set(unhealthy={device["device"]: WORDS})
    group = cluster.api.get(f"{GROUPS}/gang")["metadata"]["uid"]
    cluster.wait_until(lambda: told(cluster, group), "an event on the group")
    assert WORDS in cluster.kubectl("describe", "podgroup", "gang")
