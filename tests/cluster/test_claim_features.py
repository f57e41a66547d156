"""Optional features of claims on the real control plane: overlay, metadata, device status, binding conditions."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.deployed import NAMESPACE, account, install
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, device_class, pod_with, request, where
from tests.cluster.pods import allocated, logs, read_pod, wait_unschedulable
from tests.cluster.port_driver import ATTACHED, BROKEN, NAME

JSON = dict[str, Any]
DRIVER = "tests.cluster.port_driver:PortDriver"
METADATA = "cat /var/run/kubernetes.io/dra-device-attributes/*/*/*/*.json; echo; echo done; sleep 3600"
OVERLAY = """\
apiVersion: dra-sdk.dev/v1alpha1
kind: DeviceOverlay
rules:
  - match: device.attributes["ports.example.com"].kind == "port" && device.attributes["ports.example.com"].number == 1
    attributes: {topology.example.com/rail: 4}
"""


@pytest.fixture(autouse=True)
def classes(cluster: Cluster) -> None:
    kind = f'device.attributes["{NAME}"].kind'
    for name in ("port", "fabric"):
        cluster.apply(device_class(name, NAME, f'{kind} == "{name}"'))


@pytest.fixture
def ports(drivers: Drivers) -> DriverUnderTest:
    return drivers.start(DRIVER, NAME)


@pytest.fixture
def status_role(cluster: Cluster, ports: DriverUnderTest) -> Iterator[None]:
    """The permission to write the status of claims, for this driver only."""
    install(cluster, NAME, deviceStatus=True)
    yield
    install(cluster, NAME)


def read_claim(cluster: Cluster, name: str) -> JSON:
    return dict(cluster.api.get(f"/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/{name}"))


def device_statuses(cluster: Cluster, name: str) -> dict[str, JSON]:
    return {each["device"]: each for each in read_claim(cluster, name)["status"].get("devices", [])}


def test_an_attribute_of_an_overlay_is_selected_by_cel(cluster: Cluster, drivers: Drivers, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(OVERLAY)
    driver = drivers.start(DRIVER, NAME, "--overlay-file", str(overlay))
    assert driver.published("port-1")["attributes"]["topology.example.com/rail"] == {"int": 4}
    assert "topology.example.com/rail" not in driver.published("port-0")["attributes"]
    rail = 'device.attributes["topology.example.com"].?rail.orValue(0) == 4'
    one, other = (claim(name, [request("r", "port", **where(rail))]) for name in ("railed", "railed-too"))
    cluster.apply(one, pod_with("railed", one))
    cluster.wait_pod("railed")
    assert [each["device"] for each in allocated(cluster, "railed")] == ["port-1"]
    cluster.apply(other, pod_with("railed-too", other))
    wait_unschedulable(cluster, "railed-too")  # no other port is on this rail


def test_a_container_reads_the_metadata_of_its_device(cluster: Cluster, ports: DriverUnderTest) -> None:
    one = claim("described", [request("r", "port")])
    cluster.apply(one, pod_with("described", one, command=METADATA))
    cluster.wait_pod("described")
    (device,) = allocated(cluster, "described")
    found, _ = json.JSONDecoder().raw_decode(logs(cluster, "described"))  # one document for each version of the API
    (described,) = found["requests"]
    assert described["name"] == "r"
    (attributes,) = [each["attributes"] for each in described["devices"] if each["name"] == device["device"]]
    assert attributes["driverVersion"] == {"string": "1.2.3"}
    assert attributes["vlan"] == {"int": 7}
    assert found["metadata"]["uid"] == read_claim(cluster, "described")["metadata"]["uid"]


@pytest.mark.usefixtures("status_role")
def test_a_driver_writes_the_status_of_its_devices_with_its_own_account(
    cluster: Cluster, ports: DriverUnderTest
) -> None:
    one = claim("reported", [request("r", "port", count=2)])
    cluster.apply(one, pod_with("reported", one))
    cluster.wait_pod("reported")
    cluster.wait_until(lambda: len(device_statuses(cluster, "reported")) == 2, "the status of both devices")
    found = device_statuses(cluster, "reported")
    assert set(found) == {"port-0", "port-1"}
    for number, name in enumerate(sorted(found)):
        status = found[name]
        assert (status["driver"], status["pool"]) == (NAME, cluster.node_name)
        assert status["networkData"] == {
            "interfaceName": f"net{number}",
            "hardwareAddress": "02:00:00:00:00:01",
            "ips": ["192.0.2.7/24"],
        }
        assert status["data"] == {"vlan": 7}
        (ready,) = status["conditions"]
        assert (ready["type"], ready["status"], ready["reason"]) == ("Ready", "True", "Configured")
    owners = {each["manager"] for each in read_claim(cluster, "reported")["metadata"]["managedFields"]}
    assert any(NAME in owner for owner in owners), owners


def test_without_the_permission_the_pod_runs_and_the_log_names_it(cluster: Cluster, ports: DriverUnderTest) -> None:
    one = claim("unreported", [request("r", "port")])
    cluster.apply(one, pod_with("unreported", one))
    cluster.wait_pod("unreported")
    ports.wait(lambda: "resourceclaims/status" in ports.log_text())
    assert device_statuses(cluster, "unreported") == {}


@pytest.mark.usefixtures("status_role")
@pytest.mark.kubernetes(since=36, because="older servers ask for resourceclaims/status only")
def test_the_status_needs_the_permission_for_the_driver_besides(cluster: Cluster, ports: DriverUnderTest) -> None:
    role = json.loads(cluster.kubectl("get", "clusterrole", account(NAME), "-o", "json"))
    (found,) = (each for each in role["rules"] if each["resources"] == ["resourceclaims/driver"])
    (verb,) = found["verbs"]
    user = f"--as=system:serviceaccount:{NAMESPACE}:{account(NAME)}"
    asked = ("auth", "can-i", verb, f"resourceclaims.resource.k8s.io/{NAME}", "--subresource=driver", user)
    cluster.wait_until(lambda: cluster.kubectl(*asked, check=False).split()[:1] == ["yes"], "the role is in force")
    role["rules"].remove(found)
    cluster.kubectl("replace", "-f", "-", input=json.dumps(role))
    cluster.wait_until(lambda: cluster.kubectl(*asked, check=False).split()[:1] == ["no"], "the role has changed")
    one = claim("unreported", [request("r", "port")])
    cluster.apply(one, pod_with("unreported", one))
    cluster.wait_pod("unreported")
    ports.wait(lambda: verb in ports.log_text())
    assert device_statuses(cluster, "unreported") == {}


def set_condition(cluster: Cluster, name: str, device: str, condition: str) -> None:
    """Say as the fabric's controller that a condition of a device has come true."""
    entry = {
        "driver": NAME,
        "pool": cluster.node_name,
        "device": device,
        "conditions": [
            {
                "type": condition,
                "status": "True",
                "reason": "Fabric",
                "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }
        ],
    }
    head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": name}}
    applied = json.dumps({**head, "status": {"devices": [entry]}})
    cluster.kubectl(
        "apply", "--server-side", "--subresource=status", "--field-manager=fabric", "-f", "-", input=applied
    )


def test_a_pod_waits_until_its_device_is_attached(cluster: Cluster, ports: DriverUnderTest) -> None:
    one = claim("attached", [request("r", "fabric")])
    cluster.apply(one, pod_with("attached", one))
    (device,) = allocated(cluster, "attached")
    assert device["bindingConditions"] == [ATTACHED]
    assert read_pod(cluster, "attached")["spec"].get("nodeName") is None
    assert ports.answered("prepare") == 0
    attached = datetime.now(UTC).replace(microsecond=0)
    set_condition(cluster, "attached", device["device"], ATTACHED)
    cluster.wait_pod("attached")
    (bound,) = [
        each for each in read_pod(cluster, "attached")["status"]["conditions"] if each["type"] == "PodScheduled"
    ]
    assert datetime.fromisoformat(bound["lastTransitionTime"]) >= attached
    assert ports.answered("prepare") == 1


def test_a_pod_gets_another_device_if_its_own_cannot_be_attached(cluster: Cluster, ports: DriverUnderTest) -> None:
    one = claim("moved", [request("r", "fabric")])
    cluster.apply(one, pod_with("moved", one))
    (first,) = allocated(cluster, "moved")
    set_condition(cluster, "moved", first["device"], BROKEN)

    def again() -> list[JSON]:
        status = read_claim(cluster, "moved").get("status", {})
        found: list[JSON] = status.get("allocation", {}).get("devices", {}).get("results", [])
        return found if found and "devices" not in status else []

    (second,) = cluster.wait_until(again, "the claim is allocated again")
    set_condition(cluster, "moved", second["device"], ATTACHED)
    cluster.wait_pod("moved")
    assert ports.answered("prepare") == 1
