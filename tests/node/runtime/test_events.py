"""Events on nodes and pods: what is told, how often, and that nothing waits for it or fails by it."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import replace
from threading import Event
from typing import Any

import pytest

from dra_sdk import (
    Claim,
    ContainerEdits,
    Device,
    DeviceHealth,
    DriverInfo,
    HealthStatus,
    HeldClaim,
    HeldDevice,
    Node,
    RetriableError,
)
from dra_sdk.errors import ApiError, NotFoundError, UnreachableError
from dra_sdk.kube.api import Params
from dra_sdk.loader import Driver
from dra_sdk.model import JSON
from dra_sdk.model.claim import ClaimRef
from dra_sdk.node.health.feed import HealthChange
from dra_sdk.node.runtime import events
from dra_sdk.node.runtime.events import BURST, NOTE_LIMIT, EventWriter, NodeEvent, health_events
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator import CATALOG, AllocatedDevice, Catalog, EmbeddedCluster, ResourceType
from dra_sdk.tools.simulator.kubelet.records import KubeletError
from tests.embedded import settings_for

NAME = "lamps.example.com"
EVENTS = ResourceType("events.k8s.io", "v1", "events", "Event", namespaced=True)
WITH_EVENTS = Catalog(tuple(EVENTS if each.plural == "events" else each for each in CATALOG))
REF = ClaimRef("team", "light", "claim-uid")


class Server:
    """Takes events; `error` is raised instead."""

    def __init__(self) -> None:
        self.created: list[JSON] = []
        self.patched: list[tuple[str, JSON]] = []
        self.error: ApiError | None = None
        self.gone = False
        self.pods: list[JSON] | None = None
        users = [{"resource": "pods", "name": "pod-1", "uid": "pod-uid"}, {"resource": "jobs", "name": "j", "uid": "u"}]
        self.claim: JSON | None = {"metadata": {"uid": REF.uid}, "status": {"reservedFor": users}}

    def get(self, path: str) -> JSON:
        assert path.endswith(("/namespaces/team/resourceclaims/light", "/namespaces/team/resourceclaims/last"))
        if self.claim is None or path.endswith("last"):
            raise NotFoundError("gone", status=404)
        return self.claim

    def list(self, path: str, params: Params | None = None) -> JSON:
        assert (path, params) == ("/api/v1/namespaces/team/pods", {"fieldSelector": "spec.nodeName=node-1"})
        if self.pods is None:
            raise ApiError("pods is forbidden", status=403)
        return {"items": self.pods}

    def create(self, path: str, body: JSON) -> JSON:
        if self.error is not None:
            raise self.error
        assert path == f"/apis/events.k8s.io/v1/namespaces/{body['metadata']['namespace']}/events"
        self.created.append(body)
        return body

    def patch(self, path: str, body: JSON) -> JSON:
        if self.gone:
            raise NotFoundError("gone", status=404)
        self.patched.append((path, body))
        return body


class Bench:
    """A writer with a clock that stands still, and its server."""

    def __init__(self) -> None:
        self.server, self.now = Server(), 0.0
        self.put, self.begun = 0, 0
        self.writer = EventWriter(NAME, "node-1", self.connect, clock=lambda: self.now)

    def connect(self) -> Server:
        self.begun += 1
        return self.server

    def tell(self, *events: NodeEvent) -> None:
        """Put them, and wait until the thread has taken them and begins with a last one, which has no pods."""
        for event in (*events, NodeEvent("DeviceUnhealthy", "", claim=ClaimRef("team", "last", "none"))):
            self.writer.put(event)
            self.put += 1
        wait(lambda: self.begun == self.put)


@pytest.fixture
def bench() -> Iterator[Bench]:
    made = Bench()
    made.writer.start()
    yield made
    made.writer.stop(50)


def test_an_event_on_the_node_has_what_the_api_requires(bench: Bench) -> None:
    bench.tell(NodeEvent("DevicesNotDiscovered", "driver: no\nbulb"))
    (body,) = bench.server.created
    assert body["regarding"] == {"apiVersion": "v1", "kind": "Node", "name": "node-1", "uid": "node-1"}
    assert body["metadata"]["namespace"] == "default"
    assert (body["reportingController"], body["reportingInstance"]) == (NAME, "node-1")
    assert (body["type"], body["reason"]) == ("Warning", "DevicesNotDiscovered")
    assert body["action"]
    assert body["eventTime"].endswith("Z")
    assert "\n" not in body["note"]


def test_an_event_of_a_claim_is_on_the_pods_that_use_it_now(bench: Bench) -> None:
    bench.tell(NodeEvent("DeviceUnhealthy", "it burns", claim=REF))
    (body,) = bench.server.created
    pod = {"apiVersion": "v1", "kind": "Pod", "namespace": "team", "name": "pod-1", "uid": "pod-uid"}
    assert body["regarding"] == pod
    assert body["metadata"]["namespace"] == "team"


def grouped(name: str, group: str, claim: str, *, generated: bool = False) -> JSON:
    """Return a pod of a PodGroup with a claim, of its own name or from the template of the group."""
    entry = {"name": "light", "resourceClaimName": claim}
    made: JSON = {"metadata": {"name": name, "uid": f"of-{name}"}, "spec": {"schedulingGroup": {"podGroupName": group}}}
    if generated:
        return {**made, "status": {"resourceClaimStatuses": [entry]}}
    made["spec"]["resourceClaims"] = [entry]
    return made


def test_an_event_of_a_claim_of_a_pod_group_is_on_the_pods_of_the_group_that_use_it(bench: Bench) -> None:
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "gang-uid"}
    bench.server.claim = {"metadata": {"uid": REF.uid}, "status": {"reservedFor": [group]}}
    bench.server.pods = [
        grouped("first", "gang", "light"),
        grouped("second", "gang", "light", generated=True),
        grouped("stranger", "others", "light"),
        grouped("idle", "gang", "another"),
        {"metadata": {"name": "alone", "uid": "of-alone"}, "spec": {}},
    ]
    bench.tell(NodeEvent("DeviceUnhealthy", "it burns", claim=REF))
    regarding = [body["regarding"] for body in bench.server.created]
    assert [(item["kind"], item["name"], item["uid"]) for item in regarding] == [
        ("Pod", "first", "of-first"),
        ("Pod", "second", "of-second"),
    ]


def test_a_driver_that_may_not_list_pods_tells_the_pod_group(bench: Bench) -> None:
    group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "gang-uid"}
    bench.server.claim = {"metadata": {"uid": REF.uid}, "status": {"reservedFor": [group]}}
    bench.tell(NodeEvent("DeviceUnhealthy", "it burns", claim=REF))
    (body,) = bench.server.created
    assert (body["regarding"]["kind"], body["regarding"]["name"]) == ("PodGroup", "gang")
    assert body["metadata"]["namespace"] == "team"


@pytest.mark.parametrize("claim", [None, {"metadata": {"uid": "another"}, "status": {"reservedFor": [{"name": "x"}]}}])
def test_a_claim_that_has_gone_or_was_replaced_has_no_pods(bench: Bench, claim: JSON | None) -> None:
    bench.server.claim = claim
    bench.tell(NodeEvent("DeviceUnhealthy", "it burns", claim=REF))
    assert bench.server.created == []


def test_what_happens_again_is_counted_in_the_same_event(bench: Bench) -> None:
    again = NodeEvent("DevicesNotDiscovered", "no bulb")
    bench.tell(*[again] * 5)
    assert (len(bench.server.created), bench.server.patched) == (1, [])
    bench.now = events.SERIES_SECONDS
    bench.tell(again)
    ((path, body),) = bench.server.patched
    assert path.endswith(f"/events/{bench.server.created[0]['metadata']['name']}")
    assert body["series"]["count"] == 6


def test_an_event_that_the_server_has_forgotten_begins_anew(bench: Bench) -> None:
    bench.tell(NodeEvent("DevicesNotDiscovered", "no bulb"))
    bench.server.gone, bench.now = True, 4000.0
    bench.tell(NodeEvent("DevicesNotDiscovered", "no bulb"))
    assert len(bench.server.created) == 2


def test_a_flood_is_cut_and_told_once(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    bench.tell(*[NodeEvent("DevicesNotPublished", f"pool {number}") for number in range(BURST + 50)])
    assert len(bench.server.created) == BURST
    bench.now = events.REFILL_SECONDS
    bench.tell(NodeEvent("DevicesNotPublished", "one more"), NodeEvent("DevicesNotPublished", "too many again"))
    assert len(bench.server.created) == BURST + 1
    assert "50 events were not written" in caplog.text


def test_a_role_without_events_is_told_once_and_nothing_more_is_tried(
    bench: Bench, caplog: pytest.LogCaptureFixture
) -> None:
    bench.server.error = ApiError("events is forbidden", status=403)
    bench.writer.put(NodeEvent("DevicesNotDiscovered", "one"))
    wait(lambda: "create and patch of events" in caplog.text)
    bench.server.error = None
    bench.writer.put(NodeEvent("DevicesNotDiscovered", "two"))
    bench.writer.stop(50)
    assert bench.server.created == []


def test_a_server_that_is_away_costs_an_event_and_no_more(bench: Bench, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    bench.server.error = UnreachableError("no route")
    bench.tell(NodeEvent("DevicesNotDiscovered", "one"))
    bench.server.error = None
    bench.tell(NodeEvent("DevicesNotDiscovered", "two"))
    assert [each["note"] for each in bench.server.created] == ["two"]
    assert "not written: no route" in caplog.text


def test_a_note_keeps_to_the_limit_of_the_api_in_bytes(bench: Bench) -> None:
    bench.tell(NodeEvent("DevicesNotDiscovered", "ü" * 2000))
    assert 1000 < len(bench.server.created[0]["note"].encode()) <= NOTE_LIMIT


HELD = HeldClaim("team", "light", "claim-uid", (HeldDevice("light", "node-1", "lamp-0"),))
BURNT = HealthChange("node-1", "lamp-0", HealthStatus.HEALTHY, HealthStatus.UNHEALTHY, "it burns")


def test_pods_are_told_of_devices_that_fail_and_recover_and_of_nothing_else() -> None:
    (failed,) = health_events(NAME, [BURNT], [HELD])
    assert (failed.reason, failed.type, failed.claim) == ("DeviceUnhealthy", "Warning", REF)
    assert failed.note == f"device node-1/lamp-0 of driver {NAME} is unhealthy: it burns"
    back = replace(BURNT, old=HealthStatus.UNHEALTHY, new=HealthStatus.HEALTHY)
    assert [(each.reason, each.type) for each in health_events(NAME, [back], [HELD])] == [
        ("DeviceHealthChanged", "Normal")
    ]
    first = replace(BURNT, old=HealthStatus.UNKNOWN, new=HealthStatus.HEALTHY)
    assert list(health_events(NAME, [first, replace(BURNT, device="lamp-1")], [HELD])) == []


class Lamps:
    """One lamp, which `burnt` makes unhealthy; `broken` fails discovery."""

    def __init__(self, *, broken: bool = False) -> None:
        self.burnt, self.broken = Event(), broken

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> Sequence[Device]:
        if self.broken:
            raise OSError("no bulb")
        return [Device("lamp-0")]

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[Any]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"LAMP": "0"}))

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        while not stop.is_set():
            status = HealthStatus.UNHEALTHY if self.burnt.is_set() else HealthStatus.HEALTHY
            yield [DeviceHealth("lamp-0", status, "it burns" if self.burnt.is_set() else "")]
            stop.wait(0.05)


def found(cluster: EmbeddedCluster) -> list[tuple[str, str, str]]:
    return [
        (each["reason"], each["regarding"]["kind"], each["regarding"]["name"]) for each in cluster.api.list("events")
    ]


def test_a_pod_is_told_that_its_device_has_failed() -> None:
    lamps = Lamps()
    with EmbeddedCluster(catalog=WITH_EVENTS) as cluster, DriverProcess(Driver.of(lamps), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.create_class("lamp")
        cluster.create_claim("light", {"light": "lamp"})
        cluster.allocate("light", [AllocatedDevice("light", NAME, cluster.node_name, "lamp-0")])
        cluster.run_pod("reader", ["light"])
        lamps.burnt.set()
        assert wait(lambda: found(cluster)) == [("DeviceUnhealthy", "Pod", "reader")]


def test_a_node_is_told_why_it_has_no_devices() -> None:
    with (
        EmbeddedCluster(catalog=WITH_EVENTS) as cluster,
        DriverProcess(Driver.of(Lamps(broken=True)), settings_for(cluster)),
    ):
        assert wait(lambda: found(cluster)) == [("DevicesNotDiscovered", "Node", cluster.node_name)]
        assert "no bulb" in cluster.api.list("events")[0]["note"]


def test_a_hook_that_warns_writes_a_line_and_an_event(caplog: pytest.LogCaptureFixture) -> None:
    class Warned(Lamps):
        def dra_discover(self, node: Node) -> Sequence[Device]:
            node.warn("a lamp too many")
            return super().dra_discover(node)

    with (
        EmbeddedCluster(catalog=WITH_EVENTS) as cluster,
        DriverProcess(Driver.of(Warned()), settings_for(cluster)),
    ):
        assert wait(lambda: found(cluster)) == [("DriverWarning", "Node", cluster.node_name)]
        assert cluster.api.list("events")[0]["note"] == f"driver {NAME}: a lamp too many"
    assert "a lamp too many" in [record.getMessage() for record in caplog.records]


class Stuck(Lamps):
    """Lamps whose light goes out, and whose glass cannot be wiped; with `light`, it does not go out either."""

    def __init__(self) -> None:
        super().__init__()
        self.light = False

    def dra_unprepare(self, claim: HeldClaim) -> None:
        for device in claim.devices:
            with claim.undoing(f"light of {device.name}"):
                if self.light:
                    raise RetriableError("the switch is hot")
            with claim.undoing(f"glass of {device.name}", harmless=True):
                raise RetriableError("no cloth")


def test_a_node_is_told_of_a_refused_step_that_is_harmless_and_metrics_count_all() -> None:
    lamps = Stuck()
    with (
        EmbeddedCluster(catalog=WITH_EVENTS) as cluster,
        DriverProcess(Driver.of(lamps), settings_for(cluster)) as process,
    ):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.create_class("lamp")
        cluster.create_claim("light", {"light": "lamp"})
        cluster.allocate("light", [AllocatedDevice("light", NAME, cluster.node_name, "lamp-0")])
        cluster.run_pod("reader", ["light"])
        lamps.light = True
        with pytest.raises(KubeletError, match="light of lamp-0: the switch is hot"):
            cluster.stop_pod("reader")
        assert f'dra_sdk_claims_held_by_undo{{driver="{NAME}"}} 1.0' in process.metrics.text().decode()
        lamps.light = False
        cluster.stop_pod("reader")
        text = process.metrics.text().decode()
        assert f'dra_sdk_claims_held_by_undo{{driver="{NAME}"}} 0.0' in text
        for verdict, count in (("harmless", 2), ("dangerous", 1)):
            assert f'dra_sdk_undo_steps_refused_total{{driver="{NAME}",verdict="{verdict}"}} {count}.0' in text
        assert wait(lambda: found(cluster)) == [("UndoStepRefused", "Node", cluster.node_name)]
        (event,) = cluster.api.list("events")
        assert event["note"].endswith("was refused, which does no harm to the next claim: glass of lamp-0: no cloth")


def test_a_server_without_the_api_and_a_driver_without_events_run_as_before() -> None:
    for catalog, setting in ((CATALOG, "on"), (WITH_EVENTS, "off")):
        with (
            EmbeddedCluster(catalog=catalog) as cluster,
            DriverProcess(Driver.of(Lamps(broken=True)), settings_for(cluster, events=setting)) as process,
        ):
            cluster.kubelet.wait_for_driver(NAME)
            wait(lambda process=process: b'result="error"' in process.metrics.text())
            assert cluster.api.list("events") == []
