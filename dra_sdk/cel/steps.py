"""The steps of a planned expression that call functions, and those that decide what is evaluated at all."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import repeat
from math import ceil
from typing import Any, Final

from dra_sdk.cel.comparison import equal, same
from dra_sdk.cel.frame import PENDING, Constant, EvaluationFrame, Failure, Lazy, Step, read
from dra_sdk.cel.library.lists import insert_into
from dra_sdk.cel.library.overloads import NEW_LIST, STRING, Overload
from dra_sdk.cel.values import (
    MISSING,
    EvaluationError,
    Optional,
    Semver,
    check_size,
    fits,
    is_list,
    type_of,
)

Dispatch = Callable[[EvaluationFrame, list[Any]], tuple[Any, int]]
"""Calls a function with operands; returns its value and its cost."""

#: Kubernetes knows the cost of these only where the types decide which overload is called; else they cost 1.
_COSTED_BY_OVERLOAD: Final = frozenset(
    {"_+_", "_<_", "_<=_", "_>_", "_>=_", "@in", "sort", "@sortByAssociatedKeys", "string", "bytes"}
)
#: What the scheduler calls these types in its messages, so that one can search for them.
_GO_NAMES: Final = {
    **{name: f"types.{name.capitalize()}" for name in ("bool", "int", "uint", "double", "string", "bytes")},
    **{f"kubernetes.{name}": f"cel.{name}" for name in ("Semver", "Quantity")},
}


def dispatch_to(overload: Overload) -> Dispatch:
    """Return the dispatch to the one overload that the types decided for."""
    run = _runner(overload)

    def dispatch(frame: EvaluationFrame, args: list[Any]) -> tuple[Any, int]:
        value = run(frame, args)
        return value, _cost(overload, args, value)

    return dispatch


def dispatch_by_values(overloads: Sequence[Overload]) -> Dispatch:
    """Return the dispatch to the overload that the values decide for, where the types are not known before."""
    nominal = len(overloads) > 1 and overloads[0].function in _COSTED_BY_OVERLOAD
    runners = [(overload, _runner(overload)) for overload in overloads]

    def dispatch(frame: EvaluationFrame, args: list[Any]) -> tuple[Any, int]:
        for overload, run in runners:
            if overload.loose or all(map(fits, args, overload.params)):
                value = run(frame, args)
                return value, 1 if nominal else _cost(overload, args, value)
        raise EvaluationError("no such overload")

    return dispatch


def _runner(overload: Overload) -> Callable[[EvaluationFrame, list[Any]], Any]:
    run = overload.run
    return (lambda frame, args: run(frame.count, *args)) if overload.counted else (lambda _frame, args: run(*args))


def _cost(overload: Overload, args: list[Any], value: Any) -> int:
    cost = overload.cost.actual
    return cost if isinstance(cost, int) else cost(args, value)


def call(dispatch: Dispatch, steps: Sequence[Step]) -> Step:
    """Return the step of a call whose cost depends on its operands."""

    def run(frame: EvaluationFrame) -> Any:
        value, cost = dispatch(frame, [step(frame) for step in steps])
        frame.spend(cost)
        return value

    return run


def fixed_call(function: Callable[..., Any], cost: int, steps: Sequence[Step]) -> Step:
    """Return the step of a call of one certain function at a fixed cost."""
    if len(steps) == 1:
        (only,) = steps

        def run_unary(frame: EvaluationFrame) -> Any:
            value = only(frame)
            frame.cost += cost
            return function(value)

        return run_unary

    def run(frame: EvaluationFrame) -> Any:
        values = [step(frame) for step in steps]
        frame.cost += cost
        return function(*values)

    return run


def constant_call(dispatch: Dispatch, frame: EvaluationFrame, args: list[Any]) -> Step:
    """Return the step of a call such as `quantity("1Gi")`: evaluated once, and paid for each time."""
    try:
        value, cost = dispatch(frame, args)
    except EvaluationError as error:
        value, cost = Failure(error), 1

    def run(frame: EvaluationFrame) -> Any:
        frame.spend(cost)
        if isinstance(value, Failure):
            raise value.error
        return value

    return run


_SCALARS: Final = frozenset({bool, int, float})


def equality(overload: Overload, left: Step, right: Step, *, negated: bool) -> Step:
    """Return the step of `left == right` or `left != right`, with short ways for two scalars of one type."""
    compare, cost_of = (same if negated else equal), overload.cost.actual
    assert not isinstance(cost_of, int)

    def run(frame: EvaluationFrame) -> bool:
        one, other = left(frame), right(frame)
        kind = type(one)
        if kind is type(other):
            if kind is str:
                frame.spend(ceil(min(len(one), len(other)) * STRING))
                return (one == other) is not negated
            if kind in _SCALARS:
                frame.cost += 1
                return (one == other) is not negated
        value = compare(frame.count, one, other) is not negated
        frame.spend(cost_of((one, other), value))
        return value

    return run


def is_set(items: Any) -> bool:
    """Return whether Kubernetes tests membership in this constant at no cost, because it makes a set of it."""
    return isinstance(items, list) and all(isinstance(item, bool | int | float | str) for item in items)


def membership(item: Step, items: Sequence[Any]) -> Step:
    """Return the step of `item in items` for such a constant."""
    if not items:
        return Constant(value=False)

    def run(frame: EvaluationFrame) -> bool:
        wanted = item(frame)
        if isinstance(wanted, Semver):
            raise EvaluationError("a version cannot be looked up in a list of other constants")
        return any(equal(frame.count, member, wanted) for member in items)

    return run


def logical(left: Step, right: Step, *, decisive: bool) -> Step:
    """Return the step of `&&` or `||`: either side may decide, even if the other one is an error."""

    def run(frame: EvaluationFrame) -> Any:
        try:
            first = left(frame)
        except EvaluationError:
            if right(frame) is decisive:
                return decisive
            raise
        if first is decisive:
            return decisive
        second = right(frame)
        if second is decisive:
            return decisive
        if isinstance(first, bool) and isinstance(second, bool):
            return second
        raise EvaluationError("no such overload")

    return run


def conditional(condition: Step, yes: Step, no: Step) -> Step:
    """Return the step of `condition ? yes : no`."""

    def run(frame: EvaluationFrame) -> Any:
        chosen = condition(frame)
        if not isinstance(chosen, bool):
            raise EvaluationError("no such overload")
        return yes(frame) if chosen else no(frame)

    return run


def fallback(optional: Step, other: Step, *, unwrap: bool) -> Step:
    """Return the step of `optional.or(other)`, or with `unwrap` of `optional.orValue(other)`."""

    def run(frame: EvaluationFrame) -> Any:
        value = optional(frame)
        if not isinstance(value, Optional):
            raise EvaluationError("no such overload")
        if value.value is MISSING:
            return other(frame)
        return value.value if unwrap else value

    return run


def not_strictly_false(operand: Step) -> Step:
    """Return the step that lets a loop go on: an accumulator that is an error may still become true or false."""

    def run(frame: EvaluationFrame) -> bool:
        try:
            goes_on = operand(frame) is not False
        except EvaluationError:
            goes_on = True
        frame.cost += 1
        return goes_on

    return run


def bound(slot: int, value: Step, result: Step) -> Step:
    """Return the step of `cel.bind`: a variable whose value is computed when it is first read."""

    def run(frame: EvaluationFrame) -> Any:
        frame.variables[slot] = Lazy(value)
        return result(frame)

    return run


def loop(items: Step, start: Step, slots: tuple[int, int, int], parts: tuple[Step, Step, Step], *, pairs: bool) -> Step:
    """Return the step of a comprehension.

    items: the step of what is iterated.
    start: the step of the first value of the accumulator.
    slots: the slots of the accumulator and of the two variables.
    parts: the steps of the condition, of the next value of the accumulator, and of the result.
    pairs: whether there are two variables.
    """
    slot, first, second = slots
    condition, step, result = parts

    def run(frame: EvaluationFrame) -> Any:
        variables = frame.variables
        entries = _entries(items(frame), pairs=pairs)
        variables[slot] = start(frame)
        for variables[first], variables[second] in entries:
            if not condition(frame):
                break
            try:
                variables[slot] = step(frame)
            except EvaluationError as error:
                variables[slot] = Failure(error)
            frame.spend(0)
        return result(frame)

    return run


def _entries(value: Any, *, pairs: bool) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return value.items()
    if is_list(value):
        return enumerate(value) if pairs else zip(value, repeat(None), strict=False)
    name = type_of(value).name
    raise EvaluationError(f"got '{_GO_NAMES.get(name, name)}', expected iterable type")


def fresh(make: Callable[[], Any]) -> Step:
    """Return the step of an empty list or map that a loop fills."""
    return lambda _frame: make()


def append(slot: int, item: Step) -> Step:
    """Return the step of `accumulator + [item]` in a loop: nothing else can see the list, so it grows in place."""
    # The accumulator, the operator, and the list of one item unless that is a constant.
    return partial(_append, slot, item, 2 if isinstance(item, Constant) else 2 + NEW_LIST)


def _append(slot: int, item: Step, cost: int, frame: EvaluationFrame) -> list[Any]:
    items: list[Any] = frame.variables[slot]
    if type(items) in PENDING:
        items = read(frame, slot)
    frame.cost += cost
    items.append(item(frame))
    check_size(len(items))
    return items


def insert(slot: int, entry: Sequence[Step]) -> Step:
    """Return the step of `cel.@mapInsert(accumulator, …)` in a loop: likewise, the map grows in place."""
    return partial(_insert, slot, entry)


def _insert(slot: int, entry: Sequence[Step], frame: EvaluationFrame) -> dict[Any, Any]:
    entries: dict[Any, Any] = frame.variables[slot]
    if type(entries) in PENDING:
        entries = read(frame, slot)
    frame.cost += 2
    made = [step(frame) for step in entry]
    if len(made) == 1 and not isinstance(made[0], Mapping):
        raise EvaluationError("no such overload")
    check_size(len(entries))
    return insert_into(entries, *made)
