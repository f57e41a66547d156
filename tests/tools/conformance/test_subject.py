from __future__ import annotations

import pytest

from dra_sdk.tools.conformance.check import NotRun
from dra_sdk.tools.conformance.subject import NotServingError
from tests.tools.conformance.conftest import Opener
from tests.tools.conformance.mutants.faults import faults


def test_the_driver_is_started_when_it_is_first_needed_and_its_name_learnt(open_run: Opener) -> None:
    with open_run() as run:
        assert run.subject.name == ""
        first = run.driver
        assert run.subject.name == first.info.name
        assert run.driver is first
        assert first.version == "v1.DRAPlugin"
        assert first.notified.ok
        assert first.first_call.ok
        assert first.endpoint.is_socket()


def test_restart_stop_and_kill(open_run: Opener) -> None:
    with open_run() as run:
        first = run.subject.restart()
        second = run.subject.restart()
        assert first is not second
        assert run.subject.stop()
        assert not second.registration.exists()
        third = run.start()
        run.subject.kill()
        assert third.registration.exists()
        assert run.subject.stop()
        assert run.start().registration == third.registration


def test_a_dead_driver_stays_dead_until_the_next_check(open_run: Opener) -> None:
    with open_run(faults("dies-of-refusal")) as run:
        dead = run.driver
        dead.registrar.notify("refused")
        assert run.driver is dead
        assert "ended with status 1; it printed last:\nthe mutant prints nothing" in run.subject.died
        run.subject.recover()
        assert run.subject.died == ""
        assert run.driver is not dead


def test_further_instances_are_asked_first(open_run: Opener) -> None:
    with open_run() as run:
        run.start()
        run.subject.stop()
        with run.subject.beside("uid-1") as old, run.subject.beside("uid-2") as new:
            assert old.registration.name.endswith("-uid-1-reg.sock")
            assert run.driver is new
            run.subject.end(new)
            assert run.driver is old
        assert not old.registration.exists()


def test_a_driver_that_does_not_register_is_not_started_for_ever(open_run: Opener) -> None:
    with open_run(faults("hidden-socket"), start=0.2) as run:
        for _ in range(2):
            with pytest.raises(NotServingError, match=r"within 0.2 s; there is \.m\d+\.example\.com-reg\.sock"):
                run.start()
        run.subject.patience = None  # type: ignore[assignment]  # a third start would need it
        with pytest.raises(NotRun, match="no socket in"):
            run.start()


def test_a_process_that_ends_is_told_of(open_run: Opener) -> None:
    with open_run(faults("once")) as run:
        run.start()
        run.subject.stop()
        with pytest.raises(NotServingError, match="ended with status 1 before it registered; it printed last:\nlock"):
            run.start()
