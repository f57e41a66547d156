"""The open choices of a search: what may still be tried, and what is taken back when it led nowhere."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple, Protocol

from dra_sdk.tools.scheduling.allocator.choices import Choice, Choices
from dra_sdk.tools.scheduling.allocator.eligible import Eligible
from dra_sdk.tools.scheduling.allocator.needs import Need
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.requests import Request


class Task(NamedTuple):
    """The next thing to fill: a device of an alternative of a request, from the eligible one at `start` on.

    Everything is an index; `alternative` is None where that is still to be decided.
    """

    claim: int
    group: int = 0
    alternative: int | None = None
    device: int = 0
    start: int = 0


class Outcome(Enum):
    """How a task ended."""

    DONE = "everything is filled"
    FAILED = "it cannot be filled"
    TOO_MANY = "the claim would get more devices than a claim may have"


class Frame(Protocol):
    """An open choice."""

    def resume(self, result: Outcome | None) -> Task | Outcome:
        """What to try next: the first possibility for None, the one after that which ended with `result` else."""


class NextClaim:
    """Between two claims. That a claim is too large does not mean that one before it may not be filled otherwise."""

    __slots__ = ("_claim",)

    def __init__(self, claim: int) -> None:
        self._claim = claim

    def resume(self, result: Outcome | None) -> Task | Outcome:
        """See Frame."""
        return Task(self._claim) if result is None else Outcome.FAILED


class Alternatives:
    """The subrequests of a request, in order of preference."""

    __slots__ = ("_chosen", "_count", "_next", "_task", "_too_many")

    def __init__(self, chosen: dict[tuple[int, int], int], task: Task, count: int) -> None:
        self._chosen, self._task, self._count = chosen, task, count
        self._next = 0
        self._too_many = True

    def resume(self, result: Outcome | None) -> Task | Outcome:
        """See Frame."""
        if result is Outcome.FAILED:
            self._too_many = False
        index = self._next
        if index == self._count:
            return Outcome.TOO_MANY if self._too_many else Outcome.FAILED
        self._next += 1
        self._chosen[self._task.claim, self._task.group] = index
        return self._task._replace(alternative=index)


class EveryDevice:
    """One device of a request for all: exactly this one, or none."""

    __slots__ = ("_candidate", "_choice", "_choices", "_request", "_task")

    def __init__(self, choices: Choices, task: Task, request: Request, candidate: Candidate) -> None:
        self._choices, self._task, self._request, self._candidate = choices, task, request, candidate
        self._choice: Choice | None = None

    def resume(self, result: Outcome | None) -> Task | Outcome:
        """See Frame."""
        if self._choice is not None and result is not None:
            self._choices.undo(self._choice)
            return result
        task = self._task
        found = self._choices.choose(task.claim, self._request, self._candidate, must=True)
        if not isinstance(found, Choice):
            return Outcome.FAILED
        self._choice = found
        return task._replace(device=task.device + 1)


class AnyDevice:
    """One device of a request for some: the first eligible one that fits, and if that leads nowhere the next."""

    __slots__ = ("_choice", "_choices", "_looked", "_missing", "_next", "_task", "_usable", "eligible", "need")

    def __init__(self, choices: Choices, task: Task, need: Need, eligible: Eligible) -> None:
        self._choices, self._task, self.need, self.eligible = choices, task, need, eligible
        #: How many usable devices there have to be from one on for it to be of use; None if all must be tried.
        self._missing = None if choices.keeps_traces(task.claim) else need.count - task.device
        self._looked = task.start
        self._usable: list[int] = []
        self._next = 0
        self._choice: Choice | None = None

    def resume(self, result: Outcome | None) -> Task | Outcome:
        """See Frame."""
        self.undo()
        return self._tried() if result is not Outcome.TOO_MANY else result

    def undo(self) -> None:
        """Takes back the device that is chosen, if one is."""
        if self._choice is not None:
            self._choices.undo(self._choice)
            self._choice = None

    @property
    def barren(self) -> bool:
        """Whether not even a first device of the request could be tried."""
        return self._next == 0 and self._task.device == 0

    def _tried(self) -> Task | Outcome:
        task = self._task
        while self._reach(self._next + (self._missing or 1)):
            index = self._usable[self._next]
            self._next += 1
            found = self._choices.choose(task.claim, self.need.request, self.eligible[index], must=False)
            if isinstance(found, Choice):
                self._choice = found
                return task._replace(device=task.device + 1, start=index + 1)
        return Outcome.FAILED

    def _reach(self, count: int) -> bool:
        """Whether there are so many devices that constraints do not exclude; looks no further than that."""
        while len(self._usable) < count:
            index = self._looked
            if not self.eligible.reach(index + 1):
                return False
            self._looked += 1
            self._choices.looks += 1
            device = self.eligible[index].device
            if self._missing is None or not self._choices.excluded(self._task.claim, self.need.request, device):
                self._usable.append(index)
        return True
