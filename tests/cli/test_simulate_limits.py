"""Claims that ask for nothing, nonsense or far too much, and searches that would never end: each has its sentence."""

from __future__ import annotations

import json
import signal
import threading
from functools import partial
from typing import Any

import pytest
import yaml

from dra_sdk.tools.scheduling.cluster import schedule
from tests.cli.commands import EXAMPLES, runner

JSON = dict[str, Any]

TOPPING = "pizza.example.com/topping"

NEVER = [{"cel": {"expression": "false"}}]

HUGE = 2**63 - 1


def exactly(name: str = "a", **more: Any) -> JSON:
    return {"name": name, "exactly": {"deviceClassName": "pizza", **more}}


def first(*ways: JSON) -> JSON:
    return {
        "name": "a",
        "firstAvailable": [{"name": f"s{i}", "deviceClassName": "pizza", **way} for i, way in enumerate(ways)],
    }


@pytest.fixture
def explain(capsys, tmp_path):
    """Explains claim `odd` in the cluster of the pizzas: exit status, stdout and stderr."""

    def run(claim: JSON, *arguments: str):
        path = tmp_path / "odd.yaml"
        head = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim", "metadata": {"name": "odd"}}
        path.write_text(yaml.safe_dump(head | claim))
        return runner(capsys)("explain", path, EXAMPLES / "pizza.yaml", "--claim", "odd", *arguments)

    return run


@pytest.mark.parametrize(
    "claim",
    [
        {},
        {"spec": None},
        {"spec": {}},
        {"spec": {"devices": None}},
        {"spec": {"devices": {}}},
        {"spec": {"devices": {"requests": []}}},
        {"spec": {"devices": {"constraints": [{"matchAttribute": TOPPING}]}}},
        {"spec": {"devices": {"config": [{"opaque": {"driver": "pizza.example.com", "parameters": {}}}]}}},
        {"spec": {}, "status": {}},
    ],
    ids=str,
)
def test_a_claim_that_asks_for_nothing_can_be_allocated(explain, claim):
    result = explain(claim)
    assert (result.status, result.out) == (0, "claim odd can be allocated on table-1: it requests no devices\n")
    (explanation,) = json.loads(explain(claim, "-o", "json").out)
    assert explanation["satisfiable"]
    assert "got" not in explanation


@pytest.mark.parametrize("allocation", [{}, {"devices": {}}, {"devices": {"results": []}}], ids=str)
def test_a_claim_that_has_no_devices_is_on_no_node(explain, allocation):
    result = explain({"spec": {}, "status": {"allocation": allocation}})
    assert (result.status, result.out) == (0, "claim odd can be allocated: it requests no devices\n")


@pytest.mark.parametrize(
    ("devices", "said"),
    [
        ({"requests": [exactly(count=33)]}, "number of requested devices 33 exceeds the claim limit of 32"),
        ({"requests": [exactly(count=HUGE)]}, f"number of requested devices {HUGE} exceeds the claim limit of 32"),
        ({"requests": [exactly(allocationMode="All", selectors=NEVER)]}, "none of 4 devices passes selector 0"),
        ({"requests": [first({"selectors": NEVER}, {"selectors": NEVER})]}, "none of 4 devices passes selector 0"),
        ({"requests": [{"name": "a", "exactly": {"deviceClassName": "nope"}}]}, "device class nope: it does not exist"),
        ({"requests": [exactly(selectors=[{"cel": {"expression": "1 / 0 == 1"}}])]}, "division by zero"),
        ({"requests": [exactly(capacity={"requests": {"crumbs": "1"}})]}, "4 without capacity crumbs"),
        ({"requests": [exactly(capacity={"requests": {"slices": "9E"}})]}, "policy does not allow slices: 9E"),
        (
            {"requests": [exactly(count=2)], "constraints": [{"matchAttribute": "pizza.example.com/none"}]},
            "none of 4 devices has the attribute of constraint 0",
        ),
        (
            {
                "requests": [exactly(count=2)],
                "constraints": [{"matchAttribute": TOPPING}, {"distinctAttribute": TOPPING}],
            },
            "constraint 0 (matchAttribute pizza.example.com/topping): no value is shared by enough devices",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_claim_that_cannot_be_allocated_says_why(explain, devices, said):
    result = explain({"spec": {"devices": devices}})
    assert result.status == 1
    summary = result.out.partition("\n")[0]
    assert summary.startswith("claim odd cannot be allocated")
    assert said in summary


@pytest.mark.parametrize("count", [10_000_000, HUGE])
def test_an_alternative_for_more_devices_than_there_can_be(explain, count):
    """Each smaller count is tried, but never more counts than a claim may have devices."""
    far_too_many = {"count": count, "selectors": NEVER}
    result = explain({"spec": {"devices": {"requests": [first(far_too_many, {"count": 9})]}}})
    assert result.status == 1
    assert result.out.endswith("first:\n  1. request a/s1: 4 devices instead of 9\n")
    assert explain({"spec": {"devices": {"requests": [first(far_too_many, {"count": 4})]}}}).status == 0


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        ({"spec": []}, "odd.yaml:5: ResourceClaim/odd: spec: must be an object"),
        ({"spec": {"devices": {"requests": [{"name": "a"}]}}}, "requests[0]: must have exactly or firstAvailable"),
        ({"spec": {"devices": {"requests": [exactly(count=-1)]}}}, "count: must be greater than zero, is -1"),
        ({"spec": {"devices": {"requests": [exactly(), exactly()]}}}, "requests[1]: 'a' was given before"),
        (
            {"spec": {}, "status": {"reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}]}},
            "status.reservedFor: must be empty while nothing is allocated",
        ),
    ],
    ids=lambda value: str(value)[:60],
)
def test_what_no_server_would_accept_is_bad_input(explain, claim, said):
    result = explain(claim)
    assert (result.status, result.out) == (2, "")
    assert said in result.err


# -- searches that would never end

DRIVER = "d.example.com"


def objects():
    """Forty devices with seven values of an attribute, and a claim for eight of different values."""
    devices = [{"name": f"d{i}", "attributes": {"a": {"int": i % 7}}} for i in range(40)]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    requests = [{"name": f"r{i}", "exactly": {"deviceClassName": "c"}} for i in range(8)]
    devices_spec = {"requests": requests, "constraints": [{"distinctAttribute": f"{DRIVER}/a"}]}
    specs = {
        "ResourceSlice": {"driver": DRIVER, "pool": pool, "nodeName": "n1", "devices": devices},
        "DeviceClass": {},
        "ResourceClaim": {"devices": devices_spec},
    }
    for kind, spec in specs.items():
        yield {"apiVersion": "resource.k8s.io/v1", "kind": kind, "metadata": {"name": "c"}, "spec": spec}


@pytest.fixture
def run(capsys, tmp_path):
    path = tmp_path / "endless.yaml"
    path.write_text(yaml.safe_dump_all(objects()))
    return lambda command: runner(capsys)(command, path)


@pytest.mark.parametrize(
    ("command", "said"),
    [("simulate", "given up after 20000 steps"), ("explain", "there are not enough different values")],
)
def test_an_endless_search_is_stopped_with_a_sentence(run, command, said, monkeypatch):
    monkeypatch.setattr("dra_sdk.cli.outcomes.schedule", partial(schedule, max_steps=20_000))
    result = run(command)
    assert result.status == 1
    assert said in result.out
    assert "Traceback" not in result.err


@pytest.fixture
def interruptible():
    """As in a terminal; the workers of pytest-xdist ignore SIGINT."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("interruptible")
@pytest.mark.parametrize("command", ["simulate", "explain"])
def test_an_endless_search_can_be_interrupted(run, command, monkeypatch):
    timer = threading.Timer(0.05, signal.raise_signal, [signal.SIGINT])

    def interrupted(*arguments, **more):
        timer.start()
        return schedule(*arguments, **{**more, "max_steps": 10**12})

    monkeypatch.setattr("dra_sdk.cli.outcomes.schedule", interrupted)
    result = run(command)
    timer.join()
    assert (result.status, result.out) == (130, "")
    assert "Traceback" not in result.err
