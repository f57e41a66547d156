from __future__ import annotations

import json
import socket
import ssl
import tempfile
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest
import yaml

from dra_sdk.testing.waiting import LONG
from dra_sdk.tools.simulator import AllocatedDevice, ClaimRef, EmbeddedCluster, KubeletTiming, NotScheduledError
from dra_sdk.tools.simulator.kubelet.records import AnsweredDevice, PodClaimError
from dra_sdk.tools.simulator.statuses import StatusError
from tests.tools.simulator.fakes import Answer, FakeDriver

DRIVER = "gpu.example.com"
FAST = KubeletTiming(poll=0.02)


def test_a_pod_gets_the_devices_of_its_claim() -> None:
    with EmbeddedCluster(timing=FAST) as cluster, FakeDriver(cluster.kubelet.kubelet_dir) as driver:
        cluster.kubelet.wait_for_driver(DRIVER)
        cluster.create_class("gpu", ["device.driver == 'gpu.example.com'"])
        cluster.create_claim("claim-1", {"one": "gpu", "two": "gpu"})
        cluster.allocate(
            "claim-1",
            [AllocatedDevice("one", DRIVER, "node-1", "gpu-0"), AllocatedDevice("two", DRIVER, "node-1", "gpu-1")],
        )

        def prepare(claims: list[ClaimRef]) -> Answer:
            devices: list[dict[str, Any]] = []
            answer: list[AnsweredDevice] = []
            for index, request in enumerate(("one", "two")):
                name = f"{claims[0].uid}-gpu-{index}"
                devices.append({"name": name, "containerEdits": {"env": [f"GPU_{index}=yes"]}})
                cdi_id = f"{DRIVER}/claim={name}"
                answer.append(AnsweredDevice(DRIVER, "node-1", f"gpu-{index}", (request,), (cdi_id,)))
            spec = {"cdiVersion": "0.5.0", "kind": f"{DRIVER}/claim", "devices": devices}
            (cluster.cdi_dir / "gpu.json").write_text(json.dumps(spec))
            return {claims[0].uid: list(answer)}

        driver.on_prepare = prepare
        containers = {"main": ["claim-1/one"], "side": ["claim-1/two"], "all": ["claim-1"], "none": []}
        pod = cluster.run_pod("pod-1", ["claim-1"], containers=containers)
        env = {name: cluster.container_spec(pod, name).get("process", {}).get("env", []) for name in containers}
        assert env == {"main": ["GPU_0=yes"], "side": ["GPU_1=yes"], "all": ["GPU_0=yes", "GPU_1=yes"], "none": []}
        assert cluster.kubelet.records.findings == []
        cluster.stop_pod("pod-1")
        assert len(driver.unprepared) == 1
        assert set(cluster.api.get("resourceclaims", "claim-1", "default")["status"]) == {"allocation"}
        assert cluster.api.list("pods") == []


def test_stop_leaves_nothing_behind() -> None:
    threads = set(threading.enumerate())
    with EmbeddedCluster() as cluster:
        root, port = cluster.root, cluster.server.port
        assert root.is_dir()
    cluster.stop()
    assert not root.exists()
    assert set(threading.enumerate()) <= threads
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.1", port))


def test_a_directory_of_the_caller_stays(tmp_path: Path) -> None:
    with EmbeddedCluster(directory=tmp_path / "c") as cluster:
        for directory in (cluster.plugins_dir, cluster.registry_dir, cluster.cdi_dir, cluster.static_cdi_dir):
            assert directory.is_dir()
            assert directory.is_relative_to(tmp_path)
    assert (tmp_path / "c").is_dir()


def test_it_starts_again_with_the_same_objects(tmp_path: Path) -> None:
    cluster = EmbeddedCluster(directory=tmp_path)
    with cluster:
        uid = cluster.node["metadata"]["uid"]
    with cluster:
        assert cluster.node["metadata"]["uid"] == uid


def test_a_long_temporary_directory_is_avoided(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    long = tmp_path / ("x" * 60)
    long.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(long))
    with EmbeddedCluster() as cluster:
        assert len(str(cluster.root)) <= 40
    assert list(long.iterdir()) == []


def test_a_start_that_fails_leaves_nothing_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = EmbeddedCluster()
    (cluster.root / "kubelet").mkdir()
    (cluster.root / "kubelet" / "dra_manager_state").write_text("damaged")
    with pytest.raises(Exception, match="dra_manager_state"):
        cluster.start()
    assert not cluster.root.exists()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("apiserver")]


def test_the_kubeconfig_leads_to_the_api_server() -> None:
    with EmbeddedCluster(tls=True, token="secret") as cluster:
        config = yaml.safe_load(cluster.kubeconfig.read_text())
        target = config["clusters"][0]["cluster"]
        request = urllib.request.Request(f"{target['server']}/api/v1/nodes/node-1")
        request.add_header("Authorization", f"Bearer {config['users'][0]['user']['token']}")
        context = ssl.create_default_context(cafile=target["certificate-authority"])
        with urllib.request.urlopen(request, context=context, timeout=LONG) as response:
            assert json.load(response) == cluster.node


def test_an_allocation_is_written_with_the_configuration_of_the_class() -> None:
    with EmbeddedCluster() as cluster:
        opaque = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
        cluster.create_class("gpu", ["true"], [opaque])
        cluster.create_claim("claim-1", {"a": "gpu"})
        written = cluster.allocate("claim-1", [AllocatedDevice("a", DRIVER, "node-1", "d0")], node="node-2")
    devices = written["status"]["allocation"]["devices"]
    assert devices["config"] == [{"source": "FromClass", "requests": ["a"], **opaque}]
    assert '"node-2"' in json.dumps(written["status"]["allocation"]["nodeSelector"])


def test_deallocating_and_unallocated_claims() -> None:
    with EmbeddedCluster() as cluster:
        cluster.create_claim("claim-1", {"a": "gpu"})
        cluster.allocate("claim-1", [AllocatedDevice("a", DRIVER, "node-1", "d0")])
        assert not cluster.deallocate("claim-1").get("status")
        with pytest.raises(NotScheduledError, match="gpu"):
            cluster.run_pod("pod-1", ["claim-1"])
        # The pod is there, so that running it again is a retry.
        with pytest.raises(NotScheduledError, match="gpu"):
            cluster.run_pod("pod-1")
        with pytest.raises(PodClaimError, match="not allowed to use"):
            cluster.kubelet.run_pod(cluster.api.get("pods", "pod-1", "default"))
        with pytest.raises(StatusError, match="not found"):
            cluster.run_pod("pod-2", ["other"])


def test_waiting_for_slices() -> None:
    with EmbeddedCluster() as cluster:
        with pytest.raises(TimeoutError, match="0 ResourceSlices"):
            cluster.wait_slices(DRIVER, timeout=0.05)
        pool = {"name": "p", "resourceSliceCount": 1}
        body = {"metadata": {"name": "s"}, "spec": {"driver": DRIVER, "nodeName": "node-1", "pool": pool}}
        later = threading.Timer(0.05, lambda: cluster.api.create("resourceslices", body))
        later.start()
        (published,) = cluster.wait_slices(DRIVER)
        later.join()
        assert published["metadata"]["name"] == "s"
