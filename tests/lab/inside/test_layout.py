"""Sockets, NUMA nodes and threads, as the kernel and the command line show them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

COMMAND = [sys.executable, "-m", "dra_sdk.cli.main", "discover", "cpu", "-o", "json"]


def test_the_cpu_driver_finds_two_sockets_of_two_cores_with_two_threads():
    found = subprocess.run(COMMAND, env={**os.environ, "NODE_NAME": "lab"}, capture_output=True, text=True, check=True)
    devices = [device for each in json.loads(found.stdout)["items"] for device in each["spec"]["devices"]]
    assert [device["name"] for device in devices] == ["cpudevnuma000", "cpudevnuma001"]
    for node, device in enumerate(devices):
        attributes = device["attributes"]
        assert attributes["socketID"] == {"int": node}
        assert attributes["smtEnabled"] == {"bool": True}
        assert attributes["numCPUs"] == {"int": 3 + node}  # CPU 0 is kept back for pods without claims
        assert attributes["resource.kubernetes.io/numaNode"] == {"int": node}
        assert device["capacity"]["dra.cpu/cpu"]["value"] == str(3 + node)


def test_the_kernel_shows_the_same_layout():
    nodes = sorted(Path("/sys/devices/system/node").glob("node[0-9]*"))
    assert [(path / "cpulist").read_text().strip() for path in nodes] == ["0-3", "4-7"]
    cpus = Path("/sys/devices/system/cpu")
    siblings = {(path / "topology/thread_siblings_list").read_text().strip() for path in cpus.glob("cpu[0-9]*")}
    assert siblings == {"0-1", "2-3", "4-5", "6-7"}


def test_a_kernel_that_hangs_panics():
    """The harness cannot see that it hangs, because the heartbeat may go on."""
    settings = {
        "panic": "-1",
        "panic_on_oops": "1",
        "panic_on_rcu_stall": "1",
        "softlockup_panic": "1",
        "watchdog_thresh": "60",
        "hung_task_panic": "1",
        "hung_task_timeout_secs": "120",
    }
    assert {name: Path("/proc/sys/kernel", name).read_text().strip() for name in settings} == settings
    stall = Path("/sys/module/rcupdate/parameters/rcu_cpu_stall_timeout")
    assert stall.read_text().strip() == "120"
