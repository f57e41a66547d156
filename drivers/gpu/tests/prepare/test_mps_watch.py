"""MPS daemons that end, hang, or come back, as the driver notices: real processes of a script."""

from __future__ import annotations

import json
import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest
from dra_driver_gpu.prepare import mps
from dra_driver_gpu.prepare.mps import MpsDaemons
from dra_driver_gpu.prepare.mps_watch import ASK_SECONDS, MpsWatch

from dra_sdk import HealthStatus
from dra_sdk.testing import claim, request

LONG = 30.0  # seconds


@pytest.fixture
def make_node(make_gpus):
    made = []

    def make(*models, **settings):
        made.append(make_gpus(*models, **settings))
        return made[-1]

    yield make
    for rig in made:
        rig.effects.kill(rig.effects.running_daemons(), force=True)


class Later:
    """A watch of a node whose time a test sets."""

    def __init__(self, rig):
        self.rig, self.watch = rig, MpsWatch()

    def look(self, after=0.0):
        """Everything that is wrong, seen so many seconds after the last look that asked."""
        self.watch._due -= after
        self.watch.look(self.rig.site)
        return self.watch.troubles


def control(rig):
    """The pid of the one daemon, as its file has it."""
    (path,) = rig.node.path("/s/mps").glob("*/daemon.json")
    return json.loads(path.read_text())["process"][0]


@pytest.fixture
def hang(monkeypatch):
    """Stops a daemon, which takes a moment if it is just starting a process; from now on none is waited for long."""

    def stop(rig):
        pid = control(rig)
        os.kill(pid, signal.SIGSTOP)
        stat = Path(f"/proc/{pid}/stat")
        assert rig.site.clock.until(lambda: stat.read_text().rpartition(") ")[2].startswith("T"), LONG)
        monkeypatch.setattr(mps, "_SECONDS", 0.3)

    return stop


@pytest.fixture
def go_on(monkeypatch):
    """Has a daemon that was stopped go on; it may take its time again."""

    def start(rig):
        os.kill(control(rig), signal.SIGCONT)
        monkeypatch.setattr(mps, "_SECONDS", LONG)

    return start


def with_mps(config, kind="GpuConfig", **more):
    return claim(request("gpu", **more), config=config(kind, strategy="MPS"))


def test_a_daemon_that_hangs_is_told_of_when_it_does_not_answer_twice(make_node, config, hang, go_on, caplog):
    rig = make_node("L4", "L4")
    prepared = rig.driver.prepare(with_mps(config))
    later, uuid = Later(rig), rig.memory.gpus[0].uuid
    assert later.look() == {}
    hang(rig)
    assert later.look() == {}
    assert later.look(ASK_SECONDS) == {}
    assert later.look() == {}
    assert list(later.look(ASK_SECONDS)) == [uuid]
    assert "its MPS daemon does not answer: " in later.watch.troubles[uuid]
    assert "get_server_list" in later.watch.troubles[uuid]
    assert "does not answer" in caplog.text
    assert list(later.look()) == [uuid]
    go_on(rig)
    assert later.look(ASK_SECONDS) == {}
    hang(rig)
    assert later.look(ASK_SECONDS) == {}
    go_on(rig)
    rig.driver.unprepare(prepared)


def test_what_hung_is_forgotten_with_its_claim(make_node, config, hang):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    later = Later(rig)
    hang(rig)
    later.look()
    assert later.look(ASK_SECONDS)
    rig.driver.unprepare(prepared)
    assert later.look() == {}


def test_one_that_cannot_be_started_again_is_told_of_too(make_node, config):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    rig.effects.kill(rig.effects.running_daemons(), force=True)
    tool = rig.node.path("/usr/bin/nvidia-cuda-mps-control")
    works = tool.read_text()
    tool.write_text("#!/bin/sh\nexit 3\n")
    later = Later(rig)
    assert later.look() == {}
    assert later.look(ASK_SECONDS)
    tool.write_text(works)
    assert later.look(ASK_SECONDS) == {}
    rig.driver.unprepare(prepared)


def test_one_that_comes_up_but_takes_no_orders_is_not_kept(make_node, config):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    rig.effects.kill(rig.effects.running_daemons(), force=True)
    patient, rig.settings = rig.settings, replace(rig.settings, mps_seconds=0.2)
    tool = rig.node.path("/usr/bin/nvidia-cuda-mps-control")
    works = tool.read_text()
    tool.write_text('#!/bin/sh\n[ "$1" = -f ] || exit 1\nexec sleep 60\n')
    later = Later(rig)
    for _ in range(3):
        later.look()
        assert rig.site.clock.until(lambda: not rig.effects.running_daemons(), LONG)
    tool.write_text(works)
    rig.settings = patient
    later.look()
    assert rig.effects.started(control(rig)) is not None
    rig.driver.unprepare(prepared)


def test_the_environment_of_processes_is_not_read_while_all_is_well(make_node, config, monkeypatch):
    rig = make_node("L4", "L4")
    for _ in range(2):
        rig.driver.prepare(with_mps(config))
    later = Later(rig)
    later.look()
    asked = len(rig.effects.calls)
    with monkeypatch.context() as patched:
        patched.setattr("dra_driver_gpu.effects._environment", lambda _pid: pytest.fail("read"))
        later.look()
    assert len(rig.effects.calls) == asked


def test_a_daemon_that_ended_is_started_again_although_what_it_started_goes_on(make_node, config, caplog):
    """A server that outlives its daemon has the same environment; its clients go on."""
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    (daemon,) = MpsDaemons(rig.site).kept()
    log = rig.node.path("/tmp/log")
    log.parent.mkdir(parents=True, exist_ok=True)
    command = MpsDaemons(rig.site)._daemon(daemon)
    server = rig.effects.start(type(command)(["sleep", "60"], env=command.env), log)
    before = control(rig)
    rig.effects.kill([before], force=True)
    assert rig.site.clock.until(lambda: rig.effects.started(before) is None, LONG)
    Later(rig).look()
    assert "was started again" in caplog.text
    assert control(rig) not in {before, server}
    assert rig.effects.started(server) is not None
    rig.driver.unprepare(prepared)
    assert rig.effects.running_daemons() == []


def test_another_process_with_the_number_of_a_daemon_is_not_taken_for_it(make_node, config):
    rig = make_node("L4")
    prepared = rig.driver.prepare(with_mps(config))
    (path,) = rig.node.path("/s/mps").glob("*/daemon.json")
    told = json.loads(path.read_text())
    rig.effects.kill([told["process"][0]], force=True)
    path.write_text(json.dumps({**told, "process": [os.getpid(), told["process"][1]]}))
    Later(rig).look()
    assert control(rig) != os.getpid()
    rig.driver.unprepare(prepared)


def test_a_daemon_of_a_start_that_was_interrupted_is_found(make_node, config):
    rig = make_node("L4")
    asked = rig.driver.allocate(with_mps(config))
    prepared = rig.driver.prepare(asked)
    before = control(rig)
    (path,) = rig.node.path("/s/mps").glob("*/daemon.json")
    daemon = MpsDaemons(rig.site).kept()[0]
    path.unlink()
    MpsDaemons(rig.site).start(type(daemon)(daemon.claim, daemon.devices))
    assert control(rig) == before
    rig.driver.unprepare(prepared)


def unhealthy(rig):
    """What the driver reports once a daemon was asked twice."""
    for _ in range(2):
        rig.driver.plugin._daemons[rig.node.root]._due = 0.0
        rig.driver.plugin._daemons[rig.node.root].look(rig.site)
    reports = rig.driver.plugin.dra_device_health(rig.node.node, threading.Event())
    found = {each.device: each.message for each in next(reports) if each.status is HealthStatus.UNHEALTHY}
    reports.close()
    return found


def test_a_hung_daemon_makes_its_gpu_unhealthy(make_node, config, hang):
    rig = make_node("L4", "L4", passthrough=True)
    rig.driver.prepare(with_mps(config))
    assert unhealthy(rig) == {}
    hang(rig)
    ((name, message),) = unhealthy(rig).items()
    assert (name, message.partition(": ")[0]) == ("gpu-0", "its MPS daemon does not answer")


def test_a_hung_daemon_makes_its_mig_device_unhealthy_and_none_beside_it(make_node, config, hang):
    rig = make_node("H100-80GB", "L4", dynamic_mig=True)
    rig.driver.prepare(with_mps(config, "MigDeviceConfig", device_class="mig.nvidia.com"))
    hang(rig)
    names = {"1g10gb-19", "1g10gb-me-20"}  # the other could be had at its place
    assert unhealthy(rig).keys() == {f"gpu-0-mig-{each}-6" for each in names}
