"""Equality, order and the look-up of keys.

Kubernetes charges a comparison by the sizes of its two operands and does not count what lies inside their items, so
that comparing lists of lists can take minutes at a cost of 1. Every function here therefore also counts its steps, and
an evaluation is stopped after as many steps as the cost limit has units.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from dra_sdk.cel.types import Type
from dra_sdk.cel.values import (
    MISSING,
    ComputedQuantity,
    Duration,
    EvaluationError,
    Optional,
    Timestamp,
    is_list,
    is_number,
    type_of,
)

Count = Callable[[int], None]
"""Counts steps of one evaluation; raises CostLimitError when there are too many."""
MAP_KEYS: Final = (str, int, float, bytes, type(None), Timestamp, Duration)
"""What may be the key of a map."""
_ORDERED: Final = (str, bytes, bool, Timestamp, Duration)
#: Python looks at this many keys in the time of one step, as a power of two.
_LOOK_SHIFT: Final = 4


def equal(count: Count, left: Any, right: Any) -> bool:
    """Return CEL's `left == right`: numbers compare across their types, everything else within one type only.

    EvaluationError where Kubernetes' own types are compared with anything else.
    """
    pending = [(left, right)]
    nested = False
    while pending:
        left, right = pending.pop()
        if isinstance(left, str | bytes | bool | None):
            if type(left) is not type(right) or left != right:
                return False
        elif is_number(left):
            if not is_number(right) or left != right:
                return False
        else:
            inside = _inside(count, left, right, nested=nested)
            if inside is None:
                return False
            count(1)
            pending += reversed(inside)
            nested = nested or isinstance(left, Mapping | Sequence)
    return True


def _inside(count: Count, left: Any, right: Any, *, nested: bool) -> list[tuple[Any, Any]] | None:
    """Return the pairs inside two values that must be equal; None if the values differ.

    A value is `nested` if it comes from a list or a map; there Kubernetes compares computed quantities on both sides.
    """
    if isinstance(left, Mapping):
        return _entries(count, left, right) if isinstance(right, Mapping) and len(left) == len(right) else None
    if isinstance(left, Sequence):
        if not is_list(right) or len(left) != len(right):
            return None
        count(len(left))
        return list(zip(left, right, strict=True))
    if isinstance(left, Optional) and isinstance(right, Optional):
        if left.value is MISSING or right.value is MISSING:
            return [] if left is right else None
        return [(left.value, right.value)]
    return [] if _equal_opaque(left, right, nested=nested) else None


def _entries(count: Count, left: Mapping[Any, Any], right: Mapping[Any, Any]) -> list[tuple[Any, Any]] | None:
    count(len(left))
    pairs = [(value, find(count, right, key)) for key, value in left.items()]
    return None if any(other is MISSING for _, other in pairs) else pairs


def _equal_opaque(left: Any, right: Any, *, nested: bool) -> bool:
    if isinstance(left, Type | Optional | Timestamp | Duration):
        return bool(left == right)
    computed = isinstance(right, ComputedQuantity) and not nested
    if computed or type_of(left).name != type_of(right).name:
        raise EvaluationError(f"no such overload: {type_of(left)} == {type_of(right)}")
    return bool(left == right)


def same(count: Count, left: Any, right: Any) -> bool:
    """Return `equal`, and False for what cannot be compared: the rule of `!=` and of searches in lists."""
    try:
        return equal(count, left, right)
    except EvaluationError:
        return False


def find(count: Count, container: Mapping[Any, Any], key: Any) -> Any:
    """Return what a map holds under a key, or MISSING."""
    if not isinstance(key, MAP_KEYS):
        return MISSING
    found = container.get(key, MISSING)
    if found is MISSING or not isinstance(key, int | float):
        return found
    # 1 and true are one key to Python and two to CEL, so look at the key that the map holds.
    count(len(container) >> _LOOK_SHIFT)
    kinds = set(map(type, container))
    if bool in kinds and kinds != {bool}:
        kinds = {type(next(other for other in container if other == key))}
    return found if (bool in kinds) is isinstance(key, bool) else MISSING


def compare(left: Any, right: Any) -> int:
    """Return -1, 0 or 1; EvaluationError if the two have no order."""
    numbers = is_number(left) and is_number(right)
    if not numbers and (type(left) is not type(right) or not isinstance(left, _ORDERED)):
        raise EvaluationError("no such overload")
    if left != left or right != right:  # noqa: PLR0124 (NaN alone is unequal to itself)
        raise EvaluationError("NaN values cannot be ordered")
    return int(left > right) - int(left < right)
