"""The roles of the chart, compared with the requests of drivers and commands: each is granted, and nothing more."""

from __future__ import annotations

import argparse
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dra_sdk import Claim, Condition, Device, DeviceStatus, DriverInfo, Node, PreparedDevice, ResourcePool
from dra_sdk.cli.live_cluster import opened_cluster
from dra_sdk.cli.main import main
from dra_sdk.loader import Driver
from dra_sdk.node.runtime import events
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.doctor.cluster import PERMISSIONS
from dra_sdk.tools.manifests import Chart
from dra_sdk.tools.simulator import CATALOG, Catalog, EmbeddedCluster, ResourceType
from tests.embedded import settings_for

NAME = "lamps.example.com"
_EVENTS = ResourceType("events.k8s.io", "v1", "events", "Event", namespaced=True)
WITH_EVENTS = Catalog(tuple(_EVENTS if kind.plural == "events" else kind for kind in CATALOG))
"""Events as drivers write them, in place of the same objects in the core group."""
ON_STATUS = ("resourceclaims/driver", "associated-node:patch")
"""No request: Kubernetes 1.36 and later ask for it when resourceclaims/status is patched."""


class Lamps:
    """A driver with pools that change, and with a status for each device."""

    def __init__(self) -> None:
        self.pools = {"first": 1, "second": 1}
        self.changed: Callable[[], None] | None = None
        self.broken = False

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> list[ResourcePool]:
        if self.broken:
            raise OSError("no bulb")
        return [
            ResourcePool(name, [Device(f"lamp-{number}") for number in range(count)])
            for name, count in self.pools.items()
        ]

    def dra_prepare(self, claim: Claim[None]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(status=DeviceStatus(conditions=[Condition(type="Ready", status=True, reason="Lit")]))

    def dra_unprepare(self) -> None:
        """Something is to be undone, so the claim is kept on disk."""

    def dra_watch(self, changed: Callable[[], None], stop: threading.Event) -> None:
        self.changed = changed
        stop.wait()


def role(name: str, values: dict[str, Any]) -> set[tuple[str, str]]:
    """Resource and verb of each permission of a ClusterRole of the chart."""
    rendered = (manifest.object for manifest in Chart().render(values))
    (cluster_role,) = (
        manifest for manifest in rendered if manifest["kind"] == "ClusterRole" and manifest["metadata"]["name"] == name
    )
    return {
        (resource, verb) for rule in cluster_role["rules"] for resource in rule["resources"] for verb in rule["verbs"]
    }


def granted(*, device_status: bool) -> set[tuple[str, str]]:
    """What the role of a driver grants."""
    return role("dra-lamps", {"drivers": {"lamps": {"driverName": NAME, "deviceStatus": device_status}}})


@pytest.fixture(scope="module")
def asked() -> set[tuple[str, str]]:
    """Resource and verb of each request of the driver: start, changes of devices, a claim prepared and given back."""
    lamps = Lamps()
    with pytest.MonkeyPatch.context() as patched, EmbeddedCluster(catalog=WITH_EVENTS) as cluster:
        patched.setattr(events, "SERIES_SECONDS", 0.0)
        begin = len(cluster.server.log.records())

        def devices() -> dict[str, int]:
            slices = cluster.api.list("resourceslices", fields=f"spec.driver={NAME}")
            return {
                resource_slice["spec"]["pool"]["name"]: len(resource_slice["spec"].get("devices", []))
                for resource_slice in slices
            }

        def requests() -> set[tuple[str, str]]:
            return {
                ("/".join(filter(None, (record.request.plural, record.request.subresource))), record.request.verb)
                for record in cluster.server.log.records()[begin:]
                if record.user_agent.startswith("dra-sdk") and record.request.resource
            }

        with DriverProcess(Driver.of(lamps), settings_for(cluster)):
            cluster.kubelet.wait_for_driver(NAME)
            wait(lambda: devices() == {"first": 1, "second": 1})
            lamps.pools = {"first": 2}
            wait(lambda: lamps.changed is not None)
            assert lamps.changed is not None
            lamps.changed()
            wait(lambda: devices() == {"first": 2})
            cluster.create_class("lamps", [f'device.driver == "{NAME}"'])
            cluster.create_claim("one", {"lamp": "lamps"})
            cluster.create_pod("user", ["one"])
            cluster.schedule()
            cluster.run_pod("user")
            wait(lambda: ("resourceclaims/status", "patch") in requests())
            cluster.stop_pod("user")
            lamps.broken = True
            lamps.changed()
            wait(lambda: ("events", "patch") in requests())
        return requests()


def test_everything_that_a_driver_asks_for_is_granted_and_nothing_else(asked: set[tuple[str, str]]) -> None:
    assert asked | {ON_STATUS} == granted(device_status=True)


def test_a_driver_without_status_gets_what_every_driver_asks_for() -> None:
    of_status = {ON_STATUS, ("resourceclaims/status", "patch")}
    assert granted(device_status=False) == granted(device_status=True) - of_status
    assert granted(device_status=False) == {(resource, verb) for _, resource, verb in PERMISSIONS}


@pytest.mark.parametrize("key", sorted(Chart().defaults["drivers"]))
def test_every_driver_of_the_chart_has_that_role(key: str) -> None:
    """What the SDK asks for is what each of them asks for; none has a client of its own."""
    entry = Chart().defaults["drivers"][key]
    permissions = role(f"dra-{key}", {"drivers": {key: {"enabled": True}}})
    assert permissions == granted(device_status=entry.get("deviceStatus", False))


def test_people_are_granted_what_the_commands_read_and_nothing_else() -> None:
    with EmbeddedCluster(version="1.37") as cluster:  # which serves every kind that is read
        begin = len(cluster.server.log.records())
        for command in (["top"], ["simulate", "--from-cluster"], ["explain", "--from-cluster"]):
            assert main([*command, "--kubeconfig", str(cluster.kubeconfig)]) < 2
        flags = argparse.Namespace(kubeconfig=cluster.kubeconfig, context="")
        with opened_cluster(flags, follow=True) as followed:
            wait(lambda: cluster.server.open_watches == len(followed.kinds))
        requests = [record.request for record in cluster.server.log.records()[begin:]]
        asked = {(request.plural, request.verb) for request in requests if request.resource}
    missing = (
        "priorityclasses",
        "poddisruptionbudgets",
        "resourcequotas",
        "podgroups",
    )  # which this server does not have
    unserved = {(resource, verb) for resource in missing for verb in ("list", "watch")}
    assert role("dra-sdk-viewer", {"drivers": {"lamps": {"driverName": NAME}}}) == asked | unserved
