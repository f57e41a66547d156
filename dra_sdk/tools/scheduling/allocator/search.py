"""The search for devices: first fit, in order of preference, taking choices back where they lead nowhere.

Claims, requests and the devices of a request are filled one after the other. Devices are tried in the order of the
node's candidates, each set of devices for a request once, not in every order. Of alternatives the first that can be
filled together with everything after it is taken. The first solution counts, so that the order decides who gets what.

Open choices lie on a stack of their own: Python's is too small for what pods may ask for.
Source: k8s.io/dynamic-resource-allocation, structured (1.36). The order is the same; what cannot succeed any more for
want of devices is not tried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from dra_sdk.tools.scheduling.allocator.choices import Choices
from dra_sdk.tools.scheduling.allocator.eligible import Eligible, survey
from dra_sdk.tools.scheduling.allocator.errors import AllocationError, SearchLimitError
from dra_sdk.tools.scheduling.allocator.frames import (
    Alternatives,
    AnyDevice,
    EveryDevice,
    Frame,
    NextClaim,
    Outcome,
    Task,
)
from dra_sdk.tools.scheduling.allocator.needs import Need
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from dra_sdk.tools.scheduling.allocator.requests import MAX_RESULTS, ClaimPlan, Request

_LOOKS: Final = 4
"""So many devices looked at take as long as one step, or one device tried: about 4 µs."""


class Search:
    """One search on one node. `chosen` tells afterwards which alternative each group got, `steps` what it took.

    It is given up once `steps`, devices tried and devices looked at come to `limit` together.
    """

    def __init__(
        self,
        plans: Sequence[ClaimPlan],
        needs: Mapping[Request, Need],
        candidates: Sequence[Candidate],
        choices: Choices,
        *,
        limit: int,
    ) -> None:
        self.plans, self.needs, self.candidates, self.choices = plans, needs, candidates, choices
        self.chosen: dict[tuple[int, int], int] = {}
        self.steps = 0
        self._limit = limit
        self._open: list[Frame] = []
        self._surveys: dict[Request, int | None] = {}

    def run(self) -> bool:
        """Whether everything can be filled; then the choices are in `choices`."""
        result: Task | Outcome | None = Task(0)
        while True:
            if isinstance(result, Task):
                result = self._enter(result)
                if result is Outcome.DONE:
                    return True
            if not self._open:
                break
            frame = self._open[-1]
            result = frame.resume(result)
            self._check_limit()
            if isinstance(result, Outcome):
                self._open.pop()
                if isinstance(frame, AnyDevice) and frame.barren:
                    self._back(frame.need)
        if result is Outcome.TOO_MANY:
            raise AllocationError(f"claim {self.plans[0].label}: needs more than {MAX_RESULTS} devices")
        return False

    def _enter(self, task: Task) -> Outcome | None:
        """Begins a task; None if that opened a choice, which is then on the stack."""
        while True:
            self._count()
            if task.claim >= len(self.plans):
                return Outcome.DONE
            groups = self.plans[task.claim].groups
            if task.group >= len(groups):
                self._open.append(NextClaim(task.claim + 1))
                return None
            group = groups[task.group]
            if group.optional and task.alternative is None:
                self._open.append(Alternatives(self.chosen, task, len(group.alternatives)))
                return None
            need = self.needs[group.alternatives[task.alternative or 0]]
            if need.every is not None and not need.every:
                return Outcome.FAILED
            if task.device < need.count:
                return self._fill(task, need)
            task = Task(task.claim, task.group + 1)

    def _surveyed(self, need: Need) -> int | None:
        """How many devices a request could have if nothing were chosen for others, see `survey`."""
        request = need.request
        if request not in self._surveys:
            taken = () if request.admin else self.choices.exclusive
            self._surveys[request] = survey(need, self.candidates, taken)
        return self._surveys[request]

    def _back(self, need: Need) -> None:
        """Where a request cannot be filled whatever else is chosen, takes back choices that make no difference.

        Other choices may be an error instead; then they are left to be tried.
        """
        found = self._surveyed(need)
        if found is None or found >= need.count or any(map(self.choices.keeps_traces, range(len(self.plans)))):
            return
        while self._open:
            frame = self._open[-1]
            if isinstance(frame, AnyDevice) and self._surveyed(frame.need) is not None:
                frame.undo()
            elif not isinstance(frame, NextClaim):
                return
            self._open.pop()

    def _count(self) -> None:
        self.steps += 1
        self._check_limit()

    @property
    def work(self) -> int:
        """What it took in all, in steps."""
        return self.steps + self.choices.tries + self.choices.looks // _LOOKS

    def _check_limit(self) -> None:
        if self.work > self._limit:
            names = ", ".join(plan.label for plan in self.plans)
            given_up = f"the search was given up after {self._limit} steps"
            raise SearchLimitError(f"claim {names}: {given_up}, as kube-scheduler gives up after 10 s")

    def _fill(self, task: Task, need: Need) -> Outcome | None:
        if len(self.choices.chosen[task.claim]) + need.count - task.device > MAX_RESULTS:
            return Outcome.TOO_MANY
        if need.every is not None:
            self._open.append(EveryDevice(self.choices, task, need.request, need.every[task.device]))
            return None
        before = self._open[-1] if task.device else None
        eligible = before.eligible if isinstance(before, AnyDevice) else self._looked_for(task, need)
        self._open.append(AnyDevice(self.choices, task, need, eligible))
        return None

    def _looked_for(self, task: Task, need: Need) -> Eligible:
        return Eligible(task.claim, need, self.candidates, self.choices)
