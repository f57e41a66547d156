"""A whole driver process on the embedded cluster: order, restarts, faults of the API server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import wait as wait_futures
from contextlib import ExitStack, closing
from pathlib import Path
from threading import Event

import pytest

from dra_sdk import Claim, Gauge, HeldClaim, Node, PreparedDevice
from dra_sdk.errors import SettingsError
from dra_sdk.loader import Driver
from dra_sdk.node.kubelet import registration
from dra_sdk.node.runtime import publishing, sockets
from dra_sdk.node.runtime.instance import InstanceLock
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.node.runtime.settings import Serve
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import AllocatedDevice, ClaimRef, EmbeddedCluster, FaultRule, Reject
from dra_sdk.tools.simulator.kubelet.calls import ClaimsResponse, KubeletCalls
from dra_sdk.tools.simulator.kubelet.records import ResponseError
from dra_sdk.tools.simulator.kubelet.timing import KubeletTiming
from dra_sdk.tools.simulator.statuses import unavailable
from tests.embedded import settings_for
from tests.lamps import NAME, LampConfig, LampDriver
from tests.node.runtime.conftest import ANY_PORT, Web


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_class("lamp")
        yield running


def give(cluster: EmbeddedCluster, claim: str, *lamps: str) -> None:
    cluster.create_claim(claim, {"lamp": "lamp"})
    cluster.allocate(claim, [AllocatedDevice("lamp", NAME, cluster.node_name, lamp) for lamp in lamps])


def test_a_restart_keeps_slices_and_answers(cluster: EmbeddedCluster) -> None:
    lamps = LampDriver()
    give(cluster, "one", "lamp-0", "lamp-2")
    with DriverProcess(Driver.of(lamps), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(NAME)
        before = cluster.wait_slices(NAME)
        first = cluster.run_pod("a", ["one"])
    assert not list(cluster.registry_dir.iterdir())

    with DriverProcess(Driver.of(lamps), settings_for(cluster)) as process:
        cluster.kubelet.restart()
        cluster.kubelet.wait_for_driver(NAME)
        again = cluster.run_pod("a", ["one"])
        cluster.wait_slices(NAME)  # which the kubelet deleted as it started
        wait(lambda: process.publisher.slices.synced)
        cluster.stop_pod("a")
    assert again.container_cdi_ids("main") == first.container_cdi_ids("main")
    assert (len(lamps.prepared), [held.name for held in lamps.undone]) == (1, ["one"])
    assert [each["spec"] for each in cluster.api.list("resourceslices")] == [each["spec"] for each in before]


def test_a_hook_that_has_changed_the_devices_lets_them_be_discovered_again(cluster: EmbeddedCluster) -> None:
    class Growing(LampDriver):
        def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
            self.count = 9
            claim.node.discover_again()
            yield from super().dra_prepare(claim)

        def dra_unprepare(self, claim: HeldClaim, node: Node) -> None:
            self.count = 8
            node.discover_again()

    def lamps() -> int:
        return sum(len(raw_slice["spec"]["devices"]) for raw_slice in cluster.api.list("resourceslices"))

    give(cluster, "one", "lamp-0")
    with DriverProcess(Driver.of(Growing()), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.wait_slices(NAME)
        assert lamps() == 8
        cluster.run_pod("a", ["one"])
        wait(lambda: lamps() == 9)
        cluster.stop_pod("a")
        wait(lambda: lamps() == 8)


def test_a_driver_that_waits_for_the_kubelet_says_so(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.kubelet.stop()
    with caplog.at_level("INFO"), DriverProcess(Driver.of(LampDriver()), settings_for(cluster)) as process:
        assert f"waiting for the kubelet, which finds the driver by {process.paths.registration}" in caplog.text


def test_slices_that_a_kubelet_deletes_come_back_with_the_registration(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Here the kubelet takes long between the two. A pod that came meanwhile would be refused, and wait 90 s."""
    monkeypatch.setattr(registration, "RESTART_SECONDS", LONG)
    with caplog.at_level("INFO"), DriverProcess(Driver.of(LampDriver()), settings_for(cluster)) as process:
        asked, restarted = Event(), process.registration.wait_for_kubelet_restart
        monkeypatch.setattr(process.registration, "wait_for_kubelet_restart", lambda: (asked.set(), restarted())[1])
        cluster.kubelet.wait_for_driver(NAME)
        before = cluster.wait_slices(NAME)
        wait(lambda: process.publisher.slices.synced)
        cluster.kubelet.stop()
        for each in before:
            cluster.api.delete("resourceslices", each["metadata"]["name"])
        assert asked.wait(LONG)
        assert cluster.api.list("resourceslices") == []
        cluster.kubelet.start()
        after = cluster.wait_slices(NAME)
        wait(lambda: process.publisher.slices.synced)
    assert [each["spec"] for each in after] == [each["spec"] for each in before]
    said = [each.getMessage() for each in caplog.records]
    published = said.index(f"pool {cluster.node_name}: the kubelet has restarted; publishing its slices again")
    assert said[:published].count(f"registered with the kubelet as {NAME}") == 2
    assert not [each for each in said if "somebody else" in each]


def test_a_quick_restart_writes_nothing(cluster: EmbeddedCluster) -> None:
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)):
        before = cluster.wait_slices(NAME)
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)) as process:
        wait(lambda: process.publisher.slices.synced)
    assert cluster.api.list("resourceslices") == before


def test_registration_needs_no_api_server(cluster: EmbeddedCluster) -> None:
    cluster.server.faults.add(FaultRule(Reject(unavailable())))
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)) as process:
        cluster.kubelet.wait_for_driver(NAME)
        assert not process.publisher.slices.synced


@pytest.mark.parametrize("serve", ["both", "common"])
def test_nothing_is_published_before_the_kubelet_knows_the_driver(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    """A pod that is bound before that is refused, and the real kubelet looks at it again 90 s later."""
    cluster.kubelet.stop()
    asked, registered = Event(), registration.Registration.wait_registered
    monkeypatch.setattr(registration.Registration, "wait_registered", lambda *of: (asked.set(), registered(*of))[1])
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster, serve=serve)) as process:
        assert asked.wait(LONG)
        assert not process.publisher.slices.synced
        assert cluster.api.list("resourceslices") == []
        cluster.kubelet.start()
        cluster.wait_slices(NAME)
        assert process.registration.registered.is_set()


def test_a_kubelet_that_does_not_call_holds_up_slices_for_a_while_only(
    cluster: EmbeddedCluster, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(publishing, "REGISTRATION_SECONDS", 0.2)
    cluster.kubelet.stop()
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)):
        cluster.wait_slices(NAME)
    assert f"the kubelet has not registered driver {NAME} within 0.2 s" in caplog.text


def test_a_process_without_registration_publishes_at_once(cluster: EmbeddedCluster) -> None:
    cluster.kubelet.stop()
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster, serve="service")):
        cluster.wait_slices(NAME)


def test_a_process_that_waits_for_the_kubelet_can_be_stopped(cluster: EmbeddedCluster) -> None:
    cluster.kubelet.stop()
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)) as process:
        pass
    assert process.publisher.slices.stop(0.0), "its thread still runs"


def test_a_claim_that_is_not_allocated_is_refused_alone(cluster: EmbeddedCluster) -> None:
    give(cluster, "good", "lamp-0")
    cluster.create_claim("bad", {"lamp": "lamp"})
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)) as process:
        cluster.kubelet.wait_for_driver(NAME)
        refs = [claim_ref(cluster, "good"), claim_ref(cluster, "bad")]
        with pytest.raises(ResponseError, match="the claim is not allocated"):
            cluster.kubelet.prepare(NAME, refs)
        assert [held.name for held in process.preparer.held()] == ["good"]


def claim_ref(cluster: EmbeddedCluster, name: str) -> ClaimRef:
    return ClaimRef("default", name, cluster.api.get("resourceclaims", name, "default")["metadata"]["uid"])


def test_without_a_registry_it_says_which_directory_is_missing(cluster: EmbeddedCluster) -> None:
    with pytest.raises(SettingsError, match="plugins_registry is not a directory"):
        DriverProcess(Driver.of(LampDriver()), settings_for(cluster, kubelet_dir=cluster.root / "elsewhere")).start()


def test_probes_and_metrics(cluster: EmbeddedCluster, web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "LOOK_SECONDS", 3600.0)  # so that a socket that is removed stays away
    read = web.read
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster, http_address=ANY_PORT)) as process:
        assert read("/healthz") == (200, "ok\n")
        cluster.kubelet.wait_for_driver(NAME)
        wait(lambda: read("/readyz") == (200, "ok\n"))
        give(cluster, "one", "lamp-0")
        cluster.run_pod("a", ["one"])
        text = read("/metrics")[1]
        assert 'dra_sdk_claims_held{driver="lamps.example.com"} 1.0' in text
        assert 'dra_sdk_call_seconds_count{call="prepare",driver="lamps.example.com",result="ok"} 1.0' in text
        assert 'dra_sdk_hook_seconds_count{driver="lamps.example.com",hook="dra_prepare",result="ok"} 1.0' in text
        assert 'dra_sdk_api_requests_total{driver="lamps.example.com",method="POST",status="201"} 1.0' in text
        process.paths.service.unlink()
        status, body = read("/healthz")
        assert status == 503
        assert "dra.sock does not answer" in body
        assert read("/elsewhere")[0] == 404


class MeasuringDriver(LampDriver):
    fails = False

    def dra_metrics(self, node: Node, held: Sequence[HeldClaim]) -> Iterator[Gauge]:
        if self.fails:
            raise OSError("injected")
        yield Gauge("lamp_taken", "Lamps that claims have", len(held), {"node": node.name})


def test_a_driver_adds_metrics_of_its_own(cluster: EmbeddedCluster, web: Web, caplog: pytest.LogCaptureFixture) -> None:
    lamps = MeasuringDriver()
    settings = settings_for(cluster, http_address=ANY_PORT)
    with DriverProcess(Driver.of(lamps), settings):
        cluster.kubelet.wait_for_driver(NAME)
        value = f'lamp_taken{{driver="lamps.example.com",node="{settings.node_name}"}} '
        assert f"# TYPE lamp_taken gauge\n{value}0.0\n" in web.read("/metrics")[1]
        give(cluster, "one", "lamp-0")
        cluster.run_pod("a", ["one"])
        assert (
            f"# HELP lamp_taken Lamps that claims have\n# TYPE lamp_taken gauge\n{value}1.0" in web.read("/metrics")[1]
        )
        lamps.fails = True
        text = web.read("/metrics")[1]
        assert "lamp_taken" not in text
        assert 'dra_sdk_claims_held{driver="lamps.example.com"} 1.0' in text
        lamps.fails = False
        assert f"{value}1.0" in web.read("/metrics")[1]
    failed = (
        "/metrics lacks what the driver measures: dra_metrics of driver lamps.example.com failed: OSError: injected"
    )
    assert failed in caplog.text


def prepare(socket: Path, ref: ClaimRef) -> ClaimsResponse:
    """As the kubelet asks for it, on a connection that does not end with the registration."""
    with closing(KubeletCalls(socket, KubeletTiming())) as calls:
        return calls.prepare([ref], timeout=LONG)


class HangingDriver(LampDriver):
    def __init__(self) -> None:
        super().__init__()
        self.hangs, self.go_on = Event(), Event()

    def dra_prepare(self, claim: Claim[LampConfig]) -> Iterator[PreparedDevice]:
        self.hangs.set()
        assert self.go_on.wait(LONG)
        yield from super().dra_prepare(claim)


def test_no_successor_is_let_in_while_a_hook_hangs(cluster: EmbeddedCluster) -> None:
    """It would undo what the hook is doing at that moment; the end of the process lets it in."""
    give(cluster, "one", "lamp-0")
    ref, lamps = claim_ref(cluster, "one"), HangingDriver()
    process = DriverProcess(Driver.of(lamps), settings_for(cluster, drain_seconds=0.0))
    successor = InstanceLock(process.data / "instance.lock")
    with ThreadPoolExecutor(1) as pool:
        with process:
            cluster.wait_slices(NAME)
            call = pool.submit(prepare, process.paths.service, ref)
            assert lamps.hangs.wait(LONG)
        with pytest.raises(SettingsError, match="another instance of this driver still works"):
            successor.acquire(0.0)
        assert process.is_busy
        lamps.go_on.set()
        assert not call.result(LONG).ok
        wait(lambda: not process.is_busy)
    process.lock.release()
    successor.acquire(0.0)
    successor.release()


def test_a_call_in_flight_outlives_the_first_process_of_a_rolling_update(cluster: EmbeddedCluster) -> None:
    """The kubelet closes its connection, and with it all calls, when the registration socket is gone."""
    give(cluster, "one", "lamp-0")
    give(cluster, "two", "lamp-1")
    ref, lamps = claim_ref(cluster, "one"), HangingDriver()
    first = DriverProcess(Driver.of(lamps), settings_for(cluster, pod_uid="a", drain_seconds=LONG))
    with ThreadPoolExecutor(2) as pool, ExitStack() as stack:
        stack.callback(first.stop)
        stack.callback(lamps.go_on.set)
        first.start()
        cluster.kubelet.wait_for_driver(NAME)
        call = pool.submit(prepare, first.paths.service, ref)
        assert lamps.hangs.wait(LONG)
        second = stack.enter_context(DriverProcess(Driver.of(LampDriver()), settings_for(cluster, pod_uid="b")))
        cluster.kubelet.wait_for_driver(NAME, instances=2)
        stopped = pool.submit(first.stop)
        assert wait_futures([stopped], timeout=0.5).not_done
        assert first.paths.registration.is_socket()
        lamps.go_on.set()
        answer = call.result(LONG).claims[ref.uid]
        assert (answer.error, [bool(each.cdi_ids) for each in answer.devices]) == ("", [True])
        stopped.result(LONG)
        cluster.run_pod("b", ["two"])
        assert sorted(held.name for held in second.preparer.held()) == ["one", "two"]


def test_a_claim_without_device_status_is_not_written(cluster: EmbeddedCluster) -> None:
    give(cluster, "one", "lamp-0")
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.run_pod("a", ["one"])
        cluster.stop_pod("a")
    assert {record.request.verb for record in cluster.server.log.records(resource="resourceclaims")} == {"get"}
