"""The health of devices whose MPS daemon hangs."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from dra_driver_gpu.prepare import mps

from dra_sdk import HealthStatus
from dra_sdk.hardware import daemons
from dra_sdk.testing import claim, request
from dra_sdk.testing.waiting import wait


@pytest.fixture
def hang(monkeypatch):
    """Stops the only daemon, which takes a moment; from now on no answer is waited for long."""

    def stop(harness):
        (path,) = harness.node.path("/s/mps").glob("*/daemon.json")
        pid = json.loads(path.read_text())["process"][0]
        os.kill(pid, signal.SIGSTOP)
        stat = Path(f"/proc/{pid}/stat")
        wait(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))
        monkeypatch.setattr(mps, "ANSWER_SECONDS", 0.3)

    return stop


def with_mps(config, kind="GpuConfig", **more):
    return claim(request("gpu", **more), config=config(kind, strategy="MPS"))


@contextmanager
def watched(harness, monkeypatch):
    """The driver watches, often; the result reports the devices that are unhealthy now."""
    monkeypatch.setattr("dra_driver_gpu.driver.WATCH_SECONDS", 0.02)
    monkeypatch.setattr(daemons, "PROBE_SECONDS", 0.05)
    plugin, stop = harness.driver.plugin, threading.Event()

    def unhealthy():
        reports = plugin.dra_device_health(harness.node.node, threading.Event())
        messages = {
            device.device: device.message for device in next(reports) if device.status is HealthStatus.UNHEALTHY
        }
        reports.close()
        return messages

    watcher = threading.Thread(target=plugin.dra_watch, args=(harness.node.node, lambda: None, stop))
    watcher.start()
    try:
        yield unhealthy
    finally:
        stop.set()
        watcher.join()


def test_a_hung_daemon_makes_its_gpu_unhealthy(make_node, config, hang, monkeypatch):
    harness = make_node("L4", "L4", passthrough=True)
    harness.driver.prepare(with_mps(config))
    with watched(harness, monkeypatch) as unhealthy:
        assert unhealthy() == {}
        hang(harness)
        ((name, message),) = wait(unhealthy).items()
    assert (name, message.partition(": ")[0]) == ("gpu-0", "its MPS daemon does not answer")


def test_a_hung_daemon_makes_its_mig_device_unhealthy_and_no_other(make_node, config, hang, monkeypatch):
    harness = make_node("H100-80GB", "L4", dynamic_mig=True)
    harness.driver.prepare(with_mps(config, "MigDeviceConfig", device_class="mig.nvidia.com"))
    with watched(harness, monkeypatch) as unhealthy:
        hang(harness)
        messages = wait(unhealthy)
    names = {"1g10gb-19", "1g10gb-me-20"}  # the other one can have the same placement
    assert messages.keys() == {f"gpu-0-mig-{name}-6" for name in names}
