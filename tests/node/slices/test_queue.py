from __future__ import annotations

from typing import Any

import pytest

from dra_sdk.errors import ApiError, ConflictError, InvalidError, InvalidObjectError, NotFoundError, UnreachableError
from dra_sdk.node.slices.backoff import Backoff
from dra_sdk.node.slices.plan import PoolPlan
from dra_sdk.node.slices.queue import Desired, PoolQueue, PoolState
from dra_sdk.node.slices.writer import DroppedFieldsError

BACKOFF = Backoff(debounce=1, repair=2, repair_limit=16, calm=100)


def planned(name: str, *slices: dict[str, Any]) -> PoolPlan:
    return PoolPlan(name, slices or ({"nodeName": "n"},))


def queue(*pools: str) -> PoolQueue:
    made = PoolQueue(BACKOFF)
    made.publish({name: planned(name) for name in pools}, [], 0.0)
    return made


def take(made: PoolQueue) -> PoolState:
    pool = made.next()
    assert pool is not None
    made.begin(pool)
    return pool


def desired(pool: PoolState) -> Desired:
    assert pool.desired is not None
    return pool.desired


def finished(
    made: PoolQueue, pool: PoolState, dropped: DroppedFieldsError | None = None, *, is_current: bool = False
) -> None:
    made.done(pool, desired(pool), desired(pool).specs, dropped, is_current=is_current)


def failed(made: PoolQueue, pool: PoolState, error: Exception, now: float) -> bool:
    return made.failed(pool, desired(pool), desired(pool).specs, error, now)


def finish(made: PoolQueue, dropped: DroppedFieldsError | None = None) -> PoolState:
    pool = take(made)
    finished(made, pool, dropped)
    return pool


def dues(made: PoolQueue) -> dict[str, float | None]:
    return {name: pool.due for name, pool in made.pools.items()}


def test_new_plans_are_due_at_once_and_equal_ones_are_not():
    made = queue("a", "b")
    assert dues(made) == {"a": 0.0, "b": 0.0}
    assert not made.is_settled()
    finish(made)
    assert not made.is_settled()
    finish(made)
    assert made.is_settled()
    made.publish({"a": planned("a"), "b": planned("b", {"x": 1})}, [], 5.0)
    assert dues(made) == {"a": None, "b": 5.0}


def test_a_pool_that_is_worked_on_is_not_settled():
    made = queue("a")
    take(made)
    assert not made.is_settled()


def test_pools_left_out_and_pools_of_strangers_are_deleted():
    made = queue("a")
    finish(made)
    made.publish({}, ["stranger"], 5.0)
    assert {name: desired(pool).planned for name, pool in made.pools.items()} == {"a": (), "stranger": ()}
    assert set(dues(made).values()) == {5.0}


def test_gone_pools_are_forgotten_after_a_while():
    made = queue("a")
    made.publish({}, [], 0.0)
    finish(made)
    made.publish({}, [], 1000.0)
    assert made.pools == {}


def test_pools_of_strangers_do_not_pile_up():
    made = queue()
    for number in range(10):
        made.touched([f"stranger-{number}"], 1000.0 * number)
        finish(made)
    assert list(made.pools) == ["stranger-9"]


def test_touched_waits_for_more_of_the_same_change():
    made = queue("a")
    made.touched(["a"], 10.0)
    assert dues(made) == {"a": 0.0}  # not later than it was
    finish(made)
    made.touched(["a"], 10.0)
    made.touched(["a"], 10.5)
    assert dues(made) == {"a": 11.0}


def test_touched_before_anything_was_published_is_nothing():
    made = PoolQueue(BACKOFF)
    made.touched(["x"], 1.0)
    made.listed(["x"], 1.0)
    assert (made.next(), made.is_settled()) == (None, False)


def test_listed_minds_pools_without_any_slice_left():
    made = queue("a")
    finish(made)
    made.listed(["stranger"], 10.0)
    assert dues(made) == {"a": 11.0, "stranger": 10.0}


def test_repairs_slow_down_and_recover():
    made = queue("a")
    pool = finish(made)
    waits = []
    now = 10.0
    for _ in range(6):
        made.touched(["a"], now)
        assert pool.due is not None
        waits.append(pool.due - now)
        now = pool.due
        take(made)
        made.repairing(pool, now)
        finished(made, pool, None)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 16.0]
    made.touched(["a"], now + 101)
    assert pool.due == now + 102
    made.repairing(pool, now + 102)
    assert pool.repairs == 1


def test_failures_back_off_and_outside_changes_do_not_shorten_that():
    made = queue("a")
    pool = take(made)
    assert failed(made, pool, UnreachableError("x"), 10.0)
    first = pool.due
    assert first is not None
    assert 10.2 <= first <= 10.3
    made.touched(["a"], 10.0)
    assert pool.due == first
    assert made.errors() == {"a": pool.error}
    made.begin(pool)
    failed(made, pool, UnreachableError("x"), 20.0)
    assert pool.due >= 20.4
    finish(made)
    assert (pool.failures, made.errors()) == (0, {})


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
    made = queue("a")
    pool = take(made)
    failed(made, pool, error, 10.0)
    made.reachable(10.1)
    assert (pool.due == 10.1) is retried


def test_a_new_plan_ends_the_back_off():
    made = queue("a")
    pool = take(made)
    failed(made, pool, InvalidError("x", status=422), 10.0)
    made.publish({"a": planned("a", {"x": 1})}, [], 11.0)
    assert (pool.due, pool.failures, made.errors()) == (11.0, 0, {})


def test_what_is_published_in_the_meantime_comes_again():
    made = queue("a")
    pool = take(made)
    older = desired(pool)
    made.publish({"a": planned("a", {"x": 1})}, [], 5.0)
    made.done(pool, older, older.specs, None, is_current=True)
    assert (pool.due, pool.settled) == (5.0, False)
    older = desired(take(made))
    made.publish({"a": planned("a", {"x": 2})}, [], 6.0)
    made.failed(pool, older, older.specs, UnreachableError("x"), 7.0)
    assert (pool.due, pool.failures) == (6.0, 0)


@pytest.mark.parametrize(("is_current", "due"), [(True, None), (False, 5.0 + BACKOFF.debounce)])
def test_events_of_its_own_writes_are_no_reason_to_look_again(is_current: bool, due: float | None):
    made = queue("a")
    pool = take(made)
    made.touched(["a"], 5.0)
    finished(made, pool, is_current=is_current)
    assert pool.due == due
    assert made.is_settled() is is_current


@pytest.mark.parametrize("race", [ConflictError("x", status=409), NotFoundError("x", status=404)])
def test_lost_races_are_told_from_the_third_on(race: ApiError):
    made = queue("a")
    told = []
    for _ in range(4):
        pool = take(made)
        told.append(failed(made, pool, race, 0.0))
    assert told == [False, False, True, True]


def test_invalid_plans():
    made = queue("a")
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
    made = PoolQueue(BACKOFF)
    made.publish({"a": InvalidObjectError("pool a", ["bad"])}, ["a"], 0.0)
    made.touched(["a"], 1.0)
    assert made.next() is None


def test_dropped_fields_are_known_until_the_server_keeps_them():
    made = queue("a")
    dropped = DroppedFieldsError("a", {0: [("x", "Gate")]})
    pool = finish(made, dropped)
    made.touched(["a"], 1.0)
    finish(made, dropped)
    assert (made.is_settled(), made.errors()) == (True, {"a": dropped})
    made.publish({"a": planned("a", {"x": 1})}, [], 5.0)
    finish(made)
    assert made.errors() == {}
    assert desired(pool).specs == ({"x": 1},)


def test_the_earliest_comes_first():
    made = queue("a")
    made.publish({"a": planned("a"), "b": planned("b")}, [], 3.0)
    assert [finish(made).name, finish(made).name] == ["a", "b"]
    assert made.next() is None


def test_has_cluster_pools():
    assert not queue("a").has_cluster_pools()
    made = queue("a")
    made.publish({"a": planned("a", {"allNodes": True})}, [], 0.0)
    assert made.has_cluster_pools()
