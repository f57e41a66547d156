"""Which pool the controller works on next, and when: publishing, outside changes, failures and calm in one place.

Pure but for the clock, which is an argument. Not thread-safe: the controller guards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dra_sdk.errors import ApiError, ConflictError, InvalidObjectError, NotFoundError
from dra_sdk.model import JSON
from dra_sdk.node.slices.dropped import DroppedFieldsError
from dra_sdk.node.slices.plan import PoolPlan
from dra_sdk.node.slices.timing import Timing

_USUAL_CONFLICTS: Final = 2


@dataclass(slots=True, kw_only=True)
class Task:
    """One pool. `plan` None: nothing valid was published for it yet, so it is left as it is; empty: it shall go.

    `wanted` is the plan without what the server is known to drop. `due` None: nothing to do. `settled`: the server had
    it all, so that a difference is somebody else's doing.
    """

    name: str
    plan: tuple[JSON, ...] | None = None
    wanted: list[JSON] = field(default_factory=list)
    node_bound: bool = True
    due: float | None = None
    busy: bool = False
    settled: bool = False
    failures: int = 0
    repairs: int = 0
    repaired: float = float("-inf")
    invalid: InvalidObjectError | None = None
    error: Exception | None = None

    @property
    def problem(self) -> Exception | None:
        """Why the server does not have exactly what was published last."""
        return self.invalid or self.error


class Agenda:
    """The tasks of all pools."""

    def __init__(self, timing: Timing) -> None:
        self.timing = timing
        self.published = False
        self._tasks: dict[str, Task] = {}

    def publish(
        self, plans: Mapping[str, PoolPlan | InvalidObjectError], existing: Iterable[str], now: float
    ) -> list[InvalidObjectError]:
        """Take over new plans: absent pools shall go, invalid ones stay as they are. Returns what is newly wrong."""
        self.published = True
        self._forget(now)
        wrong: list[InvalidObjectError] = []
        for name, plan in plans.items():
            task = self._tasks.setdefault(name, Task(name=name))
            if isinstance(plan, InvalidObjectError):
                if str(task.invalid) != str(plan):
                    wrong.append(plan)
                task.invalid = plan
            else:
                task.invalid = None
                self._accept(task, plan.slices, now, node_bound=plan.node_bound)
        for name in {*self._tasks, *existing} - set(plans):
            self._remove(name, now)
        return wrong

    def listed(self, existing: Iterable[str], now: float) -> None:
        """Anything may have changed: these pools have slices now, and those of others may be gone."""
        self.touched({*self._tasks, *existing}, now)

    def touched(self, pools: Iterable[str], now: float) -> None:
        """Slices of these pools changed in the API server, by us or by somebody else."""
        for name in pools:
            task = self._tasks.get(name)
            if task is None:
                if self.published:
                    self._forget(now)
                    self._remove(name, now)
            elif task.plan is not None and not task.failures:
                calm = task.repaired + self.timing.before_repair(task.repairs)
                self._no_later(task, max(now + self.timing.debounce, calm))

    def reachable(self, now: float) -> None:
        """The API server answers again: do not wait any longer where it was away or overloaded."""
        for task in self._tasks.values():
            if task.failures and _is_temporary(task.error):
                task.failures = 0
                task.due = now

    def next(self) -> Task | None:
        """The task that is due first."""
        return min((task for task in self._tasks.values() if task.due is not None), key=_due, default=None)

    def begin(self, task: Task) -> None:
        """The task is worked on; what becomes due meanwhile comes again."""
        task.due, task.busy = None, True

    def repairing(self, task: Task, now: float) -> None:
        """What was in order is no longer, and is put right: somebody else writes our slices."""
        task.repairs = 1 if now - task.repaired > self.timing.calm else task.repairs + 1
        task.repaired = now

    def done(self, task: Task, wanted: list[JSON], dropped: DroppedFieldsError | None) -> None:
        """The server has `wanted`, apart from what it refused to keep."""
        task.busy = False
        if task.wanted is not wanted:
            return  # something newer was published meanwhile, and is due
        task.failures, task.settled = 0, True
        task.error = dropped or (task.error if isinstance(task.error, DroppedFieldsError) else None)

    def failed(self, task: Task, wanted: list[JSON], error: Exception, now: float) -> bool:
        """It did not work and is tried again later. Whether that is worth telling: a lost race now and then is not."""
        task.busy = False
        if task.wanted is not wanted:
            return True
        task.failures, task.settled, task.error = task.failures + 1, False, error
        task.due = now + self.timing.after_failure(task.failures, error)
        return not isinstance(error, (ConflictError, NotFoundError)) or task.failures > _USUAL_CONFLICTS

    def errors(self) -> dict[str, Exception]:
        """What is wrong, by pool."""
        return {task.name: task.problem for task in self._tasks.values() if task.problem}

    def is_settled(self) -> bool:
        """Whether the server has all that was published, as far as it can keep it."""
        return self.published and all(
            task.settled and task.due is None and not task.busy and not task.invalid for task in self._tasks.values()
        )

    def needs_cluster(self) -> bool:
        """Whether any pool has slices that several nodes see."""
        return any(not task.node_bound for task in self._tasks.values())

    def _forget(self, now: float) -> None:
        """Drop what is only remembered to notice somebody who keeps making slices of pools that we do not have."""
        over = [
            name
            for name, task in self._tasks.items()
            if task.plan == () and task.settled and task.due is None and now - task.repaired > self.timing.calm
        ]
        for name in over:
            del self._tasks[name]

    def _accept(self, task: Task, slices: tuple[JSON, ...], now: float, *, node_bound: bool) -> None:
        if task.plan == slices:
            return
        task.plan, task.wanted, task.node_bound = slices, list(slices), node_bound
        task.due, task.failures, task.settled, task.error = now, 0, False, None

    def _remove(self, name: str, now: float) -> None:
        task = self._tasks.setdefault(name, Task(name=name))
        task.invalid = None
        self._accept(task, (), now, node_bound=True)

    def _no_later(self, task: Task, moment: float) -> None:
        task.due = moment if task.due is None else min(task.due, moment)


def _due(task: Task) -> float:
    assert task.due is not None
    return task.due


def _is_temporary(error: Exception | None) -> bool:
    return isinstance(error, ApiError) and error.temporary
