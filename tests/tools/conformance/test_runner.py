from __future__ import annotations

from collections.abc import Callable

import pytest

from dra_sdk.errors import DraError
from dra_sdk.tools.conformance.check import CheckFailed, Level, Need, NotApplicable, NotRun, Result, Status
from dra_sdk.tools.conformance.run import Run
from dra_sdk.tools.conformance.runner import by_level, run_check, run_checks
from tests.tools.conformance.conftest import Opener
from tests.tools.conformance.mutants.faults import faults


def ran(run: Run, function: Callable[[Run], None], *needs: Need) -> Result:
    level = Level("any", "Any")
    level.must("ANY-001", "nowhere", *needs)(function)
    return run_check(run, level.checks[0])


def raising(error: Exception) -> Callable[[Run], None]:
    def function(_run: Run) -> None:
        raise error

    return function


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (CheckFailed("too blue"), Status.FAILED, "too blue"),
        (NotApplicable("no colour"), Status.NOT_APPLICABLE, "no colour"),
        (NotRun("no light"), Status.NOT_RUN, "no light"),
        (DraError("no server"), Status.NOT_RUN, "the kit met a problem of its own: no server"),
    ],
)
def test_what_becomes_of_a_check(open_run: Opener, error: Exception, status: Status, reason: str) -> None:
    with open_run() as run:
        result = ran(run, raising(error))
    assert (result.status, result.reason) == (status, reason)


def test_a_failure_shows_what_was_said(open_run: Opener) -> None:
    def function(run: Run) -> None:
        run.prepared(run.claims.one())
        raise CheckFailed("too blue", colour="blue")

    with open_run() as run:
        result = ran(run, function)
        assert not run.cdi.paths()
    assert result.evidence[0] == ("colour", "blue")
    name, exchange = result.evidence[-1]
    assert name == "NodePrepareResources"
    assert set(exchange) == {"request", "answer", "seconds"}
    assert result.seconds > 0


def test_what_a_run_does_not_have_is_not_passed(open_run: Opener) -> None:
    with open_run() as run:
        run.subject.launcher = None
        run.site = run.site.__class__(**{**vars(run.site), "requests": None})
        for need in Need:
            result = ran(run, raising(AssertionError()), need)
            assert (result.status, result.reason) == (Status.NOT_RUN, need.value)
        run.disruptive = True
        assert ran(run, lambda _run: None, Need.ALONE).status is Status.PASSED


def test_a_driver_that_died_meanwhile_has_not_passed(open_run: Opener) -> None:
    def function(run: Run) -> None:
        run.driver.registrar.notify("refused")

    with open_run(faults("dies-of-refusal")) as run:
        result = ran(run, function)
        assert result.status is Status.FAILED
        assert "ended with status 1" in result.reason
        assert ran(run, lambda run: run.prepared(run.claims.one()) and None).status is Status.PASSED


def test_results_are_heard_of_as_they_come(open_run: Opener) -> None:
    levels = [Level(name, name) for name in ("a", "b")]
    for level in levels:
        level.must("ANY-001", "nowhere")(lambda _run: None)
    heard: list[Result] = []
    with open_run() as run:
        results = run_checks(run, [check for level in levels for check in level.checks], heard.append)
    assert heard == results
    assert [(level, len(found)) for level, found in by_level(results)] == [("a", 1), ("b", 1)]
