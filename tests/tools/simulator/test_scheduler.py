"""Rounds of the scheduler on the embedded cluster, what they write into the API, and allocations by hand."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster, KubeletTiming, NotScheduledError
from dra_sdk.tools.simulator.scheduler import allocation, class_name
from tests.tools.simulator.fakes import FakeDriver

DRIVER = "gpu.example.com"
FINALIZER = "resource.kubernetes.io/delete-protection"
CLASS = f'device.driver == "{DRIVER}"'


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster(timing=KubeletTiming(poll=0.02)) as running:
        running.create_class("gpu", [CLASS])
        yield running


@pytest.fixture
def driver(cluster: EmbeddedCluster) -> Iterator[FakeDriver]:
    with FakeDriver(cluster.kubelet.kubelet_dir) as running:
        cluster.kubelet.wait_for_driver(DRIVER)
        yield running


def publish(cluster: EmbeddedCluster, *devices: dict[str, Any]) -> None:
    """One slice of the driver; `memory` of a device becomes its capacity."""
    pool = {"name": "node-1", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": "node-1", "pool": pool, "devices": list(devices)}
    cluster.api.create("resourceslices", {"metadata": {"name": "slice"}, "spec": spec})


def gpu(name: str, memory: str = "40Gi", **more: Any) -> dict[str, Any]:
    return {"name": name, "capacity": {"memory": {"value": memory}}, **more}


def big() -> list[dict[str, Any]]:
    """A request for a device with at least 80Gi."""
    expression = f'device.capacity["{DRIVER}"].memory.compareTo(quantity("80Gi")) >= 0'
    exactly = {"deviceClassName": "gpu", "selectors": [{"cel": {"expression": expression}}]}
    return [{"name": "big", "exactly": exactly}]


def claim(cluster: EmbeddedCluster, name: str = "claim-1") -> dict[str, Any]:
    return cluster.api.get("resourceclaims", name, "default")


def devices(stored: dict[str, Any]) -> list[str]:
    results = stored.get("status", {}).get("allocation", {}).get("devices", {}).get("results", [])
    return [result["device"] for result in results]


def test_a_pod_gets_what_its_claim_selects(cluster: EmbeddedCluster, driver: FakeDriver) -> None:
    publish(cluster, gpu("small"), gpu("large", "96Gi"))
    cluster.create_claim("claim-1", big())
    pod = cluster.run_pod("pod-1", ["claim-1"])
    allocated = claim(cluster)
    assert devices(allocated) == ["large"]
    assert [user["name"] for user in allocated["status"]["reservedFor"]] == ["pod-1"]
    assert allocated["metadata"]["finalizers"] == [FINALIZER]
    assert cluster.api.get("pods", "pod-1", "default")["spec"]["nodeName"] == "node-1"
    assert [ref.name for ref in pod.claims.values()] == ["claim-1"]
    assert len(driver.prepared) == 1


def test_devices_are_free_again_after_the_last_pod(cluster: EmbeddedCluster, driver: FakeDriver) -> None:
    publish(cluster, gpu("only"))
    cluster.create_claim("claim-1", {"r": "gpu"})
    cluster.run_pod("pod-1", ["claim-1"])
    cluster.run_pod("pod-2", ["claim-1"])
    assert [user["name"] for user in claim(cluster)["status"]["reservedFor"]] == ["pod-1", "pod-2"]
    cluster.stop_pod("pod-1")
    assert devices(claim(cluster)) == ["only"]
    cluster.stop_pod("pod-2")
    left = claim(cluster)
    assert (left.get("status") or {}, left["metadata"].get("finalizers") or []) == ({}, [])
    cluster.create_claim("claim-2", {"r": "gpu"})
    cluster.run_pod("pod-3", ["claim-2"])
    assert devices(claim(cluster, "claim-2")) == ["only"]


def test_a_pod_without_devices_waits_and_its_status_says_why(cluster: EmbeddedCluster, driver: FakeDriver) -> None:
    publish(cluster, gpu("small"))
    cluster.create_claim("claim-1", big())
    with pytest.raises(NotScheduledError, match=r"pod default/pod-1: .*claim-1"):
        cluster.run_pod("pod-1", ["claim-1"])
    (condition,) = cluster.api.get("pods", "pod-1", "default")["status"]["conditions"]
    assert (condition["type"], condition["status"], condition["reason"]) == ("PodScheduled", "False", "Unschedulable")
    cluster.api.delete("resourceslices", "slice")
    publish(cluster, gpu("small"), gpu("large", "80Gi"))
    cluster.run_pod("pod-1")
    assert devices(claim(cluster)) == ["large"]


def test_claims_from_a_template_come_and_go_with_their_pod(cluster: EmbeddedCluster, driver: FakeDriver) -> None:
    publish(cluster, gpu("one"), gpu("two"))
    spec = {"devices": {"requests": [{"name": "r", "exactly": {"deviceClassName": "gpu"}}]}}
    template = {"metadata": {"name": "t", "namespace": "default"}, "spec": {"spec": spec}}
    cluster.api.create("resourceclaimtemplates", template)
    for name in ("pod-1", "pod-2"):
        containers = [{"name": "main", "image": "i", "resources": {"claims": [{"name": "mine"}]}}]
        claims = [{"name": "mine", "resourceClaimTemplateName": "t"}]
        pod_spec = {"containers": containers, "resourceClaims": claims}
        cluster.api.create("pods", {"metadata": {"name": name, "namespace": "default"}, "spec": pod_spec})
        cluster.run_pod(name)
    made = cluster.api.list("resourceclaims", "default")
    assert sorted(device for generated in made for device in devices(generated)) == ["one", "two"]
    assert all(generated["metadata"]["name"].startswith("pod-") for generated in made)
    cluster.stop_pod("pod-1")
    (left,) = cluster.api.list("resourceclaims", "default")
    assert left["metadata"]["ownerReferences"][0]["name"] == "pod-2"


def test_a_claim_that_a_pod_owns_but_does_not_control_goes_with_it(
    cluster: EmbeddedCluster, driver: FakeDriver
) -> None:
    publish(cluster, gpu("one", "80Gi"))
    cluster.create_claim("claim-1", big())
    uid = cluster.run_pod("pod-1", ["claim-1"]).uid
    owners = [{"apiVersion": "v1", "kind": "Pod", "name": "pod-1", "uid": uid}]
    cluster.api.patch("resourceclaims", {"metadata": {"ownerReferences": owners}}, "claim-1", "default")
    cluster.stop_pod("pod-1")
    assert cluster.api.list("resourceclaims", "default") == []


def test_extended_resources(cluster: EmbeddedCluster, driver: FakeDriver) -> None:
    publish(cluster, gpu("one"), gpu("two"))
    spec = {"selectors": [{"cel": {"expression": CLASS}}], "extendedResourceName": "example.com/gpu"}
    cluster.api.create("deviceclasses", {"metadata": {"name": "as-resource"}, "spec": spec})
    amounts = {"example.com/gpu": "2"}
    containers = [{"name": "main", "image": "i", "resources": {"requests": amounts, "limits": amounts}}]
    cluster.api.create("pods", {"metadata": {"name": "p", "namespace": "default"}, "spec": {"containers": containers}})
    running = cluster.run_pod("p")
    (made,) = cluster.api.list("resourceclaims", "default")
    assert sorted(devices(made)) == ["one", "two"]
    assert running.container_cdi_ids("main") == (f"vendor.com/class={made['metadata']['name']}",)
    cluster.stop_pod("p")
    assert cluster.api.list("resourceclaims") == []


def test_a_round_is_repeated_if_another_client_writes_a_claim_in_between(
    cluster: EmbeddedCluster, driver: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver, for example, writes the status of its devices."""
    publish(cluster, gpu("gpu-0"))
    cluster.create_claim("scheduled", {"gpu": "gpu"})
    cluster.create_claim("told", {"gpu": "gpu"})
    api, undisturbed, met = cluster.api, set[str](), 0

    def disturbed(verb: str, write: Callable[..., Any]) -> Callable[..., Any]:
        def first_disturbed(plural: str, obj: dict[str, Any]) -> Any:
            nonlocal met
            if plural == "resourceclaims" and verb in undisturbed:
                undisturbed.remove(verb)
                met += 1
                api.patch(plural, {"metadata": {"labels": {"met": str(met)}}}, obj["metadata"]["name"], "default")
            return write(plural, obj)

        return first_disturbed

    def meanwhile() -> None:
        undisturbed.update({"update", "update_status"})

    for verb in ("update", "update_status"):
        monkeypatch.setattr(api, verb, disturbed(verb, getattr(api, verb)))
    meanwhile()
    cluster.allocate("told", [AllocatedDevice("gpu", DRIVER, "node-1", "gpu-9")])
    for name in ("scheduled", "told"):
        meanwhile()
        cluster.run_pod(name, [name])
        assert len(claim(cluster, name)["status"]["reservedFor"]) == 1
        meanwhile()
        cluster.stop_pod(name)
    assert not claim(cluster, "scheduled").get("status")
    assert not claim(cluster, "scheduled")["metadata"].get("finalizers")
    assert list(claim(cluster, "told")["status"]) == ["allocation"]
    meanwhile()
    cluster.deallocate("told")
    assert not claim(cluster, "told").get("status")
    assert met == 8


def test_claims_without_a_pod_are_allocated_too(cluster: EmbeddedCluster) -> None:
    publish(cluster, gpu("one"))
    for name in ("a", "b"):
        cluster.create_claim(name, {"r": "gpu"})
    outcome = cluster.schedule()
    allocated = {key[1]: claim_outcome.allocation is not None for key, claim_outcome in outcome.claims_by_key.items()}
    assert allocated == {"a": True, "b": False}
    assert outcome.claims_by_key["default", "b"].reason
    assert devices(claim(cluster, "a")) == ["one"]
    version = cluster.store.version
    cluster.schedule()
    assert cluster.store.version == version


def test_a_taint_evicts_pods(cluster: EmbeddedCluster, driver: FakeDriver) -> None:
    publish(cluster, gpu("one"), gpu("two"))
    cluster.create_claim("claim-1", {"r": "gpu"})
    cluster.run_pod("pod-1", ["claim-1"])
    (published,) = cluster.api.list("resourceslices")
    published["spec"]["devices"][0]["taints"] = [{"key": "example.com/hot", "effect": "NoExecute"}]
    cluster.api.update("resourceslices", published)
    cluster.schedule()
    assert cluster.api.list("pods") == []
    assert len(driver.unprepared) == 1
    cluster.run_pod("pod-2", ["claim-1"])
    assert devices(claim(cluster)) == ["two"]


def test_devices_that_were_allocated_by_hand_stay(cluster: EmbeddedCluster, driver: FakeDriver) -> None:
    publish(cluster, gpu("one"), gpu("two"))
    cluster.create_claim("claim-1", {"r": "gpu"})
    cluster.allocate("claim-1", [AllocatedDevice("r", DRIVER, "node-1", "two")])
    cluster.run_pod("pod-1", ["claim-1"])
    cluster.create_claim("claim-2", {"r": "gpu"})
    cluster.run_pod("pod-2", ["claim-2"])
    assert (devices(claim(cluster)), devices(claim(cluster, "claim-2"))) == (["two"], ["one"])
    cluster.stop_pod("pod-1")
    assert claim(cluster)["status"].keys() == {"allocation"}


def test_feature_gates_decide_about_the_match() -> None:
    shared = {"name": "one", "allowMultipleAllocations": True}
    for gate, wanted in ((True, 2), (False, 1)):
        with EmbeddedCluster(feature_gates={"DRAConsumableCapacity": gate}) as cluster:
            cluster.create_class("gpu", [CLASS])
            publish(cluster, shared)
            for name in ("a", "b"):
                cluster.create_claim(name, {"r": "gpu"})
            cluster.schedule()
            assert sum(bool(devices(claim(cluster, name))) for name in ("a", "b")) == wanted


OF_CLASS = {"opaque": {"driver": DRIVER, "parameters": {"from": "class"}}}
OF_CLAIM = {"opaque": {"driver": DRIVER, "parameters": {"from": "claim"}}}
CLASSES = {"plain": {"spec": {}}, "tuned": {"spec": {"config": [OF_CLASS]}}}


@pytest.fixture
def tuned_claim() -> dict[str, Any]:
    requests = [
        {"name": "a", "exactly": {"deviceClassName": "tuned"}},
        {"name": "b", "firstAvailable": [{"name": "big", "deviceClassName": "tuned"}]},
        {"name": "c", "exactly": {"deviceClassName": "plain"}},
    ]
    return {"metadata": {"name": "claim-1"}, "spec": {"devices": {"requests": requests}}}


def chosen(request: str, **more: Any) -> AllocatedDevice:
    return AllocatedDevice(request, DRIVER, "node-1", "d0", **more)


def test_an_allocation_has_results_and_node(tuned_claim: dict[str, Any]) -> None:
    devices = [
        chosen("a", admin_access=True),
        chosen("b/big", share_id="s", more={"consumedCapacity": {"memory": "1Gi"}}),
        chosen("c"),
    ]
    written = allocation(tuned_claim, {}, devices, "node-1")
    plain = {"driver": DRIVER, "pool": "node-1", "device": "d0"}
    assert written["devices"] == {
        "results": [
            {"request": "a", **plain, "adminAccess": True},
            {"request": "b/big", **plain, "shareID": "s", "consumedCapacity": {"memory": "1Gi"}},
            {"request": "c", **plain},
        ]
    }
    terms = written["nodeSelector"]["nodeSelectorTerms"]
    assert terms == [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-1"]}]}]


def test_the_configuration_of_the_classes_comes_before_the_claims(tuned_claim: dict[str, Any]) -> None:
    def of_claim(*requests: str) -> dict[str, Any]:
        return {**OF_CLAIM, "requests": list(requests)}

    tuned_claim["spec"]["devices"]["config"] = [
        OF_CLAIM,
        of_claim("b"),
        of_claim("b/big"),
        of_claim("b/small", "x"),
    ]
    written = allocation(tuned_claim, CLASSES, [chosen("a"), chosen("a"), chosen("b/big"), chosen("c")], "node-1")
    assert written["devices"]["config"] == [
        {"source": "FromClass", "requests": ["a"], **OF_CLASS},
        {"source": "FromClass", "requests": ["b/big"], **OF_CLASS},
        {"source": "FromClaim", **OF_CLAIM},
        {"source": "FromClaim", **of_claim("b")},
        {"source": "FromClaim", **of_claim("b/big")},
    ]


@pytest.mark.parametrize("request_name", ["x", "b", "a/sub", "b/small"])
def test_the_class_of_a_missing_request(tuned_claim: dict[str, Any], request_name: str) -> None:
    with pytest.raises(KeyError, match=f"claim claim-1 has no request '{request_name}'"):
        class_name(tuned_claim, request_name)
