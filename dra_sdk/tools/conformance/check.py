"""What a check is, and how it is run: on a driver that runs and holds no claim.

A check is a sentence of the contract, the source of that sentence, and a function that tests it on a driver. The
docstring of the function is the sentence. Only what was seen to work has passed (see `outcomes`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from dra_sdk.errors import DraError
from dra_sdk.tools.conformance.outcomes import CheckFailedError, NotApplicableError, NotRunError
from dra_sdk.tools.conformance.run import Run

Function = Callable[[Run], None]
Evidence = list[tuple[str, Any]]
"""Named JSON values."""


class Severity(StrEnum):
    """`MUST`: a violation breaks pods, nodes or other drivers. `SHOULD`: good practice."""

    MUST = "must"
    SHOULD = "should"


class Status(StrEnum):
    """The result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    NOT_RUN = "not run"


class Need(StrEnum):
    """What a check needs from the run. The value is the reason in the report if the run does not have it."""

    RESTART = "stops and starts the driver, so it needs --command or --driver"
    TWO_INSTANCES = "needs two instances at once: --driver, or a --command with {pod_uid}"
    DISRUPTION = "disturbs the node, so it needs a driver of its own (--command or --driver) or --disruptive"
    HOST_TREE = "compares the host's files, so it needs --host-root with a tree of files, which nothing else changes"
    EMBEDDED_SERVER = "reads the API server's request log, so it needs the embedded server (no --kubeconfig)"

    def met(self, run: Run) -> bool:
        """Return whether the run has it."""
        launcher = run.driver.launcher
        return {
            Need.RESTART: launcher is not None,
            Need.TWO_INSTANCES: launcher is not None and launcher.concurrent,
            Need.DISRUPTION: launcher is not None or run.disruptive,
            Need.HOST_TREE: run.environment.host_root != Path("/"),
            Need.EMBEDDED_SERVER: run.environment.requests is not None,
        }[self]


@dataclass(frozen=True)
class Check:
    """One check.

    id: stable name, such as `PREP-003`.
    level: name of its level.
    source: where the sentence comes from.
    severity: how much a violation matters.
    requirements: what the run must have.
    function: tests a driver.
    """

    id: str
    level: str
    source: str
    severity: Severity
    requirements: frozenset[Need]
    function: Function

    @property
    def contract(self) -> str:
        """The sentence of the contract, on one line."""
        return " ".join((self.function.__doc__ or "").split())

    @property
    def title(self) -> str:
        """A short name."""
        return self.function.__name__.replace("_", " ")


@dataclass
class Level:
    """A group of checks that run together.

    name: what `--level` takes.
    title: heading in reports.
    checks: in the order in which they run.
    """

    name: str
    title: str
    checks: list[Check] = field(default_factory=list)

    def must(self, check_id: str, source: str, *requirements: Need) -> Callable[[Function], Function]:
        """Decorate the function of a check with severity `MUST`."""
        return self._add(check_id, source, Severity.MUST, requirements)

    def should(self, check_id: str, source: str, *requirements: Need) -> Callable[[Function], Function]:
        """Decorate the function of a check with severity `SHOULD`."""
        return self._add(check_id, source, Severity.SHOULD, requirements)

    def _add(
        self, check_id: str, source: str, severity: Severity, requirements: Iterable[Need]
    ) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            self.checks.append(Check(check_id, self.name, source, severity, frozenset(requirements), function))
            return function

        return add


@dataclass(frozen=True)
class Result:
    """The result of one check.

    reason: why it did not pass; empty if it did.
    seconds: duration.
    evidence: named JSON values for a failed check, with the calls that were made.
    """

    check: Check
    status: Status
    reason: str = ""
    seconds: float = 0.0
    evidence: tuple[tuple[str, Any], ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the driver breaks the contract."""
        return self.status is Status.FAILED


def run_checks(
    run: Run, checks: Iterable[Check], on_result: Callable[[Result], None] = lambda _result: None
) -> list[Result]:
    """Run checks one after another; `on_result` gets each result as soon as it is known."""
    results = []
    for check in checks:
        results.append(run_check(run, check))
        on_result(results[-1])
    return results


def run_check(run: Run, check: Check) -> Result:
    """Run one check and remove its claims."""
    for requirement in check.requirements:
        if not requirement.met(run):
            return Result(check, Status.NOT_RUN, requirement.value)
    run.driver.recover()
    run.driver.recorder.take()
    began = time.monotonic()
    status, reason, evidence = _outcome(run, check)
    seconds = time.monotonic() - began
    if status is Status.FAILED:
        evidence += [(exchange.method, exchange.encoded()) for exchange in run.driver.recorder.take()]
    crash = run.driver.crash
    if crash and status is not Status.FAILED:
        status, reason = Status.FAILED, crash
    elif crash:
        evidence.append(("the driver's process", crash))
    with suppress(NotRunError):  # the driver does not run any more; the next check reports it
        run.claims.clean_up()
    return Result(check, status, reason, seconds, tuple(evidence))


def _outcome(run: Run, check: Check) -> tuple[Status, str, Evidence]:
    try:
        check.function(run)
    except CheckFailedError as failed:
        return Status.FAILED, str(failed), list(failed.evidence.items())
    except NotApplicableError as reason:
        return Status.NOT_APPLICABLE, str(reason), []
    except NotRunError as reason:
        return Status.NOT_RUN, str(reason), []
    except (DraError, OSError) as error:
        return Status.NOT_RUN, f"the kit itself failed: {error}", []
    return Status.PASSED, "", []
