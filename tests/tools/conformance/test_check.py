from __future__ import annotations

from collections.abc import Callable

import pytest

from dra_sdk.errors import DraError
from dra_sdk.tools.conformance.check import Level, Need, Result, Severity, Status, run_check, run_checks
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, NotRunError
from dra_sdk.tools.conformance.run import Run
from tests.tools.conformance.conftest import OpenRun
from tests.tools.conformance.mutants import faults


def run_function(run: Run, function: Callable[[Run], None], *requirements: Need) -> Result:
    level = Level("any", "Any")
    level.must("ANY-001", "nowhere", *requirements)(function)
    return run_check(run, level.checks[0])


def raising(error: Exception) -> Callable[[Run], None]:
    def function(_run: Run) -> None:
        raise error

    return function


def test_a_level_collects_its_checks() -> None:
    level = Level("colour", "Colours")

    @level.must("COL-001", "somewhere", Need.RESTART)
    def is_red(_run: Run) -> None:
        """The driver
        is red."""

    @level.should("COL-002", "elsewhere")
    def is_round(_run: Run) -> None:
        """The driver is round."""

    must, should = level.checks
    assert (must.id, must.level, must.severity) == ("COL-001", "colour", Severity.MUST)
    assert must.requirements == {Need.RESTART}
    assert (must.contract, must.title, must.source) == ("The driver is red.", "is red", "somewhere")
    assert (should.severity, should.requirements) == (Severity.SHOULD, frozenset())


@pytest.mark.parametrize(
    ("error", "status", "reason"),
    [
        (CheckFailedError("too blue"), Status.FAILED, "too blue"),
        (NotApplicableError("no colour"), Status.NOT_APPLICABLE, "no colour"),
        (NotRunError("no light"), Status.NOT_RUN, "no light"),
        (DraError("no server"), Status.NOT_RUN, "the kit itself failed: no server"),
    ],
)
def test_an_exception_becomes_a_status(open_run: OpenRun, error: Exception, status: Status, reason: str) -> None:
    with open_run() as run:
        result = run_function(run, raising(error))
    assert (result.status, result.reason) == (status, reason)


def test_a_failure_has_the_calls_as_evidence(open_run: OpenRun) -> None:
    def function(run: Run) -> None:
        run.prepare(run.claims.create_one())
        raise CheckFailedError("too blue", colour="blue")

    with open_run() as run:
        result = run_function(run, function)
        assert not run.cdi.paths()
    assert result.evidence[0] == ("colour", "blue")
    name, exchange = result.evidence[-1]
    assert name == "NodePrepareResources"
    assert set(exchange) == {"request", "answer", "seconds"}
    assert result.seconds > 0


def test_a_check_whose_requirement_is_missing_is_not_run(open_run: OpenRun) -> None:
    with open_run(launcher=None, request_log=False, host_tree=False) as run:
        for requirement in Need:
            result = run_function(run, raising(AssertionError()), requirement)
            assert (result.status, result.reason) == (Status.NOT_RUN, requirement.value)


def test_a_driver_that_the_kit_may_disturb_is_disturbed(open_run: OpenRun) -> None:
    with open_run(launcher=None, disruptive=True) as run:
        assert run_function(run, lambda _run: None, Need.DISRUPTION).status is Status.PASSED


def test_a_check_during_which_the_driver_dies_fails(open_run: OpenRun) -> None:
    def function(run: Run) -> None:
        run.instance.registrar.notify("refused")

    with open_run(faults("dies-of-refusal")) as run:
        result = run_function(run, function)
        assert result.status is Status.FAILED
        assert "ended with status 1" in result.reason
        assert run_function(run, lambda run: run.prepare(run.claims.create_one()) and None).status is Status.PASSED


def test_each_result_is_reported_at_once(open_run: OpenRun) -> None:
    level = Level("any", "Any")
    reported: list[Result] = []

    def check(_run: Run) -> None:
        seen.append(len(reported))

    seen: list[int] = []
    for check_id in ("ANY-001", "ANY-002"):
        level.must(check_id, "nowhere")(check)
    with open_run() as run:
        results = run_checks(run, level.checks, reported.append)
    assert reported == results
    assert seen == [0, 1]
