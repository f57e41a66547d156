"""The driver keeps the contract in each of its modes, as a process of its own with a kubelet and an API server."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dra_sdk.testing import FakeNode
from dra_sdk.testing.conformance import Target, Timeouts, assert_conforms
from dra_sdk.testing.sysfs import regular_machine

SDK = {"restart", "rolling", "load"}
"""Levels of which the SDK alone decides: the default mode has them."""
TIMEOUTS = Timeouts(quiet=0.5)
LARGE = regular_machine(sockets=2, cores=8, l3_caches=2)
WHOLE_CORES = {"DRA_CPU_GROUP_BY": "l3cache", "DRA_CPU_FULL_CORES": "true", "DRA_CPU_RESERVED_CPUS": "0"}
TWO_CPUS = regular_machine(cores=2, threads=1)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("machine", "mode"),
    [
        pytest.param(LARGE, {"DRA_CPU_DEVICE_MODE": "individual"}, id="individual", marks=pytest.mark.faults),
        pytest.param(LARGE, {"DRA_CPU_DEVICE_MODE": "partitionable"}, id="partitionable"),
        pytest.param(LARGE, WHOLE_CORES, id="l3cache", marks=pytest.mark.faults),
        pytest.param(TWO_CPUS, {}, id="two CPUs"),
    ],
)
def test_the_driver_conforms(machine, mode, tmp_path, monkeypatch):
    node = FakeNode(tmp_path)
    node.machine(machine)
    for name, value in mode.items():
        monkeypatch.setenv(name, value)
    assert_conforms(Target(driver="cpu", host_root=node.root, timeouts=TIMEOUTS), without=SDK)


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_the_driver_conforms_on_this_machine(monkeypatch):
    monkeypatch.setenv("DRA_CPU_RESERVED_CPUS", "0")  # the last CPU belongs to containers without claims
    assert_conforms(Target(driver="cpu", timeouts=TIMEOUTS))


@pytest.mark.faults
@pytest.mark.timeout(1200)
def test_the_memory_driver_conforms(tmp_path):
    host = replace(regular_machine(sockets=2), hugepages={2 << 20: 512}).write(tmp_path / "host")
    (host.proc / "sys/kernel/random").mkdir(parents=True)
    (host.proc / "sys/kernel/random/boot_id").write_text("boot\n")
    assert_conforms(Target(driver="memory", host_root=host.root, timeouts=TIMEOUTS), without=SDK - {"load"})
