"""Optional features of claims on the real control plane: overlay, metadata, device status, binding conditions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from dra_sdk.node.metadata.document import VERSIONS
from tests.cluster.deployed import NAMESPACE, account, install, kubeconfig
from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import claim, container, device_class, pod_with, request, template, where
from tests.cluster.pods import allocated, apply_taint_rule, claim_of, insist, logs, read_pod, wait_unschedulable
from tests.cluster.port_driver import ATTACHED, BROKEN, NAME

JSON = dict[str, Any]
DRIVER = "tests.cluster.port_driver:PortDriver"
METADATA = "/var/run/kubernetes.io/dra-device-attributes"
THEN = "echo done; sleep 3600"
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


def environment(cluster: Cluster, name: str) -> list[str]:
    """Returns the variables of a pod's only container, which runs SHOW."""
    return logs(cluster, name).partition("\n")[0].split("\0")


def device_statuses(cluster: Cluster, name: str) -> dict[str, JSON]:
    return {each["device"]: each for each in read_claim(cluster, name)["status"].get("devices", [])}


def test_an_attribute_of_an_overlay_decides_which_device_a_pod_gets(
    cluster: Cluster, drivers: Drivers, tmp_path: Path
) -> None:
    driver = drivers.start(DRIVER, NAME)
    rail = 'device.attributes["topology.example.com"].?rail.orValue(0) == 4'
    one, other = (claim(name, [request("r", "port", **where(rail))]) for name in ("railed", "railed-too"))
    cluster.apply(one, pod_with("railed", one))
    wait_unschedulable(cluster, "railed")  # no port is on this rail without the overlay
    assert driver.stop() == 0
    overlay = tmp_path / "overlay.yaml"
    overlay.write_text(OVERLAY)
    driver.start("--overlay-file", str(overlay))
    driver.wait(driver.ready)
    insist(cluster, "railed")
    assert driver.published("port-1")["attributes"]["topology.example.com/rail"] == {"int": 4}
    assert "topology.example.com/rail" not in driver.published("port-0")["attributes"]
    assert [each["device"] for each in allocated(cluster, "railed")] == ["port-1"]
    assert "PORT=port-1" in environment(cluster, "railed")
    cluster.apply(other, pod_with("railed-too", other))
    wait_unschedulable(cluster, "railed-too")  # no other port is on this rail


@pytest.mark.parametrize(("make", "kind"), [(claim, "resourceclaims"), (template, "resourceclaimtemplates")])
def test_a_container_reads_the_metadata_of_its_device(
    cluster: Cluster, ports: DriverUnderTest, make: Callable[..., JSON], kind: str
) -> None:
    one = make("described", [request("r", "port")])
    name = "described" if kind == "resourceclaims" else "use-0"  # of a claim that a pod calls use-0
    path = f"{METADATA}/{kind}/{name}/r/{NAME}-metadata.json"
    described = pod_with(
        "described", one, command=f"{{ cat {path}; echo x >>{path} && echo changed; }} 2>/dev/null; {THEN}"
    )
    described["spec"]["containers"].append(container("stranger", command=f"ls {METADATA} 2>/dev/null; {THEN}"))
    cluster.apply(one, described)
    cluster.wait_pod("described")
    made = claim_of(cluster, "described")
    (device,) = allocated(cluster, made)
    *documents, last = logs(cluster, "described").splitlines()
    assert last == "done"
    assert "changed" not in documents, "the file is not read-only"
    assert logs(cluster, "described", "stranger") == "done\n"  # a container without the claim has no such directory

    newest, *older = map(json.loads, documents)  # one document for each version of the format
    assert [each.pop("apiVersion") for each in (newest, *older)] == list(VERSIONS)
    assert older == [newest]
    stored = read_claim(cluster, made)["metadata"]
    assert [newest["metadata"][each] for each in ("name", "namespace", "uid")] == [made, "default", stored["uid"]]
    assert newest.get("podClaimName") == (name if make is template else None)
    (asked,) = newest["requests"]
    assert asked["name"] == "r"
    (found,) = asked["devices"]
    assert (found["driver"], found["pool"], found["name"]) == (NAME, cluster.node_name, device["device"])
    assert found["attributes"] == {**ports.published(device["device"])["attributes"], "vlan": {"int": 7}}
    assert found["networkData"]["ips"] == ["192.0.2.7/24"]


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
    """Says with the driver's account that a condition of a device has come true."""
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
    who = ("--kubeconfig", str(kubeconfig(cluster, NAME)), "--field-manager=fabric", "--validate=false")
    cluster.kubectl("apply", "--server-side", "--subresource=status", *who, "-f", "-", input=applied)


def assert_waits(cluster: Cluster, ports: DriverUnderTest, name: str) -> JSON:
    """Asserts that a pod waits for its device after the scheduler has chosen that; returns the device.

    A pod that comes later is scheduled, prepared and running by then.
    """
    (device,) = allocated(cluster, name)
    later = claim(f"later-than-{name}", [request("r", "port")])
    cluster.apply(later, pod_with(f"later-than-{name}", later))
    cluster.wait_pod(f"later-than-{name}")
    waiting = read_pod(cluster, name)
    assert waiting["status"]["phase"] == "Pending"
    assert waiting["spec"].get("nodeName") is None
    assert [each["name"] for each in read_claim(cluster, name)["status"]["reservedFor"]] == [name]
    assert ports.answered("prepare") == 1, "the kubelet has asked for the later pod only"
    assert device["bindingConditions"] == [ATTACHED]
    assert device["bindingFailureConditions"] == [BROKEN]
    return dict(device)


@pytest.mark.usefixtures("status_role")
def test_a_pod_waits_until_its_device_is_attached(cluster: Cluster, ports: DriverUnderTest) -> None:
    one = claim("attached", [request("r", "fabric")])
    cluster.apply(one, pod_with("attached", one))
    device = assert_waits(cluster, ports, "attached")
    set_condition(cluster, "attached", device["device"], ATTACHED)
    cluster.wait_pod("attached")
    assert ports.answered("prepare") == 2
    assert f"PORT={device['device']}" in environment(cluster, "attached")


@pytest.fixture
def broken(cluster: Cluster) -> Iterator[Callable[[str], None]]:
    """Keeps pods away from a device that is broken; the rule is deleted after the test."""
    taint = {"key": "ports.example.com/broken", "effect": "NoSchedule"}
    yield lambda device: apply_taint_rule(cluster, "broken", NAME, device, taint)
    cluster.kubectl("delete", "devicetaintrules", "--all")


@pytest.mark.usefixtures("status_role")
def test_a_pod_gets_another_device_if_its_own_cannot_be_attached(
    cluster: Cluster, ports: DriverUnderTest, broken: Callable[[str], None]
) -> None:
    one = claim("moved", [request("r", "fabric")])
    cluster.apply(one, pod_with("moved", one))
    first = assert_waits(cluster, ports, "moved")
    broken(first["device"])
    set_condition(cluster, "moved", first["device"], BROKEN)

    def again() -> JSON | None:
        (device,) = allocated(cluster, "moved")
        return None if device["device"] == first["device"] else dict(device)

    second = cluster.wait_until(again, "the scheduler chooses another device")
    assert {first["device"], second["device"]} == {"fabric-0", "fabric-1"}
    assert read_pod(cluster, "moved")["spec"].get("nodeName") is None
    set_condition(cluster, "moved", second["device"], ATTACHED)
    cluster.wait_pod("moved")
    assert ports.answered("prepare") == 2
    assert f"PORT={second['device']}" in environment(cluster, "moved")
