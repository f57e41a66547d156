from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef
from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator.kubelet.emulator import KubeletEmulator
from dra_sdk.tools.simulator.kubelet.manager import ClaimManager, findings
from dra_sdk.tools.simulator.kubelet.pods import RunningPod
from dra_sdk.tools.simulator.kubelet.records import (
    AnsweredDevice,
    DriverCallError,
    NotRegisteredError,
    PodClaimError,
    ResponseError,
    StoppedError,
)
from dra_sdk.tools.simulator.local import LocalClient
from tests.tools.simulator.fakes import Answer, FakeDriver, one_device

GPU, NIC = "gpu.example.com", "nic.example.com"


@pytest.fixture
def gpu(kubelet: KubeletEmulator, kubelet_dir: Path) -> Iterator[FakeDriver]:
    with FakeDriver(kubelet_dir, GPU) as running:
        kubelet.wait_for_driver(GPU)
        yield running


@pytest.fixture
def nic(kubelet: KubeletEmulator, kubelet_dir: Path) -> Iterator[FakeDriver]:
    with FakeDriver(kubelet_dir, NIC) as running:
        kubelet.wait_for_driver(NIC)
        yield running


def claim(api: LocalClient, name: str, *drivers: str, pods: tuple[str, ...] = ("pod-1",), **more: object) -> ClaimRef:
    """A claim allocated to one device of each driver and reserved for the pods, whose UIDs are their names."""
    metadata = {"name": name, "namespace": "default", **more}
    created = api.create("resourceclaims", {"metadata": metadata, "spec": {}})
    results = [{"request": "r", "driver": driver, "pool": "node-1", "device": f"dev-{name}"} for driver in drivers]
    status: JSON = {"reservedFor": [{"resource": "pods", "name": pod, "uid": pod} for pod in pods]}
    if drivers:
        status["allocation"] = {"devices": {"results": results}}
    api.update_status("resourceclaims", {**created, "status": status})
    return ClaimRef("default", name, created["metadata"]["uid"])


def pod(*claims: str, name: str = "pod-1", containers: dict[str, list[JSON]] | None = None) -> JSON:
    wanted = containers if containers is not None else {"main": [{"name": claim} for claim in claims]}
    return {
        "metadata": {"name": name, "namespace": "default", "uid": name},
        "spec": {
            "resourceClaims": [{"name": claim, "resourceClaimName": claim} for claim in claims],
            "containers": [{"name": key, "resources": {"claims": value}} for key, value in wanted.items()],
        },
    }


def test_all_claims_of_a_driver_go_in_one_call(api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver) -> None:
    one, two = claim(api, "one", GPU), claim(api, "two", GPU)
    running = kubelet.run_pod(pod("one", "two"))
    assert gpu.prepared == [("v1", [one, two])]
    assert running.claims == {"one": one, "two": two}
    assert running.cdi_ids("one") == ("vendor.com/class=one",)
    assert running.container_cdi_ids("main") == ("vendor.com/class=one", "vendor.com/class=two")
    kubelet.stop_pod("pod-1")
    assert gpu.unprepared == [("v1", [one, two])]
    assert not kubelet.claims


def test_every_driver_of_a_claim_is_called(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver, nic: FakeDriver
) -> None:
    both, only = claim(api, "both", GPU, NIC), claim(api, "only", NIC)
    running = kubelet.run_pod(pod("both", "only"))
    assert [claims for _, claims in gpu.prepared] == [[both]]
    assert [claims for _, claims in nic.prepared] == [[both, only]]
    assert [device.driver for device in running.devices["both"]] == [GPU, NIC]


def test_containers_get_the_devices_of_their_requests(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    ref = claim(api, "one", GPU)
    gpu.on_prepare = lambda claims: {
        ref.uid: [
            AnsweredDevice(GPU, "node-1", "a", ("r",), ("v/c=a", "v/c=a2")),
            AnsweredDevice(GPU, "node-1", "b", ("s", "t"), ("v/c=b",)),
            AnsweredDevice(GPU, "node-1", "c", (), ("v/c=c",)),
            AnsweredDevice(GPU, "node-1", "d", ("r",), ()),
        ]
    }
    wanted = {
        "whole": [{"name": "one"}],
        "r": [{"name": "one", "request": "r"}],
        "t-r": [{"name": "one", "request": "t"}, {"name": "one", "request": "r"}],
        "none": [],
    }
    running = kubelet.run_pod(pod("one", containers=wanted))
    assert running.container_cdi_ids("whole") == ("v/c=a", "v/c=a2", "v/c=b", "v/c=c")
    assert running.container_cdi_ids("r") == ("v/c=a", "v/c=a2", "v/c=c")
    assert running.container_cdi_ids("t-r") == ("v/c=b", "v/c=c", "v/c=a", "v/c=a2", "v/c=c")
    assert running.container_cdi_ids("none") == ()


def test_extended_resources_come_from_a_claim_of_their_own(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    ref = claim(api, "made-by-the-scheduler", GPU)
    gpu.on_prepare = lambda claims: {
        ref.uid: [AnsweredDevice(GPU, "node-1", name, (f"container-{name}",), (f"v/c={name}",)) for name in "ab"]
    }
    wanted = pod(containers={"a": [], "b": [], "c": []})
    for container in wanted["spec"]["containers"][:2]:
        container["resources"]["requests"] = {"example.com/gpu": "1"}
    mappings = [
        {"containerName": name, "resourceName": "example.com/gpu", "requestName": f"container-{name}"} for name in "abc"
    ]
    noted = {"resourceClaimName": ref.name, "requestMappings": mappings}
    running = kubelet.run_pod({**wanted, "status": {"extendedResourceClaimStatus": noted}})
    assert [running.container_cdi_ids(name) for name in "abc"] == [("v/c=a",), ("v/c=b",), ()]
    kubelet.stop_pod("pod-1")
    assert [asked for _, asked in gpu.unprepared] == [[ref]]


def test_a_shared_claim_is_prepared_once_and_unprepared_with_its_last_pod(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    claim(api, "one", GPU, pods=("pod-1", "pod-2"))
    first = kubelet.run_pod(pod("one"))
    second = kubelet.run_pod(pod("one", name="pod-2"))
    assert first.devices == second.devices
    assert len(gpu.prepared) == 1
    kubelet.stop_pod("pod-1")
    assert not gpu.unprepared
    kubelet.stop_pod("pod-2")
    assert len(gpu.unprepared) == 1


def unfit(api: LocalClient, rule: str) -> JSON:
    match rule:
        case "claim-exists":
            return pod("missing")
        case "claim-reserved":
            claim(api, "one", GPU, pods=())
        case "claim-allocated":
            claim(api, "one")
        case _:
            claim(api, "one", GPU)
            wanted = pod("one")
            wanted["spec"]["resourceClaims"] = [{"name": "one", "resourceClaimTemplateName": "template"}]
            wanted["status"] = {"resourceClaimStatuses": [{"name": "one", "resourceClaimName": "one"}]}
            return wanted
    return pod("one")


@pytest.mark.parametrize("rule", ["claim-exists", "claim-reserved", "claim-allocated", "claim-owner"])
def test_a_claim_that_the_pod_may_not_use_is_not_prepared(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver, rule: str
) -> None:
    with pytest.raises(PodClaimError) as caught:
        kubelet.run_pod(unfit(api, rule))
    assert caught.value.rule == rule
    assert not gpu.prepared
    assert not kubelet.claims


def test_a_claim_from_a_template_is_found_through_the_pods_status(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod-1", "uid": "pod-1", "controller": True}
    claim(api, "generated", GPU, ownerReferences=[owner])
    wanted = pod("c", "unneeded")
    wanted["spec"]["resourceClaims"] = [
        {"name": "c", "resourceClaimTemplateName": "template"},
        {"name": "unneeded", "resourceClaimTemplateName": "template"},
    ]
    with pytest.raises(PodClaimError, match="ResourceClaim not created yet"):
        kubelet.run_pod(wanted)
    statuses = [{"name": "c", "resourceClaimName": "generated"}, {"name": "unneeded"}]
    wanted["status"] = {"resourceClaimStatuses": statuses}
    assert kubelet.run_pod(wanted).cdi_ids("c") == ("vendor.com/class=generated",)


def test_without_the_driver_nothing_is_remembered(api: LocalClient, kubelet: KubeletEmulator) -> None:
    claim(api, "one", GPU)
    with pytest.raises(NotRegisteredError):
        kubelet.run_pod(pod("one"))
    assert not kubelet.claims
    kubelet.stop_pod("pod-1")


def test_prepare_fails_then_succeeds(api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver) -> None:
    ref = claim(api, "one", GPU)
    gpu.on_prepare = lambda claims: {ref.uid: "not yet"}
    with pytest.raises(ResponseError, match="not yet"):
        kubelet.run_pod(pod("one"))
    gpu.on_prepare = one_device
    assert kubelet.run_pod(pod("one")).cdi_ids("one")
    assert len(gpu.prepared) == 2


def test_when_one_driver_fails_the_other_is_called_again(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver, nic: FakeDriver
) -> None:
    both = claim(api, "both", GPU, NIC)
    nic.on_prepare = lambda claims: {both.uid: "no link"}
    with pytest.raises(ResponseError, match="no link"):
        kubelet.run_pod(pod("both"))
    nic.on_prepare = one_device
    running = kubelet.run_pod(pod("both"))
    assert len(running.devices["both"]) == 2
    assert (len(gpu.prepared), len(nic.prepared)) == (2, 2)


def test_a_claim_whose_prepare_failed_is_unprepared_too(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    ref = claim(api, "one", GPU)
    gpu.on_prepare = lambda claims: {}
    with pytest.raises(ResponseError):
        kubelet.run_pod(pod("one"))
    kubelet.stop_pod("pod-1")
    assert gpu.unprepared == [("v1", [ref])]


def test_unprepare_fails_and_is_tried_again(api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver) -> None:
    ref = claim(api, "one", GPU)
    kubelet.run_pod(pod("one"))
    gpu.on_unprepare = lambda claims: {ref.uid: "busy"}
    with pytest.raises(ResponseError, match="busy"):
        kubelet.stop_pod("pod-1")
    (error,) = kubelet.reconcile()
    assert "busy" in str(error)
    gpu.on_unprepare = lambda claims: {ref.uid: ""}
    assert kubelet.reconcile() == []
    assert not kubelet.claims
    assert kubelet.reconcile() == []
    assert len(gpu.unprepared) == 3


def test_unprepare_needs_no_claim_object(api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver) -> None:
    ref = claim(api, "one", GPU)
    kubelet.run_pod(pod("one"))
    api.delete("resourceclaims", "one", "default")
    kubelet.stop_pod("pod-1")
    assert gpu.unprepared == [("v1", [ref])]


def test_an_old_claim_of_the_same_name_blocks_the_new_one(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    claim(api, "one", GPU)
    kubelet.run_pod(pod("one"))
    api.delete("resourceclaims", "one", "default")
    claim(api, "one", GPU, pods=("pod-2",))
    with pytest.raises(PodClaimError, match="different UID") as caught:
        kubelet.run_pod(pod("one", name="pod-2"))
    assert caught.value.rule == "claim-replaced"
    kubelet.stop_pod("pod-1")
    assert kubelet.run_pod(pod("one", name="pod-2"))


def restarted(kubelet: KubeletEmulator) -> None:
    kubelet.restart()
    kubelet.wait_for_driver(GPU)


def test_after_a_restart_the_same_claim_is_prepared_again(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    claim(api, "one", GPU)
    before = kubelet.run_pod(pod("one"))
    restarted(kubelet)
    (info,) = kubelet.claims
    assert not info.prepared
    assert info.devices == before.devices["one"]
    assert kubelet.run_pod(pod("one")) == before
    assert len(gpu.prepared) == 2


def test_after_a_restart_a_claim_is_unprepared_from_the_state_file(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    ref = claim(api, "one", GPU)
    kubelet.run_pod(pod("one"))
    api.delete("resourceclaims", "one", "default")
    restarted(kubelet)
    kubelet.stop_pod("pod-1")
    assert gpu.unprepared == [("v1", [ref])]


def test_a_restart_waits_for_the_calls_of_pods(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pod that loses its driver with the old kubelet does not write the state file of the new one."""
    began, release, stopped = threading.Event(), threading.Event(), threading.Event()
    order: list[str] = []
    prepare = ClaimManager.prepare

    def slow(claims: list[ClaimRef]) -> Answer:
        began.set()
        release.wait(LONG)
        return one_device(claims)

    def prepared(manager: ClaimManager, pod: JSON) -> RunningPod:
        try:
            return prepare(manager, pod)
        except DriverCallError:
            with pytest.raises(StoppedError):
                kubelet.run_pod(pod)
            stopped.wait(0.5)  # it is not set while this call lasts
            order.append("the pod's call has ended")
            raise

    def run() -> None:
        with pytest.raises(DriverCallError):
            kubelet.run_pod(pod("one"))

    monkeypatch.setattr(ClaimManager, "prepare", prepared)
    gpu.on_prepare = slow
    claim(api, "one", GPU)
    caller = threading.Thread(target=run)
    caller.start()
    assert began.wait(LONG)
    kubelet.stop()
    order.append("the kubelet has stopped")
    stopped.set()
    caller.join()
    release.set()
    assert order == ["the pod's call has ended", "the kubelet has stopped"]


def test_claims_of_a_pod_that_is_still_there_are_not_reconciled(
    api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver
) -> None:
    claim(api, "one", GPU)
    kubelet.run_pod(pod("one"))
    restarted(kubelet)
    assert kubelet.reconcile() == []
    assert not gpu.unprepared


def test_a_pod_cannot_end_while_its_driver_is_away(api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver) -> None:
    claim(api, "one", GPU)
    kubelet.run_pod(pod("one"))
    gpu.stop_service()
    kubelet.wait_for_no_driver(GPU)
    with pytest.raises(DriverCallError):
        kubelet.stop_pod("pod-1")
    gpu.start_service()
    kubelet.wait_for_driver(GPU)
    assert kubelet.reconcile() == []
    assert not kubelet.claims


def test_a_finding_is_recorded_once(api: LocalClient, kubelet: KubeletEmulator, gpu: FakeDriver) -> None:
    ref = claim(api, "one", GPU, pods=("pod-1", "pod-2"))
    assert kubelet.run_pod(pod("one"))
    assert kubelet.records.findings == []
    kubelet.stop_pod("pod-1")
    gpu.on_prepare = lambda claims: {ref.uid: [AnsweredDevice(GPU, "node-1", "dev-one", ("r/sub",))]}
    for name in ("pod-1", "pod-2"):
        kubelet.run_pod(pod("one", name=name))
    assert [finding.rule for finding in kubelet.records.findings] == ["base-request"]


def allocated(**more: Any) -> dict[str, Any]:
    result = {"request": "r/sub", "driver": GPU, "pool": "node-1", "device": "dev", **more}
    other = {"request": "s", "driver": "nic.example.com", "pool": "node-1", "device": "eth0"}
    allocation = {"devices": {"results": [result, other]}}
    return {"metadata": {"namespace": "default", "name": "one"}, "status": {"allocation": allocation}}


@pytest.mark.parametrize(
    ("device", "rule"),
    [
        (AnsweredDevice(GPU, "node-1", "dev", ("r/sub",)), "base-request"),
        (AnsweredDevice(GPU, "node-1", "dev", ("s",)), "known-request"),
        (AnsweredDevice(GPU, "node-1", "eth0", ("r",)), "allocated-device"),
        (AnsweredDevice(GPU, "node-2", "dev", ("r",)), "allocated-device"),
        (AnsweredDevice(GPU, "node-1", "dev", ("r",), (), "share-1"), "share-id"),
        (AnsweredDevice(GPU, "node-1", "dev", ("r",), ("not-a-cdi-name",)), "cdi-name"),
    ],
)
def test_a_mistake_that_the_kubelet_accepts_is_a_finding(device: AnsweredDevice, rule: str) -> None:
    (finding,) = findings(allocated(), [device])
    assert (finding.rule, finding.driver, finding.claim) == (rule, GPU, "default/one")
    assert f"device {device.pool}/{device.device}: " in finding.why


def test_a_missing_share_id_is_a_finding() -> None:
    (finding,) = findings(allocated(shareID="share-1"), [AnsweredDevice(GPU, "node-1", "dev", ("r",))])
    assert finding.rule == "share-id"


@pytest.mark.parametrize(
    "device",
    [
        AnsweredDevice(GPU, "node-1", "dev", ("r",), ("vendor.com/class=a", "vendor.com/class=b"), "share-1"),
        AnsweredDevice(GPU, "node-1", "dev", (), (), "share-1"),
    ],
)
def test_a_good_answer_has_no_findings(device: AnsweredDevice) -> None:
    assert list(findings(allocated(shareID="share-1"), [device])) == []
