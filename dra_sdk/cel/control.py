"""The steps that decide what is evaluated at all: `&&`, `||`, `?:`, fallbacks of optionals, loops and bindings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dra_sdk.cel.frame import Failed, Frame, Lazy, Step
from dra_sdk.cel.values import MISSING, EvaluationError, Optional, type_of

#: What the scheduler calls these types in its messages, so that one can search for them.
_GO_NAMES: Final = {
    "bool": "types.Bool",
    "int": "types.Int",
    "uint": "types.Uint",
    "double": "types.Double",
    "string": "types.String",
    "bytes": "types.Bytes",
    "kubernetes.Semver": "cel.Semver",
    "kubernetes.Quantity": "cel.Quantity",
}


def logical(left: Step, right: Step, *, decisive: bool) -> Step:
    """`&&` and `||`: either side may decide, whatever is wrong with the other one."""

    def run(frame: Frame) -> Any:
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
    """`condition ? yes : no`."""

    def run(frame: Frame) -> Any:
        chosen = condition(frame)
        if not isinstance(chosen, bool):
            raise EvaluationError("no such overload")
        return yes(frame) if chosen else no(frame)

    return run


def fallback(optional: Step, other: Step, *, unwrap: bool) -> Step:
    """`optional.or(other)`, or with `unwrap` `optional.orValue(other)`."""

    def run(frame: Frame) -> Any:
        found = optional(frame)
        if not isinstance(found, Optional):
            raise EvaluationError("no such overload")
        if found.value is MISSING:
            return other(frame)
        return found.value if unwrap else found

    return run


def not_strictly_false(operand: Step) -> Step:
    """Whether a loop goes on: an accumulator that is an error may still become true or false."""

    def run(frame: Frame) -> bool:
        try:
            found = operand(frame) is not False
        except EvaluationError:
            found = True
        frame.cost += 1
        return found

    return run


def bound(slot: int, value: Step, result: Step) -> Step:
    """`cel.bind`: a variable whose value is computed when it is first read."""

    def run(frame: Frame) -> Any:
        frame.variables[slot] = Lazy(value)
        return result(frame)

    return run


class Loop:
    """A comprehension; `slots` are those of the accumulator and of the two variables."""

    def __init__(self, items: Step, start: Step, slots: tuple[int, int, int], *, pairs: bool) -> None:
        self._items, self._start, self._slots, self._pairs = items, start, slots, pairs

    def over(self, condition: Step, step: Step, result: Step) -> Step:
        """The step that runs the loop."""
        items, start, pairs = self._items, self._start, self._pairs
        slot, first, second = self._slots

        def run(frame: Frame) -> Any:
            variables = frame.variables
            entries = _entries(items(frame), pairs=pairs)
            variables[slot] = start(frame)
            for variables[first], variables[second] in entries:
                if not condition(frame):
                    break
                try:
                    variables[slot] = step(frame)
                except EvaluationError as error:
                    variables[slot] = Failed(error)
                frame.spend(0)
            return result(frame)

        return run


def _entries(value: Any, *, pairs: bool) -> Iterable[tuple[Any, Any]]:
    if isinstance(value, Mapping):
        return list(value.items())
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return list(enumerate(value)) if pairs else [(each, None) for each in value]
    name = type_of(value).name
    raise EvaluationError(f"got '{_GO_NAMES.get(name, name)}', expected iterable type")
