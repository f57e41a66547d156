from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.errors import InvalidObjectError
from dra_sdk.model.device import Capacity, Device, DeviceTaint, NodeAllocatable, RequestPolicy, ResourcePool
from dra_sdk.node.slices.limits import refusals
from dra_sdk.node.slices.plan import PoolPlan, plan

DRIVER = "gpu.example.com"


def test_what_is_in_order():
    assert refusals([{"nodeName": "n", "devices": [{"name": "gpu-0"}]}], DRIVER, "n") == []


@pytest.mark.parametrize(
    ("driver", "pool", "spec", "said"),
    [
        ("-", "p", {"nodeName": "n"}, "driver: "),
        (DRIVER, "a//b", {"nodeName": "n"}, "pool.name: "),
        (DRIVER, "p", {"nodeName": "N"}, "nodeName: "),
        (DRIVER, "p", {"nodeName": "n", "devices": [{"name": "GPU 0"}]}, "device GPU 0: name: must be a DNS label"),
        (
            DRIVER,
            "p",
            {"nodeName": "n", "devices": [{"name": "gpu-0", "attributes": {"model": {"string": "x" * 65}}}]},
            "device gpu-0: attribute model: string: must be at most 64 bytes",
        ),
    ],
)
def test_each_part_is_checked_and_named(driver: str, pool: str, spec: dict[str, Any], said: str):
    (problem,) = refusals([spec], driver, pool)
    assert problem.startswith(said)


def test_what_one_release_takes_is_in_order():
    """The field exists in 1.36 only."""
    pool = ResourcePool("p", [Device("d", node_allocatable={"cpu": NodeAllocatable()})])
    assert isinstance(plan([pool], driver=DRIVER, node_name="n")["p"], PoolPlan)


def test_what_one_server_takes_by_a_gate_is_in_order():
    """By default all releases round the two amounts to one."""
    capacity = {"light": Capacity(100, RequestPolicy(default=1, valid_values=["500m", 1]))}
    pool = ResourcePool("p", [Device("d", capacity=capacity, allow_multiple_allocations=True)])
    assert isinstance(plan([pool], driver=DRIVER, node_name="n")["p"], PoolPlan)


def test_plan_tells_each_problem():
    taints = [DeviceTaint(key="", effect="NoSchedule"), DeviceTaint(key="ok", effect="Maybe")]  # type: ignore[arg-type]
    pool = ResourcePool("p", [Device("gpu-0", attributes={"not-an-identifier": 1}, taints=taints)])
    found = plan([pool], driver=DRIVER, node_name="n")["p"]
    assert isinstance(found, InvalidObjectError)
    assert len(found.problems) == 3
    assert all(problem.startswith("device gpu-0: ") for problem in found.problems)
