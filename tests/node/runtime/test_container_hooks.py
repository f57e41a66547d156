"""A driver process that is a plugin of a container runtime: when it connects, what it measures, and successors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from dra_sdk import Claim, ContainerEdits, DriverInfo, HeldClaim, Node, PreparedDevice
from dra_sdk.loader import Driver
from dra_sdk.node.runtime.container_hooks import nri_socket
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.node.runtime.settings import Settings
from dra_sdk.nri import Container, ContainerAdjustment, ContainerResources
from dra_sdk.testing.waiting import LONG, wait
from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from dra_sdk.tools.simulator.nri import NriRuntime, RefusedError
from dra_sdk.wire.proto import nri_v1alpha1_pb2 as pb
from tests.embedded import settings_for
from tests.lamps import NAME as LAMPS
from tests.lamps import LampDriver
from tests.testing.cores import ALL, NAME, CoreDriver


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as cluster:
        yield cluster


@pytest.fixture
def runtime(cluster: EmbeddedCluster) -> Iterator[NriRuntime]:
    with NriRuntime(settings_for(cluster).nri_socket or Path(), request_timeout=LONG) as runtime:
        yield runtime


def process(cluster: EmbeddedCluster, **changes: Any) -> DriverProcess:
    return DriverProcess(Driver.of(CoreDriver()), settings_for(cluster, **changes))


def claimed(cluster: EmbeddedCluster, name: str) -> None:
    """A pod with a claim of one CPU is about to run."""
    cluster.kubelet.wait_for_driver(NAME)
    cluster.wait_slices(NAME)
    if name == "one":
        cluster.create_class("cores")
    cluster.create_claim(name, {"core": "cores"})
    cluster.create_pod(f"{name}-pod", [name])
    cluster.schedule()
    cluster.run_pod(f"{name}-pod")


def shared_container(runtime: NriRuntime, number: int = 0) -> Callable[[], str]:
    """A container without claims: returns its CPUs."""
    runtime.run_pod(pb.PodSandbox(id=f"s{number}", name="web", uid=f"u{number}", namespace="default"))
    runtime.create_container(pb.Container(id=f"c{number}", pod_sandbox_id=f"s{number}", name="main"))
    return lambda: runtime.containers[f"c{number}"].linux.resources.cpu.cpus


def test_containers_follow_claims_that_are_prepared_and_unprepared(
    cluster: EmbeddedCluster, runtime: NriRuntime
) -> None:
    with process(cluster) as running:
        cpus = shared_container(runtime)
        assert cpus() == "0-7"
        claimed(cluster, "one")
        wait(lambda: cpus() == "1-7")
        (held,) = running.preparer.held()
        assert len(held.pods) == 1
        cluster.stop_pod("one-pod")
        wait(lambda: cpus() == "0-7")
        text = running.metrics.text().decode()
    assert f'dra_sdk_nri_connected{{driver="{NAME}"}} 1.0' in text
    assert f'dra_sdk_nri_event_seconds_count{{driver="{NAME}",event="CreateContainer",result="ok"}} 1.0' in text
    assert f'dra_sdk_nri_failed_updates_total{{driver="{NAME}"}} 0.0' in text


def test_a_process_of_the_runtime_serves_pods_and_ends_with_it(
    cluster: EmbeddedCluster, runtime: NriRuntime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NRI_PLUGIN_SOCKET", str(runtime.launch().detach()))
    monkeypatch.setenv("NRI_PLUGIN_IDX", "05")
    reasons: list[str] = []
    with DriverProcess(Driver.of(CoreDriver()), settings_for(cluster), ended=reasons.append):
        assert runtime.wait_plugins(1, LONG)
        assert runtime.plugins == [f"05-{NAME}"]
        cpus = shared_container(runtime)
        claimed(cluster, "one")
        wait(lambda: cpus() == "1-7")
        runtime.stop()
        wait(lambda: reasons)
    assert reasons == ["the container runtime has ended the connection that it started this process with"]


def test_pods_of_a_pod_group_use_the_claim_that_is_reserved_for_it(
    cluster: EmbeddedCluster, runtime: NriRuntime
) -> None:
    with process(cluster) as running:
        cluster.kubelet.wait_for_driver(NAME)
        cluster.wait_slices(NAME)
        cluster.create_class("cores")
        claim = cluster.create_claim("one", {"core": "cores"})
        cluster.allocate("one", [AllocatedDevice("core", NAME, cluster.node_name, "core-0")])
        group = {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "name": "gang", "uid": "g-1"}
        stored = cluster.api.get("resourceclaims", "one", "default")
        cluster.api.update_status("resourceclaims", {**stored, "status": {**stored["status"], "reservedFor": [group]}})
        for number, of in ((0, "gang"), (1, "gang"), (2, "other")):
            spec = {"nodeName": cluster.node_name, "containers": [{"name": "main", "image": "none"}]}
            spec |= {"schedulingGroup": {"podGroupName": of}, "resourceClaims": []}
            spec["resourceClaims"] = [{"name": "one", "resourceClaimName": "one"}]
            pod = cluster.api.create("pods", {"metadata": {"name": f"p{number}", "namespace": "default"}, "spec": spec})
            uid = pod["metadata"]["uid"]
            runtime.run_pod(pb.PodSandbox(id=f"s{number}", name=f"p{number}", uid=uid, namespace="default"))
            if of == "gang":
                cluster.kubelet.run_pod(pod)
            variable = f"DRA_CLAIM_{NAME}_{claim['metadata']['uid']}_core=one"
            container = pb.Container(id=f"c{number}", pod_sandbox_id=f"s{number}", name="main", env=[variable])
            if of == "gang":
                runtime.create_container(container)
                assert runtime.containers[container.id].linux.resources.cpu.cpus == "0"
            else:
                with pytest.raises(RefusedError, match="is not reserved for pod default/p2"):
                    runtime.create_container(container)
        (held,) = running.preparer.held()
        assert len(held.pods) == 2


class HotplugDriver(CoreDriver):
    """CPUs 6 and 7 are online once `online` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.online = Event()

    def dra_watch(self, changed: Callable[[], None], stop: Event) -> None:
        changed()
        while not stop.is_set():
            if self.online.wait(0.05):
                changed()
                stop.wait()

    def dra_create_container(
        self, container: Container, held: Sequence[HeldClaim], node: Node
    ) -> ContainerAdjustment | None:
        return None

    def dra_synchronize(
        self, containers: Sequence[Container], held: Sequence[HeldClaim]
    ) -> Mapping[str, ContainerResources]:
        online = ALL if self.online.is_set() else ALL - {6, 7}
        return {each.id: ContainerResources(cpus=online) for each in containers}


def test_containers_follow_hardware_that_is_discovered(cluster: EmbeddedCluster, runtime: NriRuntime) -> None:
    driver = HotplugDriver()
    with DriverProcess(Driver.of(driver), settings_for(cluster)):
        cpus = shared_container(runtime)
        assert cpus() == "0-5"
        driver.online.set()
        wait(lambda: cpus() == "0-7")


def test_the_driver_is_connected_before_the_kubelet_may_call(cluster: EmbeddedCluster, runtime: NriRuntime) -> None:
    with process(cluster):
        assert runtime.plugins == [f"50-{NAME}"]
    with process(cluster, nri_index=7):
        assert runtime.plugins == [f"07-{NAME}"]
    assert runtime.plugins == []


def test_without_a_socket_it_says_so_and_connects_later(
    cluster: EmbeddedCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with process(cluster) as running:
        claimed(cluster, "one")
        wait(lambda: "cannot connect to the container runtime: No such file or directory" in caplog.text)
        assert f'dra_sdk_nri_connected{{driver="{NAME}"}} 0.0' in running.metrics.text().decode()
        with NriRuntime(settings_for(cluster).nri_socket or Path(), request_timeout=LONG) as runtime:
            assert runtime.wait_plugins(1, LONG)
            assert shared_container(runtime)() == "1-7"


def test_a_successor_connects_when_its_predecessor_has_ended(cluster: EmbeddedCluster, runtime: NriRuntime) -> None:
    old, new = process(cluster, pod_uid="old"), process(cluster, pod_uid="new")
    old.start()
    assert runtime.wait_plugins(1, LONG)
    with new:
        assert len(runtime.plugins) == 1
        old.stop()
        wait(lambda: sum(each.method == "Synchronize" for each in runtime.calls) == 2)
        claimed(cluster, "one")
        assert shared_container(runtime)() == "1-7"


def test_a_driver_without_such_hooks_is_no_plugin(cluster: EmbeddedCluster, runtime: NriRuntime) -> None:
    with DriverProcess(Driver.of(LampDriver()), settings_for(cluster)) as running:
        assert running.containers is None
    assert runtime.calls == []


def test_the_socket_is_that_of_the_host_also_behind_an_absolute_link(tmp_path: Path) -> None:
    assert nri_socket(Settings(node_name="n")) == Path("/var/run/nri/nri.sock")
    (tmp_path / "run").mkdir()
    (tmp_path / "var").mkdir()
    (tmp_path / "var/run").symlink_to("/run")
    assert nri_socket(Settings(node_name="n", host_root=tmp_path)) == tmp_path / "run/nri/nri.sock"
    assert nri_socket(Settings(node_name="n", host_root=tmp_path, nri_socket=Path("/x"))) == Path("/x")


class ListedLamps(LampDriver):
    """A driver without hooks about containers that is a plugin all the same."""

    def dra_driver_info(self) -> DriverInfo:
        return replace(super().dra_driver_info(), nri=True)

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env_lists={"LAMPS": [device.name]}))


def test_variables_of_several_requests_are_joined_without_any_hook(
    cluster: EmbeddedCluster, runtime: NriRuntime
) -> None:
    with DriverProcess(Driver.of(ListedLamps()), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(LAMPS)
        cluster.wait_slices(LAMPS)
        assert runtime.wait_plugins(1, LONG)
        cluster.create_class("lamps")
        cluster.create_claim("both", {"a": "lamps", "b": "lamps"})
        uid = cluster.create_pod("pod", ["both"])["metadata"]["uid"]
        cluster.schedule()
        env = cluster.container_spec(cluster.run_pod("pod"))["process"]["env"]
        assert "LAMPS=lamp-1" in env  # by CDI alone the last request wins
        runtime.run_pod(pb.PodSandbox(id="s", name="pod", uid=uid, namespace="default"))
        container = pb.Container(id="c", pod_sandbox_id="s", name="main", env=env)
        assert "LAMPS=lamp-0,lamp-1" in runtime.create_container(container).env
