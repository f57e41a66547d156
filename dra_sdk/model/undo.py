"""The steps by which `dra_unprepare` undoes a claim: each is tried, also if others have failed, and has a verdict.

Only a step that is refused and dangerous holds the claim, because the device is not safe for its next owner.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from dra_sdk.errors import DraError, NotNeededError, RetriableError, raised_at

log = logging.getLogger(__name__)
WHOLE: Final = "dra_unprepare"
"""The name of the step that is the whole hook: what is raised outside of all others."""


class Verdict(StrEnum):
    """What became of a step."""

    DONE = "done"
    NOT_NEEDED = "not needed"
    HARMLESS = "harmless"
    SKIPPED = "skipped"
    DANGEROUS = "dangerous"


@dataclass(frozen=True, slots=True)
class UndoStep:
    """A step of an undo.

    name: what it brings back, in words, the same at each attempt.
    verdict: what became of it.
    reason: why it was refused or not needed; empty if it was done.
    """

    name: str
    verdict: Verdict
    reason: str = ""

    def __str__(self) -> str:
        return self.reason if self.name == WHOLE else f"{self.name}: {self.reason}"


class Undo:
    """One attempt to undo a claim. Safe for threads.

    steps: the steps that have ended, in their order.

    `skipped` are the names of steps that an operator does without: they are tried, and may be refused.
    """

    def __init__(self, skipped: Collection[str] = ()) -> None:
        self.steps: list[UndoStep] = []
        self._skipped = skipped
        self._errors: list[Exception] = []

    @property
    def refused(self) -> list[UndoStep]:
        """The steps that hold the claim."""
        return [step for step in self.steps if step.verdict is Verdict.DANGEROUS]

    @property
    def has_skipped(self) -> bool:
        """Whether the claim ends only because an operator does without a step."""
        return any(step.verdict is Verdict.SKIPPED for step in self.steps)

    @contextmanager
    def step(self, name: str, claim: object, *, harmless: bool = False) -> Iterator[None]:
        """Try a step for a claim; see `HeldClaim.undoing`."""
        try:
            yield
        except Exception as error:  # noqa: BLE001 (any of an author's code: the other steps are tried)
            step = UndoStep(name, self._verdict(name, error, harmless=harmless), _reason(error))
            _log(step, claim, error)
            self._end(step, claim, error)
        else:
            if name != WHOLE:
                self._end(UndoStep(name, Verdict.DONE), claim)

    def check(self) -> None:
        """Raise the error of the steps that hold the claim: a RetriableError with all of them, one sentence each."""
        refused = self.refused
        if [step.name for step in refused] == [WHOLE]:
            raise self._errors[0]
        if refused:
            raise RetriableError("; ".join(map(str, refused))) from self._errors[0]

    def _verdict(self, name: str, error: Exception, *, harmless: bool) -> Verdict:
        if isinstance(error, NotNeededError) and name != WHOLE:  # the rest of the hook was not tried
            return Verdict.NOT_NEEDED
        if harmless:
            return Verdict.HARMLESS
        return Verdict.SKIPPED if name in self._skipped else Verdict.DANGEROUS

    def _end(self, step: UndoStep, claim: object, error: Exception | None = None) -> None:
        del claim
        self.steps.append(step)
        if error is not None and step.verdict is Verdict.DANGEROUS:
            self._errors.append(error)


class AtOnce(Undo):
    """Steps outside of `dra_unprepare`, as of a pod that stops: a dangerous refusal is raised at once.

    `report` takes each other step with its claim.
    """

    def __init__(self, report: Callable[[Any, Sequence[UndoStep]], None] = lambda _claim, _steps: None) -> None:
        super().__init__()
        self._report = report

    def _end(self, step: UndoStep, claim: object, error: Exception | None = None) -> None:
        if error is not None and step.verdict is Verdict.DANGEROUS:
            raise error
        self._report(claim, [step])


AT_ONCE: Final = AtOnce()
"""What `HeldClaim.undo` is outside of the SDK's `dra_unprepare`."""


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, DraError) else f"{type(error).__name__}: {error}{raised_at(error)}"


def _log(step: UndoStep, claim: object, error: Exception) -> None:
    if step.verdict is Verdict.NOT_NEEDED:
        log.warning("%s: nothing is left to undo: %s", claim, step)
    elif step.verdict is Verdict.HARMLESS:
        log.warning("%s: a step of its undo is refused, which does no harm to the next claim: %s", claim, step)
    elif step.verdict is Verdict.SKIPPED:
        log.warning("%s: a step of its undo is refused, and skipped as an operator wants it: %s", claim, step)
    elif step.name != WHOLE and not isinstance(error, DraError | OSError):  # a mistake in the driver
        log.error("%s: a step of its undo failed: %s", claim, step, exc_info=error)
