"""What discoveries leave out is logged once for each change, and each has a value of a metric."""

from __future__ import annotations

import logging
from collections.abc import Iterable

import pytest

from dra_sdk import Device, Node
from dra_sdk.model.omissions import Omission, leave_out, leave_out_fact
from dra_sdk.node.runtime.discovery import Discovery
from dra_sdk.node.runtime.metrics import Metrics
from dra_sdk.node.runtime.omissions import MOST, OmissionReport
from dra_sdk.testing.waiting import wait
from tests.node.runtime.test_discovery import driver

CARD = Omission("card 1", "/sys/card1/id: cannot be read: Input/output error", is_device=True)
SPEED = Omission("/sys/card2/speed", "/sys/card2/speed: expected a number", is_device=False)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    texts = [record.getMessage() for record in caplog.records if "left out" in record.getMessage()]
    caplog.clear()
    return texts


def values(report: OmissionReport) -> dict[tuple[str, str], float]:
    return {(gauge.labels["kind"], gauge.labels["subject"]): gauge.value for gauge in report.gauges()}


def test_each_change_is_logged_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    report = OmissionReport("lamps.example.com")
    report.update([SPEED, CARD])
    assert lines(caplog) == [f"driver lamps.example.com: {CARD}", f"driver lamps.example.com: {SPEED}"]
    report.update({CARD, SPEED})
    assert lines(caplog) == []
    report.update([CARD])
    assert lines(caplog) == ["driver lamps.example.com: no longer left out: /sys/card2/speed"]
    report.update([CARD, SPEED])
    assert lines(caplog) == [f"driver lamps.example.com: {SPEED}"]


def test_the_metric_names_each() -> None:
    report = OmissionReport("lamps.example.com")
    assert report.gauges() == []
    report.update([CARD, SPEED])
    assert values(report) == {("device", "card 1"): 1, ("fact", "/sys/card2/speed"): 1}
    report.update([])
    assert report.gauges() == []


def test_hundreds_are_counted_and_not_named(caplog: pytest.LogCaptureFixture) -> None:
    report = OmissionReport("lamps.example.com")
    report.update([CARD, *(Omission(f"/sys/card{n}/speed", "?", is_device=False) for n in range(500))])
    assert len(lines(caplog)) == MOST + 1
    assert len(report.gauges()) == MOST + 1
    assert values(report)["fact", "others"] == 501 - MOST
    assert values(report)["device", "card 1"] == 1


def test_a_discovery_reports_what_it_left_out(caplog: pytest.LogCaptureFixture) -> None:
    broken = [True]

    def discover() -> Iterable[Device]:
        yield Device("lamp-0")
        if broken:
            leave_out("lamp 1", "its file cannot be read")
            leave_out_fact("/sys/lamp0/colour", "/sys/lamp0/colour: cannot be read")

    published: list[int] = []
    made = Discovery(driver(discover), Node("node-a"), lambda pools: published.append(len(pools[0].devices)))
    metrics = Metrics("lamps.example.com")
    metrics.add_driver_gauges(made.omissions.gauges)
    made.start()
    wait(lambda: len(published) == 1)
    wanted = 'dra_sdk_hardware_left_out{driver="lamps.example.com",kind="device",subject="lamp 1"} 1.0'
    assert wanted in metrics.text().decode()
    assert len(lines(caplog)) == 2
    made.again()
    wait(lambda: len(published) == 2)
    assert lines(caplog) == []
    broken.clear()
    made.again()
    wait(lambda: len(published) == 3)
    made.stop(5)
    assert "dra_sdk_hardware_left_out{" not in metrics.text().decode()
