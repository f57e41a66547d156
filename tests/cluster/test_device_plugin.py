"""The device plugin bridge on a real kubelet: pods by claim and by extended resource, restarts, health, the way there
and back.

The device plugin is a program of ours. Where a kubelet is its other side, that is the real one.
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import yaml

from dra_sdk.cli.main import main
from tests.cluster.deployed import python_directories
from tests.cluster.driver_process import ROOT, DriverUnderTest
from tests.cluster.drivers import Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.harness.processes import MARK
from tests.cluster.manifests import JSON, container, pod, pod_with, request, template
from tests.cluster.pods import claim_of, device_health, logs, read_pod, started_at
from tests.cluster.thing_plugin import IDS, LABEL, daemonset

DRIVER, RESOURCE, CLASS = "plugin.dra.dev", "vendor.com/thing", "thing.vendor.com"
SHOW = "echo THINGS=$THINGS; echo $(ls /dev | grep thing); echo done; trap 'exit 0' TERM; sleep 3600 & wait"
KUBELETS = Path("/var/lib/kubelet/device-plugins")
"""The kubelet's directory for device plugins, which is built into it."""
PLUGIN = [sys.executable, "-m", "tests.cluster.thing_plugin"]
FORGET_SECONDS = 3.0
pytestmark = pytest.mark.kubernetes(since=36, because="extended resources of DRA are on by default since 1.36")


def by_claim(name: str) -> tuple[JSON, JSON]:
    one = template("one-thing", [request("thing", CLASS)])
    return one, pod_with(name, one, command=SHOW)


def by_resource(name: str) -> JSON:
    main = container("main", command=SHOW)
    return pod(name, [], {**main, "resources": {"limits": {RESOURCE: "1"}}})


def things(cluster: Cluster, name: str) -> str:
    """Returns the device that a pod's container has: it is in its environment and in its /dev."""
    variable, devices, _ = logs(cluster, name).splitlines()
    assert variable == f"THINGS={devices}"
    return devices


def claim_for_resource(cluster: Cluster, name: str) -> str | None:
    """Returns the claim that kube-scheduler made for the extended resources of a pod; None without one."""
    status = read_pod(cluster, name)["status"].get("extendedResourceClaimStatus") or {}
    return status.get("resourceClaimName")


def published(bridge: DriverUnderTest) -> list[str]:
    """Returns the ids of the devices in the bridge's slices."""
    devices = [each for piece in bridge.slices() for each in piece["spec"].get("devices", [])]
    return sorted(each["attributes"]["id"]["string"] for each in devices)


def allocatable(cluster: Cluster) -> str:
    """Returns how many things the kubelet offers, "" for nothing."""
    node = cluster.api.get(f"/api/v1/nodes/{cluster.node_name}")
    return str(node["status"]["allocatable"].get(RESOURCE, ""))


class Plugin:
    """The plugin as a process beside the bridge."""

    def __init__(self, cluster: Cluster, directory: Path, folder: Path) -> None:
        self._command = [*PLUGIN, str(directory), str(folder / "health.json")]
        self._environment = {**os.environ, "PYTHONPATH": str(ROOT), MARK: cluster.name}
        self._health = folder / "health.json"
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(self._command, cwd=ROOT, env=self._environment)

    def report(self, **health: str) -> None:
        """Makes it report the health of devices; the others are healthy."""
        fresh = self._health.with_suffix(".new")
        fresh.write_text(json.dumps(health))
        fresh.replace(self._health)

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        self._process.send_signal(number)
        self._process.wait()


@pytest.fixture
def directory(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The bridge's directory; a short path, as sockets need."""
    with TemporaryDirectory(prefix="dra-") as found:
        monkeypatch.setenv("DRA_PLUGIN_DIRECTORY", found)
        yield Path(found)


@pytest.fixture
def bridge(
    cluster: Cluster, directory: Path, drivers: Drivers, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> DriverUnderTest:
    """The bridge, with the DeviceClass of `dra-sdk manifests` for the resource. It ends before the directory."""
    monkeypatch.setenv("DRA_PLUGIN_AWAY_SECONDS", "2")
    monkeypatch.setenv("DRA_PLUGIN_FORGET_SECONDS", str(FORGET_SECONDS))
    release_things(cluster)  # what kubelets of earlier clusters wrote into the directory that all of them share
    assert main(["manifests", "device-plugin", "--resource", RESOURCE]) == 0
    documents = [each for each in capsys.readouterr().out.split("\n---\n") if "\nkind: DeviceClass\n" in each]
    cluster.apply(*documents)
    return drivers.start("device-plugin", DRIVER)


@pytest.fixture
def plugin(cluster: Cluster, bridge: DriverUnderTest, directory: Path, tmp_path: Path) -> Iterator[Plugin]:
    found = Plugin(cluster, directory, tmp_path)
    bridge.wait(lambda: published(bridge) == list(IDS))
    yield found
    cluster.kubectl("delete", "pods", "--all", "--wait=true")  # while the plugin answers
    found.end()


@pytest.mark.core
def test_pods_by_claim_and_by_resource_have_devices_through_restarts(
    cluster: Cluster, bridge: DriverUnderTest, plugin: Plugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.apply(*by_claim("claims"), by_resource("names"))
    for name in ("claims", "names"):
        cluster.wait_pod(name)
    assert sorted(things(cluster, name) for name in ("claims", "names")) == list(IDS)
    assert claim_for_resource(cluster, "names")
    assert len(bridge.held()) == 2

    before, since = bridge.slices(), {name: started_at(cluster, name) for name in ("claims", "names")}
    assert bridge.stop() == 0
    bridge.start()
    bridge.wait(bridge.registrations)
    bridge.assert_kept(before)
    monkeypatch.undo()
    plugin.end(signal.SIGKILL)
    plugin.start()
    bridge.wait(lambda: "is away" in bridge.log_since_start() or "replaces" in bridge.log_since_start())
    bridge.wait(lambda: bridge.log_since_start().count("has 2 devices") >= 2)
    assert {name: started_at(cluster, name) for name in since} == since

    cluster.kubectl("delete", "pod", "claims", "--wait=true")
    cluster.apply(by_resource("more"))
    cluster.wait_pod("more")
    assert sorted(things(cluster, name) for name in ("more", "names")) == list(IDS)


def test_the_health_that_the_plugin_reports_is_in_the_pods_status(
    cluster: Cluster, bridge: DriverUnderTest, plugin: Plugin
) -> None:
    cluster.apply(*by_claim("claims"))
    cluster.wait_pod("claims")
    device = things(cluster, "claims")
    assert claim_of(cluster, "claims")

    def reported(*expected: tuple[str, str]) -> None:
        cluster.wait_until(lambda: device_health(cluster, "claims") == list(expected), f"health {expected}")

    reported(("Healthy", ""))
    plugin.report(**{device: "on fire"})
    reported(("Unhealthy", f"device plugin thing.sock of {RESOURCE} reports 'on fire'"))
    (taken,) = (each for each in IDS if each != device)
    assert published(bridge) == list(IDS)
    cluster.apply(by_resource("names"))
    cluster.wait_pod("names")
    assert things(cluster, "names") == taken
    plugin.report()
    reported(("Healthy", ""))


@pytest.fixture
def kubelets_plugin(cluster: Cluster, bridge: DriverUnderTest, directory: Path) -> Iterator[None]:
    """Has the DaemonSets of both sides, as step 2 of the README says; removes them after the test."""
    mounts = python_directories()
    missing = {"key": LABEL, "operator": "DoesNotExist"}
    labelled = {"key": LABEL, "operator": "In", "values": ["true"]}
    made = {"thing-plugin": (KUBELETS, missing), "thing-plugin-bridge": (directory, labelled)}
    cluster.apply(*(daemonset(name, where, rule, PLUGIN, mounts) for name, (where, rule) in made.items()))
    yield
    cluster.kubectl("uncordon", cluster.node_name)
    cluster.kubectl("label", "node", cluster.node_name, f"{LABEL}-")
    cluster.kubectl("delete", "daemonset,pod", "--all", "--wait=true")


def release_things(cluster: Cluster) -> None:
    """Runs the README's pod on the node that makes the kubelet release the devices of pods that have ended.

    The kubelet admits it for five minutes after the plugin's end, and refuses it later; it has the same effect.
    """
    page = (ROOT / "drivers/plugin/README.md").read_text()
    (shown,) = (each for each in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) if "release-things" in each)
    made = yaml.safe_load(shown)
    made["spec"]["nodeName"] = cluster.node_name
    made["spec"]["containers"][0]["image"] = container("main")["image"]
    cluster.apply(made)
    name = made["metadata"]["name"]
    ended = {"Succeeded", "Failed"}
    cluster.wait_until(lambda: read_pod(cluster, name)["status"].get("phase") in ended, f"pod {name} has ended")
    cluster.kubectl("delete", "pod", name, "--wait=true")


def have_kubelets_socket(cluster: Cluster) -> bool:
    """Returns whether this cluster's kubelet offers things; restarts it if another kubelet has taken its socket."""
    with socket.socket(socket.AF_UNIX) as client:
        try:
            client.connect(str(KUBELETS / "kubelet.sock"))
        except OSError:
            return False
        credentials = client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, struct.calcsize("3i"))
    if struct.unpack("3i", credentials)[0] != cluster.pid("kubelet"):
        cluster.restart("kubelet")
    return allocatable(cluster) == str(len(IDS))


@pytest.mark.usefixtures("kubelets_plugin")
def test_a_node_goes_to_the_bridge_and_back_by_the_steps_of_the_readme(
    cluster: Cluster, bridge: DriverUnderTest
) -> None:
    node = cluster.node_name
    drain = ("drain", node, "--ignore-daemonsets", "--force", "--grace-period=1")
    cluster.wait_until(lambda: have_kubelets_socket(cluster), "the kubelet offers 2 things")
    cluster.apply(by_resource("before"))
    cluster.wait_pod("before")
    assert things(cluster, "before") in IDS
    assert claim_for_resource(cluster, "before") is None
    assert published(bridge) == []

    cluster.kubectl(*drain)
    cluster.kubectl("label", "node", node, f"{LABEL}=true")
    cluster.wait_until(lambda: allocatable(cluster) in {"", "0"}, "the kubelet offers no thing")
    release_things(cluster)
    cluster.kubectl("uncordon", node)
    bridge.wait(lambda: published(bridge) == list(IDS))
    cluster.apply(by_resource("bridged"))
    cluster.wait_pod("bridged")
    assert things(cluster, "bridged") in IDS
    assert claim_for_resource(cluster, "bridged")

    cluster.kubectl(*drain)
    cluster.kubectl("label", "node", node, f"{LABEL}-")
    bridge.wait(lambda: published(bridge) == [])
    cluster.wait_until(lambda: have_kubelets_socket(cluster), "the kubelet offers 2 things again")
    cluster.kubectl("uncordon", node)
    cluster.apply(by_resource("after"))
    cluster.wait_pod("after")
    assert things(cluster, "after") in IDS
    assert claim_for_resource(cluster, "after") is None
    assert not bridge.held()
