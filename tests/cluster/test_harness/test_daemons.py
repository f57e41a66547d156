"""Components that run, die, and do not serve in time."""

from __future__ import annotations

import io
import signal

import pytest

from tests.cluster.harness import HarnessError
from tests.cluster.harness.components import Component
from tests.cluster.harness.daemons import Daemons
from tests.cluster.harness.layout import Layout
from tests.cluster.harness.processes import MARK, Process, kill
from tests.cluster.harness.progress import Progress
from tests.cluster.harness.state import State
from tests.cluster.test_harness.states import make_state

SLEEP = ["/bin/sh", "-c", "exec sleep 600"]


@pytest.fixture
def daemons(layout):
    parts = {name: Component(name, SLEEP, lambda: True) for name in ("etcd", "apiserver", "scheduler", "kubelet")}
    parts["broken"] = Component("broken", ["/bin/sh", "-c", "echo no such flag; exit 2"], lambda: False)
    parts["slow"] = Component("slow", SLEEP, lambda: False)
    state = make_state()
    made = Daemons(layout, state, parts, {"PATH": "/bin:/usr/bin", MARK: "unit-daemons"}, Progress(io.StringIO()))
    yield made
    kill(state.processes.values())


def recorded(layout: Layout) -> set[str]:
    state = State.load(layout.state_file)
    assert state is not None
    return set(state.processes)


def test_daemon_is_recorded_while_it_should_run(layout, daemons):
    daemons.start("etcd")
    first = daemons.pid("etcd")
    daemons.start("etcd")
    assert daemons.pid("etcd") == first
    assert recorded(layout) == {"etcd"}
    daemons.stop("etcd")
    assert recorded(layout) == set()
    assert not daemons.states()["etcd"]
    with pytest.raises(HarnessError, match="etcd does not run"):
        daemons.pid("etcd")


def test_the_error_of_a_component_that_dies_has_its_log(daemons):
    with pytest.raises(HarnessError, match=r"(?s)broken \(process \d+\) died; its log ends:\nno such flag"):
        daemons.start("broken")


def test_a_component_that_does_not_serve_in_time_is_an_error(daemons):
    with pytest.raises(HarnessError, match=r"(?s)slow serves: not within 0 s.*\(empty log\)"):
        daemons.start("slow", timeout=0.1)


def test_the_error_of_an_unknown_component_names_the_known_ones(daemons):
    with pytest.raises(HarnessError, match=r"'etdc': expected one of etcd, apiserver"):
        daemons.start("etdc")


def test_waiting_ends_when_a_component_dies(daemons):
    daemons.start("kubelet")
    Process.of(daemons.pid("kubelet")).send(signal.SIGKILL)
    with pytest.raises(HarnessError, match=r"kubelet .* died"):
        daemons.wait_until(lambda: False, "the moon", 30)


def test_the_scheduler_may_die_while_the_api_server_is_down_and_starts_with_it(daemons):
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


def test_waiting_returns_what_the_check_found(daemons):
    answers_in_turn = iter([None, [], "found"])
    assert daemons.wait_until(lambda: next(answers_in_turn), "it", 30) == "found"
