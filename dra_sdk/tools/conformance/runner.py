"""Running checks one after another, each on a driver that runs and holds no claim."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from dra_sdk.errors import DraError
from dra_sdk.tools.conformance.check import Check, CheckFailed, Need, NotApplicable, NotRun, Result, Status
from dra_sdk.tools.conformance.run import Run

Evidence = list[tuple[str, Any]]


def run_checks(
    run: Run, checks: Iterable[Check], heard: Callable[[Result], None] = lambda _result: None
) -> list[Result]:
    """Run checks and tell `heard` of each result as it comes."""
    results = []
    for check in checks:
        results.append(run_check(run, check))
        heard(results[-1])
    return results


def run_check(run: Run, check: Check) -> Result:
    """Run one check and put everything back."""
    for need in check.needs:
        if not _met(run, need):
            return Result(check, Status.NOT_RUN, need.value)
    run.subject.recover()
    run.subject.recorder.take()
    began = time.monotonic()
    status, reason, evidence = _outcome(run, check)
    seconds = time.monotonic() - began
    if status is Status.FAILED:
        evidence += [(each.method, each.encoded()) for each in run.subject.recorder.take()]
    died = run.subject.died
    if died and status is not Status.FAILED:
        status, reason = Status.FAILED, died
    elif died:
        evidence.append(("the driver's process", died))
    _tidy(run)
    return Result(check, status, reason, seconds, tuple(evidence))


def _outcome(run: Run, check: Check) -> tuple[Status, str, Evidence]:
    try:
        check.function(run)
    except CheckFailed as failed:
        return Status.FAILED, str(failed), list(failed.evidence.items())
    except NotApplicable as why:
        return Status.NOT_APPLICABLE, str(why), []
    except NotRun as why:
        return Status.NOT_RUN, str(why), []
    except (DraError, OSError) as error:
        return Status.NOT_RUN, f"the kit met a problem of its own: {error}", []
    return Status.PASSED, "", []


def _tidy(run: Run) -> None:
    try:
        run.claims.tidy()
    except NotRun:
        return  # there is no driver any more, which the next check will tell


def _met(run: Run, need: Need) -> bool:
    launcher = run.subject.launcher
    return {
        Need.RESTART: launcher is not None,
        Need.INSTANCES: launcher is not None and launcher.instances,
        Need.ALONE: launcher is not None or run.disruptive,
        Need.OWN_SERVER: run.site.requests is not None,
    }[need]


def by_level(results: Iterable[Result]) -> Iterator[tuple[str, list[Result]]]:
    """The results of each level, in the order in which they came."""
    levels: dict[str, list[Result]] = {}
    for result in results:
        levels.setdefault(result.check.level, []).append(result)
    yield from levels.items()
