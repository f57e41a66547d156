"""The driver keeps the contract in each of its modes, as a process of its own with a kubelet and an API server."""

from __future__ import annotations

import pytest

from dra_sdk.testing import FakeNode
from dra_sdk.testing.sysfs import regular_machine
from dra_sdk.tools.conformance.check import Severity, run_checks
from dra_sdk.tools.conformance.checks import CHECKS
from dra_sdk.tools.conformance.target import Target
from dra_sdk.tools.conformance.timeouts import Timeouts

SDK = {"restart", "rolling", "load"}
"""Levels of which the SDK alone decides; `tests/tools/conformance/test_own_drivers.py` has them."""


LARGE = regular_machine(sockets=2, cores=8, l3_caches=2)
TWO_CPUS = regular_machine(cores=2, threads=1)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("machine", "mode"),
    [
        (LARGE, {"DRA_CPU_DEVICE_MODE": "individual"}),
        (LARGE, {"DRA_CPU_DEVICE_MODE": "partitionable"}),
        (LARGE, {"DRA_CPU_GROUP_BY": "l3cache", "DRA_CPU_FULL_CORES": "true", "DRA_CPU_RESERVED_CPUS": "0"}),
        (TWO_CPUS, {}),
    ],
    ids=["individual", "partitionable", "l3cache", "two CPUs"],
)
def test_the_driver_conforms(machine, mode, tmp_path, monkeypatch):
    node = FakeNode(tmp_path)
    node.machine(machine)
    for name, value in mode.items():
        monkeypatch.setenv(name, value)
    with Target(driver="cpu", host_root=node.root, timeouts=Timeouts(quiet=0.5)).open() as run:
        results = run_checks(run, [check for check in CHECKS if check.level not in SDK])
    must = [each for each in results if each.check.severity is Severity.MUST]
    assert [f"{each.check.id}: {each.reason}" for each in must if each.failed] == []
    assert sum(not each.reason for each in results) > len(results) / 2
