"""Components that run, die, and do not serve in time."""

from __future__ import annotations

import io
import signal

import pytest

from tests.cluster.harness import HarnessError
from tests.cluster.harness.components import Component
from tests.cluster.harness.daemons import Daemons
from tests.cluster.harness.processes import MARK, Process, kill
from tests.cluster.harness.progress import Progress

SLEEP = ["/bin/sh", "-c", "exec sleep 600"]


@pytest.fixture
def daemons(layout, make_state):
    parts = {name: Component(name, SLEEP, lambda: True) for name in ("etcd", "apiserver", "scheduler", "kubelet")}
    parts["broken"] = Component("broken", ["/bin/sh", "-c", "echo no such flag; exit 2"], lambda: False)
    state = make_state()
    made = Daemons(layout, state, parts, {"PATH": "/bin:/usr/bin", MARK: "unit-daemons"}, Progress(io.StringIO()))
    yield made
    kill(state.processes.values())


def test_the_error_of_a_component_that_dies_has_its_log(daemons):
    with pytest.raises(HarnessError, match=r"(?s)broken \(process \d+\) died; its log ends:\nno such flag"):
        daemons.start("broken")


def test_waiting_ends_when_a_component_dies(daemons):
    daemons.start("kubelet")
    Process.of(daemons.pid("kubelet")).send(signal.SIGKILL)
    with pytest.raises(HarnessError, match=r"kubelet .* died"):
        daemons.wait_until(lambda: False, "the moon", 30)


def test_the_scheduler_may_die_with_the_api_server_and_starts_with_it(daemons):
    for name in ("etcd", "apiserver", "scheduler"):
        daemons.start(name)
    scheduler = Process.of(daemons.pid("scheduler"))
    daemons.kill("apiserver")
    kill([scheduler])
    with pytest.raises(HarnessError, match="the moon: not within"):
        daemons.wait_until(lambda: False, "the moon", 0.2)
    daemons.start("apiserver")
    assert daemons.states()["scheduler"]
    assert daemons.pid("scheduler") != scheduler.pid
