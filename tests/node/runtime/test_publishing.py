"""From the health hook outwards: what it must not return."""

from __future__ import annotations

import logging
from typing import Any

import pytest

from dra_sdk import DeviceHealth, DriverInfo, HealthStatus, Node
from dra_sdk.loader import Driver
from dra_sdk.node.runtime.publishing import HealthService
from dra_sdk.testing.waiting import LONG, wait


class Lamp:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def dra_driver_info(self) -> DriverInfo:
        return DriverInfo("lamp.example.com")

    def dra_discover(self) -> list[Any]:
        return []

    def dra_prepare(self) -> list[Any]:
        return []

    def dra_device_health(self) -> Any:
        return self.answer


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (None, "returned None, want lists of DeviceHealth"),
        ({"lamp-0": True}, "returned {'lamp-0': True}, want lists of DeviceHealth"),
        ("healthy", "returned 'healthy', want lists of DeviceHealth"),
        ([DeviceHealth("lamp-0", HealthStatus.HEALTHY)], "yielded DeviceHealth(device='lamp-0'"),
    ],
)
def test_what_is_no_series_of_reports_is_named(answer: Any, said: str, caplog: pytest.LogCaptureFixture) -> None:
    service = HealthService(Driver.of(Lamp(answer)), Node("n"))
    with caplog.at_level(logging.ERROR):
        service.start()
        wait(lambda: bool(caplog.records))
        service.stop(LONG)
    assert f"health failed: dra_device_health of driver lamp.example.com {said}" in caplog.records[0].getMessage()
    assert caplog.records[0].exc_info is None
