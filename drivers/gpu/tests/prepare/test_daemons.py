"""Daemons that end, hang, or come back: real processes of a script in place of MPS daemons."""

from __future__ import annotations

import json
import os
import signal
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest
from dra_driver_gpu.prepare import mps
from dra_driver_gpu.prepare.mps import MpsDaemon, mps_daemons

from dra_sdk import HealthStatus
from dra_sdk.hardware import daemons
from dra_sdk.hardware.daemons import PROBE_SECONDS, DaemonWatch
from dra_sdk.hardware.node_access import Command
from dra_sdk.testing import claim, request
from tests.waiting import LONG, wait


@pytest.fixture
def make_node(make_gpus):
    made = []

    def make(*models, **settings):
        made.append(make_gpus(*models, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.effects.kill(rig.effects.running_daemons(), force=True)


class FakeTime:
    """A watch whose time a test sets."""

    def __init__(self, rig):
        self.rig, self.watch, self.now = rig, DaemonWatch(), 0.0

    def check(self, after=0.0):
        """All troubles that are seen so many seconds after the last check."""
        self.now += after
        self.watch.check(mps_daemons(self.rig.nvidia_node), self.now)
        return self.watch.troubles


def daemon_file(rig):
    """The file of the only daemon."""
    (path,) = rig.node.path("/s/mps").glob("*/daemon.json")
    return path


def control(rig):
    """The pid of the only daemon."""
    return json.loads(daemon_file(rig).read_text())["process"][0]


def has_ended(rig, pid):
    wait(lambda: rig.effects.started(pid) is None)


@pytest.fixture
def hang(monkeypatch):
    """Stops a daemon, which takes a moment while it starts a process; from now on no answer is waited for long."""

    def stop(rig):
        pid = control(rig)
        os.kill(pid, signal.SIGSTOP)
        stat = Path(f"/proc/{pid}/stat")
        wait(lambda: stat.read_text().rpartition(") ")[2].startswith("T"))
        monkeypatch.setattr(mps, "ANSWER_SECONDS", 0.3)

    return stop


@pytest.fixture
def go_on(monkeypatch):
    """Continues a daemon that was stopped; answers may take their time again."""

    def start(rig):
        os.kill(control(rig), signal.SIGCONT)
        monkeypatch.setattr(mps, "ANSWER_SECONDS", LONG)

    return start


def with_mps(config, kind="GpuConfig", **more):
    return claim(request("gpu", **more), config=config(kind, strategy="MPS"))


def test_a_daemon_that_does_not_answer_twice_is_reported(make_node, config, hang, go_on, caplog):
    rig = make_node("L4", "L4")
    prepared = rig.driver.prepare(with_mps(config))
    time, uuid = FakeTime(rig), rig.memory.gpus[0].uuid
    assert time.check() == {}
    hang(rig)
    assert time.check() == {}
    assert time.check(PROBE_SECONDS) == {}
    assert time.check() == {}
    assert list(time.check(PROBE_SECONDS)) == [uuid]
    assert "its MPS daemon does not answer: " in time.watch.troubles[uuid]
    assert "get_server_list" in time.watch.troubles[uuid]
    assert "does not answer" in caplog.text
    assert list(time.check()) == [uuid]
    go_on(rig)
    assert time.check(PROBE_SECONDS) == {}
    hang(rig)
    assert time.check(PROBE_SECONDS) == {}
    go_on(rig)
    rig.driver.unprepare(prepared)


def test_the_trouble_of_a_daemon_ends_with_its_claim(make_node, config, hang):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    time = FakeTime(rig)
    hang(rig)
    time.check()
    assert time.check(PROBE_SECONDS)
    rig.driver.unprepare(prepared)
    assert time.check() == {}


def test_a_daemon_that_cannot_be_started_again_is_reported(make_node, config):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    rig.effects.kill(rig.effects.running_daemons(), force=True)
    tool = rig.node.path("/usr/bin/nvidia-cuda-mps-control")
    works = tool.read_text()
    tool.write_text("#!/bin/sh\nexit 3\n")
    time = FakeTime(rig)
    assert time.check() == {}
    assert time.check(PROBE_SECONDS)
    tool.write_text(works)
    assert time.check(PROBE_SECONDS) == {}
    rig.driver.unprepare(prepared)


def test_a_daemon_that_refuses_its_configuration_is_ended(make_node, config):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    rig.effects.kill(rig.effects.running_daemons(), force=True)
    patient, rig.settings = rig.settings, rig.settings.model_copy(update={"mps_seconds": 0.2})
    tool = rig.node.path("/usr/bin/nvidia-cuda-mps-control")
    works = tool.read_text()
    tool.write_text('#!/bin/sh\n[ "$1" = -f ] || exit 1\nexec sleep 60\n')
    time = FakeTime(rig)
    for _ in range(3):
        time.check()
        wait(lambda: not rig.effects.running_daemons())
    tool.write_text(works)
    rig.settings = patient
    time.check()
    assert rig.effects.started(control(rig)) is not None
    rig.driver.unprepare(prepared)


def test_the_environment_of_processes_is_not_read_while_daemons_run(make_node, config, monkeypatch):
    rig = make_node("L4", "L4")
    for _ in range(2):
        rig.driver.prepare(with_mps(config))
    time = FakeTime(rig)
    time.check()
    calls = len(rig.effects.calls)
    with monkeypatch.context() as patched:
        patched.setattr(rig.effects, "running", lambda _marker: pytest.fail("the environment of processes is read"))
        time.check()
    assert len(rig.effects.calls) == calls


def test_a_daemon_that_ended_is_started_again_although_its_server_runs_on(make_node, config, caplog):
    """A server that outlives its daemon has the same environment; its clients go on."""
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    log = rig.node.path("/tmp/log")
    log.parent.mkdir(parents=True, exist_ok=True)
    before = control(rig)
    environment = dict(each.split("=", 1) for each in Path(f"/proc/{before}/environ").read_text().split("\0") if each)
    server = rig.effects.start(Command(["sleep", "60"], env=environment), log)
    rig.effects.kill([before], force=True)
    has_ended(rig, before)
    FakeTime(rig).check()
    assert "was started again" in caplog.text
    assert control(rig) not in {before, server}
    assert rig.effects.started(server) is not None
    rig.driver.unprepare(prepared)
    assert rig.effects.running_daemons() == []


def test_another_process_with_the_pid_of_a_daemon_is_not_the_daemon(make_node, config):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    path = daemon_file(rig)
    kept = json.loads(path.read_text())
    rig.effects.kill([kept["process"][0]], force=True)
    path.write_text(json.dumps({**kept, "process": [os.getpid(), kept["process"][1]]}))
    FakeTime(rig).check()
    assert control(rig) != os.getpid()
    rig.driver.unprepare(prepared)


def test_the_daemon_of_an_interrupted_start_is_found(make_node, config):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    before = control(rig)
    (daemon,) = mps_daemons(rig.nvidia_node).wanted()
    daemon_file(rig).unlink()
    mps_daemons(rig.nvidia_node).start(MpsDaemon(daemon.claim, daemon.devices))
    assert control(rig) == before
    rig.driver.unprepare(prepared)


@contextmanager
def watched(rig, monkeypatch):
    """The driver watches, often; the result reports the devices that are unhealthy now."""
    monkeypatch.setattr("dra_driver_gpu.driver.WATCH_SECONDS", 0.02)
    monkeypatch.setattr(daemons, "PROBE_SECONDS", 0.05)
    plugin, stop = rig.driver.plugin, threading.Event()

    def unhealthy():
        reports = plugin.dra_device_health(rig.node.node, threading.Event())
        found = {each.device: each.message for each in next(reports) if each.status is HealthStatus.UNHEALTHY}
        reports.close()
        return found

    watcher = threading.Thread(target=plugin.dra_watch, args=(rig.node.node, lambda: None, stop))
    watcher.start()
    try:
        yield unhealthy
    finally:
        stop.set()
        watcher.join()


def test_a_hung_daemon_makes_its_gpu_unhealthy(make_node, config, hang, monkeypatch):
    rig = make_node("L4", "L4", passthrough=True)
    rig.driver.prepare(with_mps(config))
    with watched(rig, monkeypatch) as unhealthy:
        assert unhealthy() == {}
        hang(rig)
        ((name, message),) = wait(unhealthy).items()
    assert (name, message.partition(": ")[0]) == ("gpu-0", "its MPS daemon does not answer")


def test_a_hung_daemon_makes_its_mig_device_unhealthy_and_no_other(make_node, config, hang, monkeypatch):
    rig = make_node("H100-80GB", "L4", dynamic_mig=True)
    rig.driver.prepare(with_mps(config, "MigDeviceConfig", device_class="mig.nvidia.com"))
    with watched(rig, monkeypatch) as unhealthy:
        hang(rig)
        found = wait(unhealthy)
    names = {"1g10gb-19", "1g10gb-me-20"}  # the other one can have the same placement
    assert found.keys() == {f"gpu-0-mig-{each}-6" for each in names}
