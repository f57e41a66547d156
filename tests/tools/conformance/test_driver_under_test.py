from __future__ import annotations

import signal
import sys
from dataclasses import replace

import pytest

from dra_sdk.tools.conformance.driver_under_test import DriverNotRunningError
from tests.tools.conformance.conftest import TIMEOUTS, OpenRun
from tests.tools.conformance.mutants import faults
from tests.tools.conformance.mutants.launcher import MutantLauncher


def test_the_driver_is_started_when_it_is_first_needed(open_run: OpenRun) -> None:
    with open_run() as run:
        assert run.driver.name == ""
        first = run.instance
        assert run.driver.name == first.info.name
        assert run.instance is first
        assert first.version == "v1.DRAPlugin"
        assert first.registration.ok
        assert first.first_prepare.ok
        assert first.service_socket.is_socket()


def test_the_driver_is_restarted_stopped_and_killed(open_run: OpenRun) -> None:
    with open_run() as run:
        first = run.driver.restart()
        second = run.driver.restart()
        assert first is not second
        assert run.driver.stop()
        assert not second.registration_socket.exists()
        third = run.driver.start()
        run.driver.kill()
        assert third.registration_socket.exists()
        assert run.driver.stop()
        assert run.driver.start().registration_socket == third.registration_socket


def test_a_dead_driver_stays_dead_until_the_next_check(open_run: OpenRun) -> None:
    with open_run(faults("dies-of-refusal")) as run:
        dead = run.instance
        dead.registrar.notify("refused")
        assert run.instance is dead
        crash = run.driver.crash
        assert crash.endswith("ended with status 1; last lines of its output:\nthe mutant prints nothing")
        run.driver.recover()
        assert run.driver.crash == ""
        assert run.instance is not dead


def test_the_newest_of_several_instances_is_called(open_run: OpenRun) -> None:
    with open_run() as run:
        run.driver.start()
        run.driver.stop()
        with run.driver.another_instance("uid-1") as old, run.driver.another_instance("uid-2") as new:
            assert old.registration_socket.name.endswith("-uid-1-reg.sock")
            assert run.instance is new
            run.driver.stop_instance(new)
            assert run.instance is old
        assert not old.registration_socket.exists()


def test_a_driver_that_does_not_register_is_started_twice_only(open_run: OpenRun) -> None:
    launcher = CountingLauncher("hidden.example.com", faults("hidden-socket"))
    with open_run(timeouts=replace(TIMEOUTS, start=0.2), launcher=launcher) as run:
        for _ in range(3):
            with pytest.raises(
                DriverNotRunningError, match=r"within 0.2 s; the directory has \.hidden\.example\.com-reg\.sock"
            ):
                run.driver.start()
    assert launcher.starts == 2


def test_a_process_that_ends_too_early_is_reported_with_its_output(open_run: OpenRun) -> None:
    with open_run(faults("once")) as run:
        run.driver.start()
        run.driver.stop()
        reason = "ended with status 1 before it registered; last lines of its output:\nlock"
        with pytest.raises(DriverNotRunningError, match=reason):
            run.driver.start()


def test_a_signal_during_a_start_ends_the_started_process(open_run: OpenRun) -> None:
    """The signal arrives before the launcher has returned, when nobody else knows the process."""
    launcher = InterruptedLauncher("interrupted.example.com", faults())
    before = signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(number))
    try:
        with open_run(launcher=launcher) as run, pytest.raises(SystemExit):
            run.driver.start()
    finally:
        signal.signal(signal.SIGTERM, before)
    assert [process.exit_reason() for process in launcher.processes] == ["was killed by SIGKILL"]


class InterruptedLauncher(MutantLauncher):
    def start(self, environment, pod_uid):
        self.processes = [super().start(environment, pod_uid)]
        try:
            signal.raise_signal(signal.SIGTERM)
        except SystemExit:
            self.processes[0].kill()  # else its threads would go on for ever
            self.processes = []
            raise
        return self.processes[0]


class CountingLauncher(MutantLauncher):
    starts = 0

    def start(self, environment, pod_uid):
        self.starts += 1
        return super().start(environment, pod_uid)
