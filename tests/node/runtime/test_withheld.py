"""A driver's process on each release: what it publishes of devices that exclude each other, and what operators see."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from dra_sdk import (
    Claim,
    ContainerEdits,
    CounterConsumption,
    CounterSet,
    Device,
    DriverInfo,
    Node,
    PreparedDevice,
    ResourcePool,
)
from dra_sdk.loader import Driver
from dra_sdk.node.runtime.process import DriverProcess
from dra_sdk.testing.waiting import wait
from dra_sdk.tools.simulator import EmbeddedCluster
from dra_sdk.tools.simulator.resources import server_catalog
from dra_sdk.wire.profile import ServerProfile
from tests.embedded import settings_for
from tests.node.runtime.test_events import EVENTS

NAME = "card.example.com"
GATE = "DRAPartitionableDevices"
SHARED = Device("shared", allow_multiple_allocations=True)


class CardDriver:
    """One card that is had whole or as one of two halves."""

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo(NAME)

    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        sizes = {"card0": 2, "card0-half0": 1, "card0-half1": 1}
        devices = [
            Device(name, {"units": units}, consumes=[CounterConsumption("card0", {"units": units})])
            for name, units in sizes.items()
        ]
        yield ResourcePool(node.name, devices, [CounterSet("card0", {"units": 2})])

    def dra_prepare(self, claim: Claim[Any]) -> Iterator[PreparedDevice]:
        for device in claim.devices:
            yield device.prepared(ContainerEdits(env={"CARD": device.name}))


class SharedDriver(CardDriver):
    def dra_discover(self, node: Node) -> Iterator[ResourcePool]:
        yield ResourcePool(node.name, [SHARED])


Running = Callable[[type[CardDriver], str], tuple[EmbeddedCluster, DriverProcess]]


@pytest.fixture
def running() -> Iterator[Running]:
    """Starts a cluster of a release, and in it a driver that has published its devices."""
    started: list[Any] = []

    def start(kind: type[CardDriver], version: str) -> tuple[EmbeddedCluster, DriverProcess]:
        catalog = server_catalog(ServerProfile.of(version))
        with_events = type(catalog)(tuple(EVENTS if one.plural == "events" else one for one in catalog))
        cluster = EmbeddedCluster(version=version, catalog=with_events)
        started.append(cluster.__enter__())
        process = DriverProcess(Driver.of(kind()), settings_for(cluster))
        started.append(process.__enter__())
        wait(lambda: process.publisher.slices.synced)
        return cluster, process

    yield start
    for one in reversed(started):
        one.__exit__(None, None, None)


def devices(cluster: EmbeddedCluster) -> list[str]:
    specs = [one["spec"] for one in cluster.api.list("resourceslices")]
    return [device["name"] for spec in specs for device in spec.get("devices", ())]


def withheld(process: DriverProcess) -> list[str]:
    lines = process.metrics.text().decode().splitlines()
    return [line for line in lines if line.startswith("dra_sdk_device_withheld{")]


@pytest.mark.parametrize("version", ["1.34", "1.35"])
def test_a_server_that_drops_counters_gets_the_whole_card_and_the_halves_are_named(
    running: Running, version: str
) -> None:
    cluster, process = running(CardDriver, version)
    assert devices(cluster) == ["card0"]
    assert withheld(process) == [
        f'dra_sdk_device_withheld{{device="{name}",driver="{NAME}",gate="{GATE}",pool="node-1"}} 1.0'
        for name in ("card0-half0", "card0-half1")
    ]
    (event,) = wait(lambda: cluster.api.list("events"))
    assert event["reason"] == "DevicesNotPublished"
    assert "not published: card0-half0, card0-half1, because they share hardware with others" in event["note"]
    assert GATE in event["note"]


@pytest.mark.parametrize("version", ["1.36", "1.37"])
def test_a_server_that_keeps_counters_gets_all(running: Running, version: str) -> None:
    cluster, process = running(CardDriver, version)
    assert devices(cluster) == ["card0", "card0-half0", "card0-half1"]
    assert (withheld(process), cluster.api.list("events")) == ([], [])


def test_a_field_that_is_dropped_without_harm_is_another_event(running: Running) -> None:
    cluster, process = running(SharedDriver, "1.35")
    assert (devices(cluster), withheld(process)) == (["shared"], [])
    (event,) = wait(lambda: cluster.api.list("events"))
    assert event["reason"] == "DeviceFieldsDropped"
    assert "device shared: allowMultipleAllocations" in event["note"]
