"""A claim's whole life on a real cluster: publish, allocate, prepare, run, unprepare."""

from __future__ import annotations

import json

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, container, lamp, pod, request, template
from tests.cluster.pods import printed, wait_failure


@pytest.mark.core
def test_the_cpu_driver_gives_a_pod_cpus_from_a_template(cluster: Cluster, cpus: DriverUnderTest) -> None:
    listed = cluster.kubectl("get", "resourceslices")
    assert "dra.cpu" in listed
    assert cluster.node_name in listed

    capacity = {"requests": {"dra.cpu/cpu": "1"}}
    cluster.apply(template("one-cpu", [request("cpu", "dra.cpu", capacity=capacity)]))
    use = {"name": "cpu", "resourceClaimTemplateName": "one-cpu"}
    cluster.apply(pod("pinned", [use], container("main", {"name": "cpu"})))
    cluster.wait_pod("pinned")

    claims = json.loads(cluster.kubectl("get", "resourceclaims", "-o", "json"))["items"]
    uid = claims[0]["metadata"]["uid"]
    environment = printed(cluster, "pinned", "main")
    assert environment[f"DRA_CPUSET_{uid}"] in {"0", "1"}
    assert [path.name for path in cpus.specs()] == [f"dra.cpu_claim-{uid}.json"]

    cluster.kubectl("delete", "pod", "pinned")
    cpus.wait(lambda: not cpus.held() and not cpus.specs())


def test_two_pods_never_share_a_cpu(cluster: Cluster, cpus: DriverUnderTest) -> None:
    capacity = {"requests": {"dra.cpu/cpu": "1"}}
    cluster.apply(template("one-cpu", [request("cpu", "dra.cpu", capacity=capacity)]))
    for name in ("a", "b"):
        use = {"name": "cpu", "resourceClaimTemplateName": "one-cpu"}
        cluster.apply(pod(name, [use], container("main", {"name": "cpu"})))
    given = []
    for name in ("a", "b"):
        cluster.wait_pod(name)
        given += [value for key, value in printed(cluster, name, "main").items() if key.startswith("DRA_CPUSET_")]
    assert len(given) == len(set(given)) == 2


@pytest.mark.core
def test_configuration_reaches_the_container_of_its_request(cluster: Cluster, lamps: DriverUnderTest) -> None:
    requests = [request("desk", "lamp"), request("wall", "blue-lamp")]
    cluster.apply(claim("lamps", requests, [lamp(10), lamp(80, "wall")]))
    uses = [{"name": "lamps", "resourceClaimName": "lamps"}]
    cluster.apply(
        pod(
            "room",
            uses,
            container("desk", {"name": "lamps", "request": "desk"}),
            container("wall", {"name": "lamps", "request": "wall"}),
            container("both", {"name": "lamps"}),
            container("none"),
        )
    )
    cluster.wait_pod("room")
    desk, wall = printed(cluster, "room", "desk"), printed(cluster, "room", "wall")
    assert desk == {"BRIGHTNESS_DESK": "10", "LAMP_DESK": desk["LAMP_DESK"]}
    assert wall == {"BRIGHTNESS_WALL": "80", "LAMP_WALL": wall["LAMP_WALL"]}
    assert wall["LAMP_WALL"] in {"lamp-4", "lamp-5", "lamp-6", "lamp-7"}
    assert printed(cluster, "room", "both") == {**desk, **wall}
    assert printed(cluster, "room", "none") == {}


def test_a_deleted_pod_frees_its_devices(cluster: Cluster, lamps: DriverUnderTest) -> None:
    everything = [request("all", "lamp", allocationMode="All")]
    cluster.apply(template("every-lamp", everything))
    use = {"name": "lamps", "resourceClaimTemplateName": "every-lamp"}
    cluster.apply(pod("first", [use], container("main", {"name": "lamps"})))
    cluster.wait_pod("first")
    assert len(lamps.held()) == 1

    cluster.apply(pod("second", [use], container("main", {"name": "lamps"})))
    cluster.kubectl("delete", "pod", "first")
    cluster.wait_pod("second")
    assert len(lamps.held()) == 1
    assert len(lamps.specs()) == 1


@pytest.mark.core
def test_the_events_name_a_wrong_configuration(cluster: Cluster, lamps: DriverUnderTest) -> None:
    cluster.apply(claim("too-bright", [request("desk", "lamp")], [lamp(101)]))
    uses = [{"name": "lamps", "resourceClaimName": "too-bright"}]
    cluster.apply(pod("dazzled", uses, container("main", {"name": "lamps"})))
    wait_failure(cluster, "dazzled", "brightness: must be less than or equal to 100 (got 101)")
    assert not lamps.held()
