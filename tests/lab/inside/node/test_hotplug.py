"""A CPU that goes offline, and comes back, changes the slices of a running driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.cluster.driver_process import DriverUnderTest
from tests.lab.harness.node import LIMIT

ONLINE = Path("/sys/devices/system/cpu/cpu3/online")


def numbers(cpus: DriverUnderTest) -> list[Any]:
    """Returns the number of CPUs of each device in the API."""
    devices = [device for piece in cpus.slices() for device in piece["spec"]["devices"]]
    return [(device["attributes"]["numCPUs"]["int"], device["capacity"]["dra.cpu/cpu"]["value"]) for device in devices]


def test_the_slices_follow_a_cpu_that_goes_offline_and_online_again(cpus: DriverUnderTest) -> None:
    assert numbers(cpus) == [(2, "2"), (2, "2")]
    try:
        ONLINE.write_text("0")
        cpus.wait(lambda: numbers(cpus) == [(2, "2"), (1, "1")], LIMIT)
    finally:
        ONLINE.write_text("1")
    cpus.wait(lambda: numbers(cpus) == [(2, "2"), (2, "2")], LIMIT)
