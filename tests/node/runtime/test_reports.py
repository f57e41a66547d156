"""What a driver tells beyond devices: health, metadata files, device status, logs."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event

import pytest

from dra_sdk import (
    Claim,
    Condition,
    ContainerEdits,
    Device,
    DeviceHealth,
    DeviceStatus,
    DriverInfo,
    HealthStatus,
    NetworkData,
    Node,
    PreparedDevice,
)
from dra_sdk.loader import Driver
from dra_sdk.node.audit import VARIABLE, AuditLog
from dra_sdk.node.metadata.reading import read_file
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator import AllocatedDevice, EmbeddedCluster
from tests.embedded import settings_for

NAME = "nics.example.com"


class NicDriver:
    """Two interfaces; the states that the test puts into `sick` are reported a moment later."""

    def __init__(self) -> None:
        self.sick: set[str] = set()
        self.tell = Event()

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME, metadata=True)

    def dra_discover(self, node: Node) -> Iterator[Device]:
        yield Device("nic-0", attributes={"speed": 100})
        yield Device("nic-1", attributes={"speed": 400})

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            status = DeviceStatus(
                conditions=[Condition(type="Ready", status=True, reason="LinkUp")],
                data={"firmware": "1.2"},
                network=NetworkData(interface_name="eth1", ips=["10.9.8.7/24"]),
            )
            edits = ContainerEdits(env={"NIC": device.name})
            yield device.prepared(edits, status=status, metadata={"vlan": 7})

    def dra_device_health(self, node: Node, stop: Event) -> Iterator[list[DeviceHealth]]:
        while not stop.is_set():
            yield [
                DeviceHealth(name, HealthStatus.UNHEALTHY if name in self.sick else HealthStatus.HEALTHY, "link")
                for name in ("nic-0", "nic-1")
            ]
            self.tell.wait(0.1)
            self.tell.clear()


@pytest.fixture
def cluster() -> Iterator[EmbeddedCluster]:
    with EmbeddedCluster() as running:
        running.create_class("nic")
        yield running


def give(cluster: EmbeddedCluster) -> None:
    cluster.create_claim("one", {"fast": "nic", "slow": "nic"})
    cluster.allocate(
        "one",
        [
            AllocatedDevice("fast", NAME, cluster.node_name, "nic-1"),
            AllocatedDevice("slow", NAME, cluster.node_name, "nic-0"),
        ],
    )


def test_each_request_has_its_metadata_file(cluster: EmbeddedCluster) -> None:
    give(cluster)
    with DriverProcess(Driver.of(NicDriver()), settings_for(cluster)) as process:
        cluster.kubelet.wait_for_driver(NAME)
        pod = cluster.run_pod("a", ["one"], containers={"main": ["one/fast"]})
        (mount,) = cluster.container_spec(pod)["mounts"]
        assert mount["destination"].endswith(f"/resourceclaims/one/fast/{NAME}-metadata.json")
        document = read_file(Path(mount["source"]))
        (request,) = document.requests
        (device,) = request.devices
        assert (request.name, device.name) == ("fast", "nic-1")
        assert {key: attribute.int_value for key, attribute in device.attributes.items()} == {"speed": 400, "vlan": 7}
        assert not cluster.kubelet.records.findings
        Path(mount["source"]).unlink()
        cluster.kubelet.restart()
        cluster.kubelet.wait_for_driver(NAME)
        cluster.run_pod("a", ["one"])
        assert Path(mount["source"]).exists()
        cluster.stop_pod("a")
        assert not list(process.data.glob("dra-device-metadata/*"))


def test_device_status_is_ours_alone_and_goes_with_the_claim(cluster: EmbeddedCluster) -> None:
    give(cluster)
    cluster.store.admit.clear()  # else there would have to be another driver, with an allocated device
    other = {"driver": "other.example.com", "pool": "p", "device": "d", "data": {"theirs": True}}
    claim = cluster.api.get("resourceclaims", "one", "default")
    cluster.api.update_status("resourceclaims", {**claim, "status": {**claim["status"], "devices": [other]}})

    def devices() -> list[dict[str, object]]:
        return list(cluster.api.get("resourceclaims", "one", "default")["status"].get("devices", []))

    with DriverProcess(Driver.of(NicDriver()), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.run_pod("a", ["one"])
        wait(lambda: len(devices()) == 3)
        (ours,) = [each for each in devices() if each["device"] == "nic-1"]
        assert ours["data"] == {"firmware": "1.2"}
        assert ours["networkData"] == {"interfaceName": "eth1", "ips": ["10.9.8.7/24"]}
        cluster.stop_pod("a")
        wait(lambda: devices() == [other])


def test_health_reaches_the_kubelet_and_the_slices(cluster: EmbeddedCluster) -> None:
    nics = NicDriver()
    with DriverProcess(Driver.of(nics), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.wait_slices(NAME)
        assert cluster.kubelet.wait_for_health(NAME, cluster.node_name, "nic-0", "Healthy")
        nics.sick.add("nic-0")
        nics.tell.set()
        assert cluster.kubelet.wait_for_health(NAME, cluster.node_name, "nic-0", "Unhealthy")

        def taints() -> list[str]:
            (published,) = cluster.api.list("resourceslices")
            return [taint["key"] for device in published["spec"]["devices"] for taint in device.get("taints", [])]

        wait(lambda: taints() == [f"{NAME}/unhealthy"])
        nics.sick.clear()
        nics.tell.set()
        assert cluster.kubelet.wait_for_health(NAME, cluster.node_name, "nic-0", "Healthy")
        wait(lambda: taints() == [])


def test_the_audit_log_records_what_was_prepared_and_given_back(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    give(cluster)
    path = tmp_path / "audit.jsonl"
    with DriverProcess(Driver.of(NicDriver(), [AuditLog({VARIABLE: str(path)})]), settings_for(cluster)):
        cluster.kubelet.wait_for_driver(NAME)
        cluster.run_pod("a", ["one"])
        cluster.stop_pod("a")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    assert [(line["event"], line["request"]) for line in lines] == [
        ("prepared", "fast"),
        ("prepared", "slow"),
        ("unprepared", "fast"),
        ("unprepared", "slow"),
    ]


def test_an_operators_file_adds_to_what_is_published(cluster: EmbeddedCluster, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(
        "apiVersion: dra-sdk.dev/v1alpha1\n"
        "kind: DeviceOverlay\n"
        "rules:\n"
        f'  - match: device.attributes["{NAME}"].speed > 200\n'
        "    attributes: {topology.example.com/rail: 1}\n"
        "    taints: [{key: site.example.com/maintenance, effect: NoSchedule}]\n"
    )
    with DriverProcess(Driver.of(NicDriver()), settings_for(cluster, overlay_file=overlay)):
        (published,) = cluster.wait_slices(NAME)
    slow, fast = published["spec"]["devices"]
    assert "topology.example.com/rail" not in slow["attributes"]
    assert fast["attributes"]["topology.example.com/rail"] == {"int": 1}
    assert [taint["key"] for taint in fast["taints"]] == ["site.example.com/maintenance"]
