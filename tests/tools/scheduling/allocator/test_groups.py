from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.tools.scheduling.allocator import Allocated
from dra_sdk.tools.scheduling.allocator.groups import Groups, goes_with, joined
from dra_sdk.tools.scheduling.allocator.pools import Candidate
from tests.tools.scheduling.allocator.build import NEWER, a_slice, candidates, counter_sets, device, held


def grouped(name: str, *groups: str, counter_set: str = "set") -> dict[str, Any]:
    consumed = {"counterSet": counter_set, "counters": {"memory": {"value": "1"}}}
    return device(name) | {"consumesCounters": [consumed | ({"compatibilityGroups": list(groups)} if groups else {})]}


def offered(*devices: dict[str, Any]) -> list[Candidate]:
    sets = counter_sets(set={"memory": "9"}, other={"memory": "9"})
    return candidates(sets, a_slice(*devices, count=2, name="s2"), features=NEWER)


def admitted(groups: Groups, candidate: Candidate) -> bool:
    return groups.admits(candidate.pool, candidate.device)


def test_devices_need_a_group_that_all_have() -> None:
    first, second, third = offered(grouped("a", "x", "y"), grouped("b", "y", "z"), grouped("c", "x", "z"))
    groups = Groups(Allocated())
    assert admitted(groups, first)
    groups.place(first.pool, first.device)
    assert admitted(groups, second)
    assert admitted(groups, third)
    before = groups.place(second.pool, second.device)
    assert not admitted(groups, third)
    groups.restore(second.pool, before)
    assert admitted(groups, third)


def test_devices_without_groups_go_with_their_like() -> None:
    plain, like, other = offered(grouped("a"), grouped("b"), grouped("c", "x"))
    groups = Groups(Allocated())
    groups.place(plain.pool, plain.device)
    assert [admitted(groups, each) for each in (like, other)] == [True, False]


def test_counter_sets_are_apart() -> None:
    one, elsewhere = offered(grouped("a", "x"), grouped("b", "y", counter_set="other"))
    groups = Groups(Allocated())
    groups.place(one.pool, one.device)
    assert admitted(groups, elsewhere)


@pytest.mark.parametrize("share", [{}, {"shareID": "s"}])
def test_what_is_allocated_counts(share: dict[str, str]) -> None:
    _, same, other, plain = offered(grouped("a", "x"), grouped("b", "x"), grouped("c", "y"), grouped("d"))
    groups = Groups(Allocated.of([held("a", **share)]))
    assert [admitted(groups, each) for each in (same, other, plain)] == [True, False, False]


def test_groups_that_have_nothing_in_common_admit_nobody() -> None:
    nothing = joined(frozenset("y"), frozenset("x"))
    assert nothing == frozenset()
    assert not goes_with(frozenset("x"), nothing)
    assert not goes_with(frozenset(), nothing)
    assert joined(frozenset(), frozenset("x")) == frozenset("x")
    assert joined(frozenset("x"), None) is None
