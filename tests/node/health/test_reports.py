from __future__ import annotations

import re

import pytest

from dra_sdk import DeviceHealth, HealthStatus
from dra_sdk.errors import HookError
from dra_sdk.node.health.reports import MESSAGE_LIMIT, TIMEOUT_LIMIT, read_report, worst

HEALTHY, UNKNOWN, UNHEALTHY = HealthStatus.HEALTHY, HealthStatus.UNKNOWN, HealthStatus.UNHEALTHY


def read(*devices):
    return read_report("lights.example.com", "node-a", list(devices))


def test_the_nodes_pool_stands_in_where_none_is_named():
    found = read(DeviceHealth("lamp-0", HEALTHY), DeviceHealth("lamp-0", UNHEALTHY, pool="rack/7"))
    assert found == {
        ("node-a", "lamp-0"): DeviceHealth("lamp-0", HEALTHY, pool="node-a"),
        ("rack/7", "lamp-0"): DeviceHealth("lamp-0", UNHEALTHY, pool="rack/7"),
    }


def test_an_empty_report_and_any_iterable_are_fine():
    assert read() == {}
    assert list(read_report("d", "p", iter([DeviceHealth("a", HEALTHY)]))) == [("p", "a")]


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ([HEALTHY, UNHEALTHY], UNHEALTHY),
        ([UNHEALTHY, HEALTHY], UNHEALTHY),
        ([HEALTHY, UNKNOWN, HEALTHY], UNKNOWN),
        ([UNKNOWN, UNHEALTHY, UNKNOWN], UNHEALTHY),
        ([HEALTHY, HEALTHY], HEALTHY),
    ],
)
def test_the_worst_of_several_states_of_one_device_counts(states, expected):
    found = read(*(DeviceHealth("lamp-0", state) for state in states))
    assert [health.status for health in found.values()] == [expected]


@pytest.mark.parametrize(
    ("taints", "problem"),
    [
        ("xid=79", "taints must be a list of str, is 'xid=79'"),
        ([79], "taints[0] must be a str, is 79"),
        (["ok", "no name"], "taints[1]"),
        (["xid=no value"], "taints[0]"),
    ],
)
def test_taints_are_names_with_values(taints, problem):
    with pytest.raises(HookError, match=re.escape(f"device node-a/lamp-0: {problem}")):
        read(DeviceHealth("lamp-0", UNHEALTHY, taints=taints))


def test_of_two_equal_states_the_first_keeps_its_message():
    assert worst(DeviceHealth("a", UNHEALTHY, "fan"), DeviceHealth("a", UNHEALTHY, "heat")).message == "fan"


@pytest.mark.parametrize("report", [None, 7, "lamp-0", b"x", HEALTHY])
def test_what_is_no_list_is_refused(report):
    with pytest.raises(HookError, match=r"dra_device_health of driver d yielded .*, want a list of DeviceHealth"):
        read_report("d", "p", report)


@pytest.mark.parametrize("device", [None, "lamp-0", ("lamp-0", HEALTHY), {"device": "lamp-0"}])
def test_what_is_no_device_health_is_refused(device):
    with pytest.raises(HookError, match="want DeviceHealth"):
        read(DeviceHealth("lamp-0", HEALTHY), device)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"device": ""}, "device: must be a DNS label"),
        ({"device": "Lamp"}, "at most 63 characters), is 'Lamp'"),
        ({"device": "a" * 64}, "at most 63 characters"),
        ({"device": "lamp\ud800"}, "DNS label"),
        ({"device": 7}, "device must be a str, is 7"),
        ({"pool": ""}, "pool: must be set"),
        ({"pool": "a//b"}, "pool: must be a DNS subdomain"),
        ({"pool": "a" * 254}, "at most 253"),
        ({"pool": 7}, "pool must be a str"),
        ({"status": 1}, "status must be a HealthStatus, is 1"),
        ({"status": "Healthy"}, "status must be a HealthStatus"),
        ({"message": None}, "message must be a str, is None"),
        ({"timeout": 0}, f"timeout must be from 1 to {TIMEOUT_LIMIT} seconds, is 0"),
        ({"timeout": -5}, "timeout must be from 1"),
        ({"timeout": TIMEOUT_LIMIT + 1}, f"timeout must be from 1 to {TIMEOUT_LIMIT}"),
        ({"timeout": 2.5}, "timeout must be an int of seconds, is 2.5"),
        ({"timeout": True}, "timeout must be an int of seconds, is True"),
    ],
)
def test_a_bad_field_is_refused_with_driver_device_and_limit(fields, message):
    health = DeviceHealth(**{"device": "lamp-0", "status": HEALTHY, **fields})
    with pytest.raises(HookError, match=r"dra_device_health of driver lights\.example\.com: device ") as error:
        read(health)
    assert message in str(error.value)


def test_a_message_is_cut_between_characters_and_only_where_it_must_be():
    exact = "x" * MESSAGE_LIMIT
    assert read(DeviceHealth("a", HEALTHY, exact))["node-a", "a"].message == exact
    cut = read(DeviceHealth("a", HEALTHY, "€" * 1000))["node-a", "a"].message
    assert len(cut.encode()) <= MESSAGE_LIMIT
    assert cut == "€" * 340 + "..."
    assert read(DeviceHealth("a", HEALTHY, exact + "y"))["node-a", "a"].message == "x" * 1021 + "..."


def test_a_message_that_is_no_unicode_still_gets_through():
    assert read(DeviceHealth("a", HEALTHY, "bad \udcff name"))["node-a", "a"].message == "bad ? name"
