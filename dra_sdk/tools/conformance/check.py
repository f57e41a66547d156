"""What a check is: a sentence of the contract, where it is stated, and a function that tries it on a driver.

A check's function has the sentence as its docstring. It returns where the driver keeps to it, and raises otherwise:
`CheckFailed`, `NotApplicable` where the driver has nothing that the sentence is about, `NotRun` where this run cannot
tell. Only what was seen to work counts as passed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dra_sdk.tools.conformance.run import Run

    Function = Callable[[Run], None]


class Severity(StrEnum):
    """How much a broken sentence matters: `MUST` breaks pods, nodes or other drivers, `SHOULD` is good practice."""

    MUST = "must"
    SHOULD = "should"


class Status(StrEnum):
    """What became of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_APPLICABLE = "not applicable"
    NOT_RUN = "not run"


class Need(StrEnum):
    """What a check needs of the run; the value is what is said where that is not there."""

    RESTART = "stops and starts the driver, so it needs --command or --driver"
    INSTANCES = "needs two instances at once: --driver, or a --command with {pod_uid}"
    ALONE = "disturbs the node, so it needs a driver of its own (--command or --driver) or --disruptive"
    OWN_SERVER = "reads the API server's request log, so it needs the embedded one (no --kubeconfig)"


class CheckFailed(Exception):  # noqa: N818 (an outcome, not an error of the kit)
    """The driver does not keep to the sentence; `evidence` are named JSON values that show it."""

    def __init__(self, why: str, **evidence: Any) -> None:
        super().__init__(why)
        self.evidence = evidence


class NotApplicable(Exception):  # noqa: N818
    """The driver has nothing that the sentence is about."""


class NotRun(Exception):  # noqa: N818
    """This run cannot tell."""


@dataclass(frozen=True)
class Check:
    """One check; `id` is stable, such as `PREP-003`."""

    id: str
    level: str
    source: str
    severity: Severity
    needs: frozenset[Need]
    function: Function

    @property
    def contract(self) -> str:
        """The sentence of the contract, on one line."""
        return " ".join((self.function.__doc__ or "").split())

    @property
    def title(self) -> str:
        """A few words to tell it by."""
        return self.function.__name__.replace("_", " ")


@dataclass
class Level:
    """A group of checks that are run together; `name` is what `--level` takes."""

    name: str
    title: str
    checks: list[Check] = field(default_factory=list)

    def must(self, ident: str, source: str, *needs: Need) -> Callable[[Function], Function]:
        """Decorate the function of a check whose sentence must hold."""
        return self._add(ident, source, Severity.MUST, needs)

    def should(self, ident: str, source: str, *needs: Need) -> Callable[[Function], Function]:
        """Decorate the function of a check whose sentence should hold."""
        return self._add(ident, source, Severity.SHOULD, needs)

    def _add(
        self, ident: str, source: str, severity: Severity, needs: Iterable[Need]
    ) -> Callable[[Function], Function]:
        def add(function: Function) -> Function:
            self.checks.append(Check(ident, self.name, source, severity, frozenset(needs), function))
            return function

        return add


@dataclass(frozen=True)
class Result:
    """What became of one check; `evidence` are named JSON values, what was sent and answered among them."""

    check: Check
    status: Status
    reason: str = ""
    seconds: float = 0.0
    evidence: tuple[tuple[str, Any], ...] = ()

    @property
    def failed(self) -> bool:
        """Whether the driver does not keep to the sentence."""
        return self.status is Status.FAILED


def expect(condition: object, why: str, **evidence: Any) -> None:
    """Raise `CheckFailed` unless the condition holds."""
    if not condition:
        raise CheckFailed(why, **evidence)
