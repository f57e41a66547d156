"""The drawn cases of preemption, without a cluster: they depend on what decides about preemption."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest

from dra_sdk.tools.scheduling.cluster import Snapshot, schedule
from tests.cluster.differential.case import JSON, PLAIN
from tests.cluster.differential.preemption import Move, PreemptionCase, common_objects, draw_preemption
from tests.cluster.differential.real import pod_object

CASES = 60


@cache
def drawn(number: int) -> tuple[PreemptionCase, Snapshot]:
    """A case, and the cluster in which its first pods run."""
    case = draw_preemption("offline", number)
    pods = []
    for each in case.residents:
        pod = pod_object(each.plan, [each.node])
        pod["metadata"]["uid"] = each.plan.name
        pods.append(pod | {"status": {"startTime": each.started}})
    cluster = Snapshot().with_objects([*common_objects(), *case.objects, *pods])
    outcome = schedule(cluster)
    assert not outcome.unplaced
    assert not outcome.preemptions
    return case, outcome.snapshot


def move(case: PreemptionCase, before: Snapshot) -> Move:
    """What becomes of the first pod that comes."""
    plan = case.newcomers[0]
    pod = pod_object(plan, case.nodes)
    pod["metadata"]["uid"] = plan.name
    after = schedule(before.with_objects([pod]))
    victims = [name for each in after.preemptions if each.pod[1] == plan.name for _, name in each.victims]
    return Move(after.pods_by_key[PLAIN, plan.name].node, tuple(sorted(victims)))


@cache
def moved(number: int) -> Move:
    """What becomes of the first pod of a case that is not changed."""
    return move(*drawn(number))


def without_budgets(snapshot: Snapshot) -> Snapshot:
    return replace(snapshot, disruption_budgets=())


def youngest_first(snapshot: Snapshot) -> Snapshot:
    """As if the pod that started last had started first."""
    starts = sorted(each["status"]["startTime"] for each in snapshot.pods)
    turned = dict(zip(starts, reversed(starts), strict=True))
    pods = (
        {**each, "status": {**each["status"], "startTime": turned[each["status"]["startTime"]]}}
        for each in snapshot.pods
    )
    return replace(snapshot, pods=tuple(pods))


def without_claims(snapshot: Snapshot) -> Snapshot:
    """As if the devices of pods that may be evicted were free."""
    return replace(snapshot, claims=(), pods=tuple(map(_claimless, snapshot.pods)))


def _claimless(pod: JSON) -> JSON:
    return {**pod, "spec": {**pod["spec"], "resourceClaims": []}, "status": {}}


@pytest.mark.parametrize("change", [without_budgets, youngest_first, without_claims])
def test_the_cases_notice_a_difference(change: Callable[[Snapshot], Snapshot]) -> None:
    assert any(moved(number) != move(drawn(number)[0], change(drawn(number)[1])) for number in range(CASES))


def test_enough_cases_evict_pods() -> None:
    moves = [moved(number) for number in range(CASES)]
    assert sum(bool(each.victims) for each in moves) > CASES // 6
    assert sum(each.node is None for each in moves) > CASES // 6
