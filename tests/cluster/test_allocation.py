"""Allocations of the real scheduler on the node: partitions, shares, alternatives, admin access."""

from __future__ import annotations

import json

import pytest

from tests.cluster.driver_process import DriverUnderTest
from tests.cluster.drivers import KNOBS, Drivers
from tests.cluster.harness.cluster import Cluster
from tests.cluster.manifests import ADMINS, JSON, claim, first_available, lamp, pod_with, request, where
from tests.cluster.pods import (
    allocated,
    failures,
    given_shares,
    known_shares,
    printed,
    shares,
    started_at,
    wait_unschedulable,
)

IN_ADMINS = f"--namespace={ADMINS}"


def run(cluster: Cluster, name: str, *requests: JSON, configs: list[JSON] | None = None) -> None:
    """Creates a claim and a pod that uses it, both of this name."""
    made = claim(name, list(requests), configs)
    cluster.apply(made, pod_with(name, made))


def test_partitions_share_their_counters(cluster: Cluster, drivers: Drivers) -> None:
    driver = drivers.knobs(devices="partitions")
    half = where(f'device.attributes["{KNOBS}"].size == 4')
    whole = where(f'device.attributes["{KNOBS}"].size == 8')
    run(cluster, "left", request("desk", "knobs", **half))
    run(cluster, "right", request("desk", "knobs", **half))
    for name in ("left", "right"):
        cluster.wait_pod(name)
    assert {allocated(cluster, name)[0]["device"] for name in ("left", "right")} == {"half-0", "half-1"}

    run(cluster, "both", request("desk", "knobs", **whole))
    wait_unschedulable(cluster, "both")
    cluster.kubectl("delete", "pod,resourceclaim", "left")
    wait_unschedulable(cluster, "both")
    cluster.kubectl("delete", "pod,resourceclaim", "right")
    cluster.wait_pod("both")
    assert printed(cluster, "both")["LAMP_DESK"] == "board"
    assert len(driver.held()) == 1


def test_a_device_is_shared_until_its_capacity_is_spent(cluster: Cluster, drivers: Drivers) -> None:
    driver = drivers.knobs(devices="shared")
    four = {"capacity": {"requests": {"light": "4"}}}
    for name in ("a", "b"):
        run(cluster, name, request("desk", "knobs", **four))
        cluster.wait_pod(name)
        assert shares(cluster, name) == known_shares(cluster, name)
        assert allocated(cluster, name)[0]["consumedCapacity"] == {"light": "4"}
    assert given_shares(cluster, "a") != given_shares(cluster, "b")
    assert len(driver.specs()) == 2
    run(cluster, "c", request("desk", "knobs", **four))
    wait_unschedulable(cluster, "c")
    cluster.kubectl("delete", "pod,resourceclaim", "a")
    cluster.wait_pod("c")
    assert printed(cluster, "c")["LAMP_DESK"] == "spot"


def test_one_claim_with_two_shares_of_one_device(cluster: Cluster, drivers: Drivers) -> None:
    driver = drivers.knobs(devices="shared")
    configs = [lamp(10, "desk", driver=KNOBS), lamp(20, "wall", driver=KNOBS)]
    run(cluster, "twice", request("desk", "knobs"), request("wall", "knobs"), configs=configs)
    cluster.wait_pod("twice")
    assert shares(cluster, "twice") == known_shares(cluster, "twice")
    assert len({share for _, share in given_shares(cluster, "twice")}) == 2
    shown = printed(cluster, "twice")
    assert shown == {"LAMP_DESK": "spot", "LAMP_WALL": "spot", "BRIGHTNESS_DESK": "10", "BRIGHTNESS_WALL": "20"}
    cluster.kubectl("delete", "pod", "twice")
    driver.wait_free()


@pytest.mark.parametrize(("reds", "chosen", "brightness"), [(4, "red", "50"), (5, "blue", "5")])
def test_the_configuration_of_the_chosen_alternative_applies(
    cluster: Cluster, knobs: DriverUnderTest, reds: int, chosen: str, brightness: str
) -> None:
    colour = f'device.attributes["{KNOBS}"].colour == "%s"'
    red = {"deviceClassName": "knobs", "count": reds, **where(colour % "red")}
    blue = {"deviceClassName": "knobs", **where(colour % "blue")}
    configs = [lamp(50, "desk/red", driver=KNOBS), lamp(5, "desk/blue", driver=KNOBS)]
    run(cluster, "lit", first_available("desk", red=red, blue=blue), configs=configs)
    cluster.wait_pod("lit")
    assert {each["request"] for each in allocated(cluster, "lit")} == {f"desk/{chosen}"}
    assert printed(cluster, "lit")["BRIGHTNESS_DESK"] == brightness


def test_admin_access_gets_devices_that_other_claims_hold(cluster: Cluster, knobs: DriverUnderTest) -> None:
    run(cluster, "lit", request("desk", "knobs"))
    cluster.wait_pod("lit")
    since = started_at(cluster, "lit")
    look = claim("look", [request("all", "knobs", allocationMode="All", adminAccess=True)])
    for place in ("default", ADMINS):
        said = cluster.kubectl("apply", f"--namespace={place}", "-f", "-", input=text(look), check=False)
        assert ("Forbidden" in said) == (place == "default")
    cluster.kubectl("apply", IN_ADMINS, "-f", "-", input=text(pod_with("warden", look)))
    cluster.wait_pod("warden", namespace=ADMINS)
    assert len(allocated(cluster, "look", ADMINS)) == 8
    assert len(knobs.held()) == 2
    cluster.kubectl("delete", IN_ADMINS, "pod", "warden")
    knobs.wait(lambda: len(knobs.held()) == 1)
    assert started_at(cluster, "lit") == since
    assert not failures(cluster, ["lit"])


def text(made: JSON) -> str:
    return json.dumps(made)
