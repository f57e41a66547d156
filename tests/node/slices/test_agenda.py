from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.errors import ApiError, ConflictError, InvalidError, InvalidObjectError, NotFoundError, UnreachableError
from dra_sdk.node.slices.agenda import Agenda, Task
from dra_sdk.node.slices.dropped import DroppedFieldsError
from dra_sdk.node.slices.plan import PoolPlan
from dra_sdk.node.slices.timing import Timing

TIMING = Timing(debounce=1, repair=2, repair_limit=16, calm=100)


def planned(name: str, *slices: dict[str, Any]) -> PoolPlan:
    return PoolPlan(name, slices or ({"nodeName": "n"},))


def agenda(*pools: str) -> Agenda:
    made = Agenda(TIMING)
    made.publish({name: planned(name) for name in pools}, [], 0.0)
    return made


def take(made: Agenda) -> Task:
    task = made.next()
    assert task is not None
    made.begin(task)
    return task


def finish(made: Agenda, dropped: DroppedFieldsError | None = None) -> Task:
    task = take(made)
    made.done(task, task.wanted, dropped)
    return task


def dues(made: Agenda) -> dict[str, float | None]:
    return {name: task.due for name, task in made._tasks.items()}


def test_new_plans_are_due_at_once_and_equal_ones_are_not():
    made = agenda("a", "b")
    assert dues(made) == {"a": 0.0, "b": 0.0}
    assert not made.is_settled()
    finish(made)
    assert not made.is_settled()
    finish(made)
    assert made.is_settled()
    made.publish({"a": planned("a"), "b": planned("b", {"x": 1})}, [], 5.0)
    assert dues(made) == {"a": None, "b": 5.0}


def test_a_task_in_hand_is_not_settled():
    made = agenda("a")
    take(made)
    assert not made.is_settled()


def test_pools_left_out_and_strangers_shall_go():
    made = agenda("a")
    finish(made)
    made.publish({}, ["stranger"], 5.0)
    assert {name: task.plan for name, task in made._tasks.items()} == {"a": (), "stranger": ()}
    assert set(dues(made).values()) == {5.0}


def test_gone_pools_are_forgotten_after_a_while():
    made = agenda("a")
    made.publish({}, [], 0.0)
    finish(made)
    made.publish({}, [], 1000.0)
    assert made._tasks == {}


def test_pools_of_strangers_do_not_pile_up():
    made = agenda()
    for number in range(10):
        made.touched([f"stranger-{number}"], 1000.0 * number)
        finish(made)
    assert list(made._tasks) == ["stranger-9"]


def test_touched_waits_for_more_of_the_same_change():
    made = agenda("a")
    made.touched(["a"], 10.0)
    assert dues(made) == {"a": 0.0}  # not later than it was
    finish(made)
    made.touched(["a"], 10.0)
    made.touched(["a"], 10.5)
    assert dues(made) == {"a": 11.0}


def test_touched_before_anything_was_published_is_nothing():
    made = Agenda(TIMING)
    made.touched(["x"], 1.0)
    made.listed(["x"], 1.0)
    assert (made.next(), made.is_settled()) == (None, False)


def test_listed_minds_pools_without_any_slice_left():
    made = agenda("a")
    finish(made)
    made.listed(["stranger"], 10.0)
    assert dues(made) == {"a": 11.0, "stranger": 10.0}


def test_repairs_slow_down_and_recover():
    made = agenda("a")
    task = finish(made)
    waits = []
    now = 10.0
    for _ in range(6):
        made.touched(["a"], now)
        assert task.due is not None
        waits.append(task.due - now)
        now = task.due
        take(made)
        made.repairing(task, now)
        made.done(task, task.wanted, None)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0]
    made.touched(["a"], now + 101)
    assert task.due == now + 102
    made.repairing(task, now + 102)
    assert task.repairs == 1


def test_failures_back_off_and_outside_changes_do_not_shorten_that():
    made = agenda("a")
    task = take(made)
    assert made.failed(task, task.wanted, UnreachableError("x"), 10.0)
    first = task.due
    assert first is not None
    assert 10.2 <= first <= 10.3
    made.touched(["a"], 10.0)
    assert task.due == first
    assert made.errors() == {"a": task.error}
    made.begin(task)
    made.failed(task, task.wanted, UnreachableError("x"), 20.0)
    assert task.due >= 20.4
    finish(made)
    assert (task.failures, made.errors()) == (0, {})


@pytest.mark.parametrize(
    ("error", "retried"),
    [
        (UnreachableError("x"), True),
        (ApiError("x", status=503), True),
        (ApiError("x", status=429), True),
        (InvalidError("x", status=422), False),
        (KeyError("bug"), False),
    ],
)
def test_a_server_that_is_back_is_tried_at_once_where_it_was_away(error: Exception, retried: bool):
    made = agenda("a")
    task = take(made)
    made.failed(task, task.wanted, error, 10.0)
    made.reachable(10.1)
    assert (task.due == 10.1) is retried


def test_a_new_plan_ends_the_back_off():
    made = agenda("a")
    task = take(made)
    made.failed(task, task.wanted, InvalidError("x", status=422), 10.0)
    made.publish({"a": planned("a", {"x": 1})}, [], 11.0)
    assert (task.due, task.failures, made.errors()) == (11.0, 0, {})


def test_what_is_published_meanwhile_comes_again():
    made = agenda("a")
    task = take(made)
    older = task.wanted
    made.publish({"a": planned("a", {"x": 1})}, [], 5.0)
    made.done(task, older, None)
    assert (task.due, task.settled) == (5.0, False)
    older = take(made).wanted
    made.publish({"a": planned("a", {"x": 2})}, [], 6.0)
    made.failed(task, older, UnreachableError("x"), 7.0)
    assert (task.due, task.failures) == (6.0, 0)


@pytest.mark.parametrize("race", [ConflictError("x", status=409), NotFoundError("x", status=404)])
def test_lost_races_are_told_from_the_third_on(race: ApiError):
    made = agenda("a")
    told = []
    for _ in range(4):
        task = take(made)
        told.append(made.failed(task, task.wanted, race, 0.0))
    assert told == [False, False, True, True]


def test_invalid_plans():
    made = agenda("a")
    finish(made)
    wrong = InvalidObjectError("pool a", ["bad"])
    assert made.publish({"a": wrong}, [], 5.0) == [wrong]
    assert made.publish({"a": InvalidObjectError("pool a", ["bad"])}, [], 6.0) == []
    assert made.publish({"a": InvalidObjectError("pool a", ["worse"])}, [], 6.0) != []
    assert dues(made) == {"a": None}
    assert (made.is_settled(), list(made.errors())) == (False, ["a"])
    made.publish({"a": planned("a")}, [], 7.0)
    assert (made.is_settled(), made.errors()) == (True, {})


def test_an_invalid_first_plan_leaves_what_exists():
    made = Agenda(TIMING)
    made.publish({"a": InvalidObjectError("pool a", ["bad"])}, ["a"], 0.0)
    made.touched(["a"], 1.0)
    assert made.next() is None


def test_dropped_fields_stay_known_until_the_plan_changes():
    made = agenda("a")
    dropped = DroppedFieldsError("a", {0: [("x", "Gate")]})
    task = finish(made, dropped)
    made.touched(["a"], 1.0)
    finish(made)
    assert (made.is_settled(), made.errors()) == (True, {"a": dropped})
    made.publish({"a": planned("a", {"x": 1})}, [], 5.0)
    finish(made)
    assert made.errors() == {}
    assert task.wanted == [{"x": 1}]


def test_the_earliest_comes_first():
    made = agenda("a")
    made.publish({"a": planned("a"), "b": planned("b")}, [], 3.0)
    assert [finish(made).name, finish(made).name] == ["a", "b"]
    assert made.next() is None


def test_needs_cluster():
    assert not agenda("a").needs_cluster()
    made = agenda("a")
    made.publish({"a": planned("a", {"allNodes": True})}, [], 0.0)
    assert made.needs_cluster()
