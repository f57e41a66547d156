"""Runs many cases at the same time on one control plane."""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field
from itertools import count
from queue import Queue
from typing import Final

from dra_sdk.wire.profile import ServerProfile
from tests.cluster.differential.api import Refusal
from tests.cluster.differential.case import JSON, SLOT, Case, Company, PodPlan, node_objects
from tests.cluster.differential.compare import (
    Disagreement,
    compare_created,
    compare_extended,
    compare_placed,
    compare_pod,
)
from tests.cluster.differential.ours import Ours
from tests.cluster.differential.real import RealCluster, namespaces, pod_object

AT_ONCE: Final = 12
SLOTS: Final = 48
"""More slots than cases that run at once, so that the scheduler has forgotten a slot before it is used again."""
_SETTLE: Final = 0.1
_SLOWLY: Final = (0.5, 5.0)
"""Seconds that the scheduler has to see the objects of a case that disagreed, for each repetition."""
_ENOUGH: Final = 10
"""If so many cases disagree in every repetition, the machine is not the cause: the others are repeated once only."""


@dataclass(frozen=True)
class Tally:
    """What a case was about."""

    objects: int = 0
    refused: int = 0
    outcomes: tuple[str, ...] = ()


@dataclass
class Result:
    """A case and its differences; `first` has those of a first, faster run, if a slower one had none."""

    case: Case
    disagreements: list[Disagreement]
    tally: Tally
    first: list[Disagreement] = field(default_factory=list)


@dataclass
class Summary:
    """All results."""

    results: list[Result] = field(default_factory=list)

    def add(self, result: Result, tell: Callable[[Result], None]) -> None:
        """Counts a result and reports it."""
        self.results.append(result)
        tell(result)

    @property
    def failed(self) -> list[Result]:
        """Returns the cases that disagree."""
        return [each for each in self.results if each.disagreements]

    def text(self) -> str:
        """Returns the counts in one line."""
        outcomes = Counter(outcome for each in self.results for outcome in each.tally.outcomes)
        objects = sum(each.tally.objects for each in self.results)
        refused = sum(each.tally.refused for each in self.results)
        again = sum(bool(each.first) for each in self.results)
        pods = ", ".join(f"{number} {name}" for name, number in sorted(outcomes.items()))
        agreed = len(self.results) - len(self.failed)
        return (
            f"{agreed} of {len(self.results)} cases agree ({again} in a slower run): "
            f"{objects} objects ({refused} refused), pods: {pods}"
        )


class Runner:
    """Runs cases on a cluster whose nodes are those of `nodes()`."""

    def __init__(self, real: RealCluster, profile: ServerProfile) -> None:
        self._real, self._profile = real, profile
        self._numbers = count()
        self._slots: Queue[int] = Queue()
        for slot in range(SLOTS):
            self._slots.put(slot)

    def run(self, cases: Iterable[Case], tell: Callable[[Result], None] = lambda _result: None) -> Summary:
        """Runs all cases; `tell` is called with each result as it comes.

        A case that disagrees is run again by itself, more and more slowly: the scheduler may not have seen all objects,
        or too many.
        """
        summary, again = Summary(), []
        for together, group in _groups(cases):
            for result in self._all(group, AT_ONCE if together else 1):
                if result.disagreements:
                    again.append(result)
                else:
                    summary.add(result, tell)
        for first in again:
            pauses = _SLOWLY if len(summary.failed) < _ENOUGH else _SLOWLY[:1]
            summary.add(self._again(first, pauses), tell)
        return summary

    def _again(self, first: Result, pauses: Iterable[float]) -> Result:
        result = first
        for settle in pauses:
            result = self._attempt(first.case, settle)
            if not result.disagreements:
                result.first = first.disagreements
                break
        return result

    def _all(self, cases: Iterable[Case], at_once: int) -> Iterator[Result]:
        with ThreadPoolExecutor(at_once, thread_name_prefix="case") as pool:
            running = [pool.submit(self._attempt, case, _SETTLE) for case in cases]
            try:
                for each in as_completed(running):
                    yield each.result()
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _attempt(self, case: Case, settle: float) -> Result:
        slot = self._slots.get()
        try:
            named = case.named(next(self._numbers), slot)
            attempt = _Attempt(self._real, Ours(self._profile, _nodes(slot), namespaces()), named)
            try:
                return Result(case, *attempt.run(settle))
            except Exception:  # noqa: BLE001 (a case that ends in any error is kept)
                return Result(case, [Disagreement(named.name, "a crash", "", traceback.format_exc())], Tally())
            finally:
                attempt.clean()
        finally:
            self._slots.put(slot)


def _groups(cases: Iterable[Case]) -> Iterator[tuple[bool, list[Case]]]:
    """Returns the cases in groups, and whether those of a group can run at the same time.

    Incomplete pools with counter sets are seen from all nodes, and a request for all devices fails where one is seen.
    """
    groups: dict[Company, list[Case]] = {company: [] for company in Company}
    for case in cases:
        groups[case.company()].append(case)
    return ((company is not Company.NONE, group) for company, group in groups.items())


def nodes() -> Iterator[JSON]:
    """Returns the nodes of all slots."""
    for slot in range(SLOTS):
        yield from _nodes(slot)


def _nodes(slot: int) -> list[JSON]:
    name = Case("", (), (), (SLOT,)).named(0, slot).nodes[0]
    return node_objects(name)


class _Attempt:
    """One run of a case, under names of its own."""

    def __init__(self, real: RealCluster, ours: Ours, case: Case) -> None:
        self._real, self._ours, self._case = real, ours, case
        self._created: list[JSON] = []
        self._pods: list[PodPlan] = []
        self._made_claims: list[tuple[str, str]] = []
        self._disagreements: list[Disagreement] = []

    def run(self, settle: float) -> tuple[list[Disagreement], Tally]:
        for obj in self._case.objects:
            self._create(obj)
        pods = [plan for plan in self._case.pods if self._ours.has(plan)]
        outcomes: list[str] = []
        if not self._disagreements and pods and self._ours.decided():
            time.sleep(settle)
            for plan in pods:
                outcomes.append(self._schedule(plan, max(settle, _SLOWLY[0])))
                if self._disagreements:
                    break
        refused = len(self._case.objects) - len(self._created)
        return self._disagreements, Tally(len(self._case.objects), refused, tuple(outcomes))

    def clean(self) -> None:
        """Deletes what was created; claims in use last."""
        for namespace, name in self._made_claims:
            self._real.forget_claim(namespace, name)
        for plan in self._pods:
            self._real.requests.delete("Pod", plan.namespace, plan.name)
            for name in plan.claim_names():
                if name not in plan.claims:
                    self._real.forget_claim(plan.namespace, name)
        for obj in self._created:
            if obj["kind"] == "ResourceClaim":
                self._real.forget_claim(obj["metadata"]["namespace"], obj["metadata"]["name"])
            else:
                self._real.delete([obj])

    def _create(self, obj: JSON) -> None:
        made = self._real.requests.create(obj)
        if not isinstance(made, Refusal):
            self._created.append(obj)
        if found := compare_created(obj, made, self._ours.create(obj)):
            self._disagreements.append(found)

    def _schedule(self, plan: PodPlan, pause: float) -> str:
        self._pods.append(plan)
        self._ours.generate_claims(plan)
        pod = pod_object(plan, self._case.nodes)
        pod["metadata"]["uid"] = plan.name
        prospect = self._ours.prospect(plan, pod, self._case.nodes)
        verdict = self._real.schedule(plan, self._case.nodes)
        exact = self._ours.exact
        if verdict.kind != "scheduled" and not plan.templates and compare_pod(plan, verdict, prospect, exact=exact):
            time.sleep(pause)
            verdict = self._real.schedule(plan, self._case.nodes)
        found = compare_pod(plan, verdict, prospect, exact=exact)
        if found is None and exact:
            found = compare_placed(plan, verdict, prospect, self._ours.placed(plan, pod))
        if found is None and exact and plan.extended and verdict.kind == "scheduled":
            found = compare_extended(plan, verdict, self._ours.placed(plan, pod, [verdict.node]))
        if found is not None:
            self._disagreements.append(found)
        self._ours.allocated(plan, verdict.allocations, verdict.extended)
        if verdict.extended is not None:
            self._made_claims.append((plan.namespace, verdict.extended["metadata"]["name"]))
        return verdict.kind
