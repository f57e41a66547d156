"""Which pool the controller handles next, and when, after publications, changes by others, failures and repairs.

Pure but for the clock, which is an argument. Not safe for threads: the controller guards it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from dra_sdk.errors import ApiError, ConflictError, InvalidObjectError, NotFoundError
from dra_sdk.model import JSON
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.node.slices.plan import PoolPlan
from dra_sdk.node.slices.withholding import Preferences
from dra_sdk.node.slices.writer import DroppedFieldsError

_USUAL_CONFLICTS: Final = 2


@dataclass(frozen=True, slots=True)
class Desired:
    """What the server must have for one pool.

    revision: grows with each publication that changes the pool.
    planned: the ResourceSliceSpecs that were published, without `driver` and `pool`; empty to delete the pool.
    specs: the same as the server keeps them: without fields that it drops and the devices that are withheld for that
        reason, with the times that it gave to taints, and packed for 1.34 if it is one.
    preferences: what the driver says about servers that drop fields.
    """

    revision: int
    planned: tuple[JSON, ...]
    specs: tuple[JSON, ...]
    preferences: Preferences = field(default_factory=Preferences)


@dataclass(slots=True, kw_only=True)
class PoolState:
    """One pool in the queue.

    name: the pool's name.
    desired: what the server must have; None before the first valid publication, so that the pool is left as it is.
    node_bound: whether its slices carry `nodeName`.
    due: when it is handled next, by the callers' clock; None if there is nothing to do.
    busy: whether it is being handled.
    settled: the server had everything, so a difference is a change by somebody else.
    failures: failed attempts in a row.
    repairs: how often a change by somebody else was repaired; 0 again after `Backoff.calm` without one.
    repaired: the time of the last repair.
    invalid: the problem of the last publication.
    error: why the server does not have it yet.
    """

    name: str
    desired: Desired | None = None
    node_bound: bool = True
    due: float | None = None
    busy: bool = False
    settled: bool = False
    failures: int = 0
    repairs: int = 0
    repaired: float = float("-inf")
    invalid: InvalidObjectError | None = None
    error: Exception | None = None


class PoolQueue:
    """The states of all pools.

    is_published: whether anything was published yet.
    pools: the states by name.
    """

    def __init__(self, backoff: Backoff) -> None:
        self.is_published = False
        self.pools: dict[str, PoolState] = {}
        self._backoff = backoff
        self._revision = 0

    def publish(
        self, plans: Mapping[str, PoolPlan | InvalidObjectError], existing: Iterable[str], now: float
    ) -> list[InvalidObjectError]:
        """Set new plans: absent pools are deleted, invalid ones stay as they are. Returns new problems."""
        self.is_published = True
        self._forget(now)
        problems: list[InvalidObjectError] = []
        for name, plan in plans.items():
            pool = self.pools.setdefault(name, PoolState(name=name))
            if isinstance(plan, InvalidObjectError):
                if str(pool.invalid) != str(plan):
                    problems.append(plan)
                pool.invalid = plan
            else:
                pool.invalid = None
                self._accept(pool, plan, now)
        for name in {*self.pools, *existing} - set(plans):
            self._remove(name, now)
        return problems

    def listed(self, existing: Iterable[str], now: float) -> None:
        """Take note of a list: these pools have slices; slices of other pools may be deleted."""
        self.touched({*self.pools, *existing}, now)

    def touched(self, pools: Iterable[str], now: float) -> None:
        """Take note that slices of these pools changed in the API server, by us or by others."""
        for name in pools:
            pool = self.pools.get(name)
            if pool is None:
                if self.is_published:
                    self._forget(now)
                    self._remove(name, now)
            elif pool.desired is not None and not pool.failures:
                calm = pool.repaired + self._backoff.before_repair(pool.repairs)
                moment = max(now + self._backoff.debounce, calm)
                pool.due = moment if pool.due is None else min(pool.due, moment)

    def reachable(self, now: float) -> None:
        """Make the pools due that waited for the API server, which answers again."""
        for pool in self.pools.values():
            if pool.failures and isinstance(pool.error, ApiError) and pool.error.temporary:
                pool.failures = 0
                pool.due = now

    def next(self) -> PoolState | None:
        """Return the pool that is due first."""
        waiting = [pool for pool in self.pools.values() if pool.due is not None]
        return min(waiting, key=lambda pool: pool.due or 0.0, default=None)

    def begin(self, pool: PoolState) -> Desired:
        """Start to handle a pool. If it becomes due from now on, it is handled again."""
        assert pool.desired is not None, "only what was published becomes due"
        pool.due, pool.busy = None, True
        return pool.desired

    def repairing(self, pool: PoolState, now: float) -> None:
        """Count a repair of a settled pool, which somebody else changed."""
        pool.repairs = 1 if now - pool.repaired > self._backoff.calm else pool.repairs + 1
        pool.repaired = now

    def done(
        self,
        pool: PoolState,
        desired: Desired,
        specs: Sequence[JSON],
        dropped: DroppedFieldsError | None,
        *,
        is_current: bool,
    ) -> None:
        """Take note that the server has `specs` for `desired`, without the fields in `dropped`.

        is_current: the cache has `specs`, so the events of these writes need no second look.
        """
        pool.busy = False
        if not self._is_latest(pool, desired):
            return  # a newer publication is due
        if is_current:
            pool.due = None
        pool.desired = replace(desired, specs=tuple(specs))
        pool.failures, pool.settled = 0, True
        pool.error = dropped

    def failed(self, pool: PoolState, desired: Desired, specs: Sequence[JSON], error: Exception, now: float) -> bool:
        """Try again later, because a write failed. False if it need not be reported, such as one conflict."""
        pool.busy = False
        if not self._is_latest(pool, desired):
            return True
        pool.desired = replace(desired, specs=tuple(specs))
        pool.failures, pool.settled, pool.error = pool.failures + 1, False, error
        pool.due = now + self._backoff.after_failure(pool.failures, error)
        return not isinstance(error, (ConflictError, NotFoundError)) or pool.failures > _USUAL_CONFLICTS

    def errors(self) -> dict[str, Exception]:
        """Return the problems, by pool."""
        return {pool.name: problem for pool in self.pools.values() if (problem := pool.invalid or pool.error)}

    def is_settled(self) -> bool:
        """Return whether the server has everything that was published, apart from fields that it drops."""
        return self.is_published and all(
            pool.settled and pool.due is None and not pool.busy and not pool.invalid for pool in self.pools.values()
        )

    def has_cluster_pools(self) -> bool:
        """Return whether any pool has slices for several nodes."""
        return any(not pool.node_bound for pool in self.pools.values())

    def _forget(self, now: float) -> None:
        """Drop deleted pools. Until then they are kept, in case somebody creates slices of them again."""
        for name, pool in list(self.pools.items()):
            is_deleted = pool.desired is not None and not pool.desired.planned
            if is_deleted and pool.settled and pool.due is None and now - pool.repaired > self._backoff.calm:
                del self.pools[name]

    def _accept(self, pool: PoolState, plan: PoolPlan, now: float) -> None:
        known = pool.desired
        if known is not None and (known.planned, known.preferences) == (plan.slices, plan.preferences):
            return
        self._revision += 1
        pool.desired = Desired(self._revision, plan.slices, plan.slices, plan.preferences)
        pool.node_bound = plan.node_bound
        pool.due, pool.failures, pool.settled, pool.error = now, 0, False, None

    def _remove(self, name: str, now: float) -> None:
        pool = self.pools.setdefault(name, PoolState(name=name))
        pool.invalid = None
        self._accept(pool, PoolPlan(name, ()), now)

    def _is_latest(self, pool: PoolState, desired: Desired) -> bool:
        return pool.desired is not None and pool.desired.revision == desired.revision
