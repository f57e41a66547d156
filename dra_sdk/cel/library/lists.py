"""Functions on lists: Kubernetes' own, cel-go's extension library in version 3, sets, and `includes`.

Source: Kubernetes apiserver, library/lists.go; cel-go, ext/lists.go and ext/sets.go; and the environment of device
selectors (k8s.io/dynamic-resource-allocation, cel), where `includes` comes with list attributes (KEP-5491).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cmp_to_key, partial
from itertools import pairwise
from typing import Any, Final

from dra_sdk.cel.comparison import Count, compare, same
from dra_sdk.cel.library.overloads import (
    MAX,
    ONE,
    CallEstimate,
    CallSite,
    Cost,
    Overload,
    Range,
    cost_of_new_list,
    estimate_new_list,
    exactly,
    method,
)
from dra_sdk.cel.library.overloads import STRING as PER_CHARACTER
from dra_sdk.cel.library.standard import integer, unsigned
from dra_sdk.cel.library.strings import cost_of_traversal
from dra_sdk.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    Type,
    list_of,
    map_of,
    param,
)
from dra_sdk.cel.values import Duration, EvaluationError, check_size, fits, is_list, size

MAX_INCLUDES: Final = 48
"""How many values `includes` of 1.36 looks at: as many as a device's attributes may have together."""
MAX_RANGE_1_37: Final = 1_000_000
"""How many numbers `lists.range` of 1.37 makes."""

_T = param("T")
_LIST: Final = list_of(_T)
_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
#: Python copies this many items or entries in the time of one step, as a power of two.
_COPY_SHIFT: Final = 3


def _includes(count: Count, target: Any, wanted: Any) -> bool:
    if not is_list(target):
        return same(count, target, wanted)
    if any(same(count, item, wanted) for item in target[:MAX_INCLUDES]):
        return True
    if len(target) > MAX_INCLUDES:
        raise EvaluationError(f"'includes' function cannot be applied to lists longer than {MAX_INCLUDES} values")
    return False


def _includes_of_1_37(count: Count, target: Any, wanted: Any) -> bool:
    return any(same(count, item, wanted) for item in target) if is_list(target) else same(count, target, wanted)


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(compare(left, right) <= 0 for left, right in pairwise(items))


def _extreme(items: Sequence[Any], name: str, sign: int) -> Any:
    if not items:
        raise EvaluationError(f"{name} called on empty list")
    best = items[0]
    for item in items[1:]:
        if compare(item, best) == sign:
            best = item
    return best


def _sum(kind: Type, result: Callable[[Any], Any]) -> Callable[[Sequence[Any]], Any]:
    def run(items: Sequence[Any]) -> Any:
        if not all(fits(item, kind) for item in items):
            raise EvaluationError("no such overload: sum(list)")
        return result(sum(items))

    return run


def _sum_of_durations(items: Sequence[Any]) -> Duration:
    total = 0
    for item in items:
        if not isinstance(item, Duration):
            raise EvaluationError("no such overload: sum(list)")
        total = integer(total + item.nanoseconds)
    return Duration(total)


def _index_of(count: Count, items: Sequence[Any], wanted: Any) -> int:
    return next((index for index, item in enumerate(items) if same(count, item, wanted)), -1)


def _last_index_of(count: Count, items: Sequence[Any], wanted: Any) -> int:
    return next((index for index in reversed(range(len(items))) if same(count, items[index], wanted)), -1)


def _slice(items: Sequence[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return list(items[start:end])


def _flatten(count: Count, items: Any, levels: int = 1) -> list[Any]:
    if not is_list(items):
        raise EvaluationError("no such overload: flatten")
    if levels < 0:
        raise EvaluationError("level must be non-negative")
    flat = list(items)
    while levels and any(map(is_list, flat)):
        flat = _flattened_once(flat)
        count(len(flat) >> _COPY_SHIFT)
        levels -= 1
    return flat


def _flattened_once(items: list[Any]) -> list[Any]:
    flat: list[Any] = []
    for item in items:
        if is_list(item):
            flat += item
        else:
            flat.append(item)
        check_size(len(flat))
    return flat


def _distinct(count: Count, items: Sequence[Any]) -> list[Any]:
    kept: list[Any] = []
    for item in items:
        count(len(kept))
        if not any(same(count, item, other) for other in kept):
            kept.append(item)
    return kept


def _sort(items: Sequence[Any], keys: Sequence[Any] | None = None) -> list[Any]:
    keys = items if keys is None else keys
    if not is_list(items) or not is_list(keys) or len(items) != len(keys):
        raise EvaluationError("no such overload: sort")
    if any(type(key) is not type(keys[0]) for key in keys):
        raise EvaluationError("list elements must have the same type")
    order: list[tuple[Any, Any]] = sorted(zip(keys, items, strict=True), key=cmp_to_key(_by_key))
    return [item for _, item in order]


def _by_key(left: tuple[Any, Any], right: tuple[Any, Any]) -> int:
    return compare(left[0], right[0])


def _range(length: int) -> list[int]:
    check_size(length)
    return list(range(length))


def _range_of_1_37(length: int) -> list[int]:
    if length < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {length}")
    if length > MAX_RANGE_1_37:
        raise EvaluationError(f"lists.range: size {length} exceeds maximum allowed ({MAX_RANGE_1_37})")
    return list(range(length))


def _contains(count: Count, items: Sequence[Any], wanted: Sequence[Any]) -> bool:
    for member in wanted:
        count(len(items))
        if not any(same(count, item, member) for item in items):
            return False
    return True


def _equivalent(count: Count, left: Sequence[Any], right: Sequence[Any]) -> bool:
    return _contains(count, left, right) and _contains(count, right, left)


def _intersects(count: Count, left: Sequence[Any], right: Sequence[Any]) -> bool:
    return any(_contains(count, right, [item]) for item in left)


def _insert(count: Count, container: Mapping[Any, Any], *entry: Any) -> dict[Any, Any]:
    count(len(container) >> _COPY_SHIFT)
    return insert_into(dict(container), *entry)


def insert_into(container: dict[Any, Any], *entry: Any) -> dict[Any, Any]:
    """Add an entry, or all entries of a map, to a map; EvaluationError if it has one of the keys."""
    new = entry[0] if len(entry) == 1 else {entry[0]: entry[1]}
    for key in new:
        if key in container:
            raise EvaluationError(f"insert failed: key {key!r} already exists")
    container.update(new)
    return container


def _estimate_walk(site: CallSite) -> CallEstimate:
    items = site.type(0).params
    if not items:
        return CallEstimate(site.size(0).scaled(PER_CHARACTER))
    per_item = ONE
    if items[0] in {STRING, BYTES}:
        per_item = per_item.plus(site.item_size(0).scaled(PER_CHARACTER))
    return CallEstimate(site.size(0).times(per_item))


def _estimate_includes(site: CallSite) -> CallEstimate:
    return _estimate_walk(site) if site.type(0).params else CallEstimate(site.size(0))


def _estimate_slice(site: CallSite) -> CallEstimate:
    start, end = (site.constant(index) for index in (1, 2))
    first = max(start, 0) if isinstance(start, int) else 0
    last = max(end, 0) if isinstance(end, int) else site.size(0).high
    return estimate_new_list(exactly((last - first) % (MAX + 1)), 1)


def _estimate_range(site: CallSite) -> CallEstimate:
    count = site.constant(0)
    return estimate_new_list(exactly(max(count, 0) if isinstance(count, int) else MAX), 1)


def _estimate_flatten(site: CallSite) -> CallEstimate:
    levels = site.constant(1) if site.count > 1 else 1
    return estimate_new_list(site.size(0), float(max(levels, 0) if isinstance(levels, int) else MAX))


def _cost_of_flatten(args: Sequence[Any], _result: Any) -> int:
    return cost_of_new_list(size(args[0]), float(args[1]) if len(args) > 1 else 1.0)


def _compared(index: int, kind: Type | None = None) -> Cost:
    """Return the cost of comparing every item of a list with every other."""
    factor = 2 + PER_CHARACTER if kind in {STRING, BYTES} else 2.0

    def actual(args: Sequence[Any], _result: Any) -> int:
        items = args[index]
        texts = bool(items) and isinstance(items[0], str | bytes)
        return cost_of_new_list(len(items) ** 2, 2 + PER_CHARACTER if texts else 2.0)

    def estimate(site: CallSite) -> CallEstimate:
        return estimate_new_list(site.size(index).times(site.size(index)), factor)

    return Cost(estimate, actual)


def _sets(factor: int) -> Cost:
    def estimate(site: CallSite) -> CallEstimate:
        return CallEstimate(site.size(0).times(site.size(1)).scaled(factor).plus(ONE))

    return Cost(estimate, lambda args, _result: 1 + size(args[0]) * size(args[1]) * factor)


def includes(*, since_1_37: bool) -> Overload:
    """Declare the method that DRAListTypeAttributes adds; since 1.37 it is for lists of any length, and costs more."""
    if since_1_37:
        cost = Cost(_estimate_includes, cost_of_traversal)
        return method("includes", (DYN, DYN), BOOL, _includes_of_1_37, cost, counted=True)
    cost = Cost(lambda _site: CallEstimate(Range(0, MAX_INCLUDES)), 1)
    return method("includes", (DYN, DYN), BOOL, _includes, cost, counted=True)


def declared(*, since_1_37: bool) -> Iterator[Overload]:
    """Declare all functions on lists except `includes`."""
    walked = Cost(_estimate_walk, cost_of_traversal)
    for kind in _COMPARABLE:
        yield method("isSorted", (list_of(kind),), BOOL, _is_sorted, walked)
        for name, sign in (("max", 1), ("min", -1)):
            yield method(name, (list_of(kind),), kind, partial(_extreme, name=name, sign=sign), walked)
        yield method("sort", (list_of(kind),), list_of(kind), _sort, _compared(0, kind), loose=True)
        yield method("@sortByAssociatedKeys", (_LIST, list_of(kind)), _LIST, _sort, _compared(1, kind), loose=True)
    for kind, result in ((INT, integer), (UINT, unsigned), (DOUBLE, float)):
        yield method("sum", (list_of(kind),), kind, _sum(kind, result), walked)
    yield method("sum", (list_of(DURATION),), DURATION, _sum_of_durations, walked)
    yield method("indexOf", (_LIST, _T), INT, _index_of, walked, counted=True)
    yield method("lastIndexOf", (_LIST, _T), INT, _last_index_of, walked, counted=True)
    whole = Cost(
        lambda site: estimate_new_list(site.size(0), 1), lambda _args, result: cost_of_new_list(len(result), 1)
    )
    yield method("slice", (_LIST, INT, INT), _LIST, _slice, Cost(_estimate_slice, whole.actual))
    cost = Cost(_estimate_flatten, _cost_of_flatten)
    yield method("flatten", (list_of(_LIST),), _LIST, _flatten, cost, loose=True, counted=True)
    yield method("flatten", (list_of(DYN), INT), list_of(DYN), _flatten, cost, counted=True)
    make = _range_of_1_37 if since_1_37 else _range
    yield Overload("lists.range", (INT,), list_of(INT), make, Cost(_estimate_range, whole.actual))
    yield method("reverse", (_LIST,), _LIST, lambda items: list(reversed(items)), whole)
    yield method("distinct", (_LIST,), _LIST, _distinct, _compared(0), counted=True)
    yield Overload("sets.contains", (_LIST, _LIST), BOOL, _contains, _sets(1), counted=True)
    yield Overload("sets.equivalent", (_LIST, _LIST), BOOL, _equivalent, _sets(2), counted=True)
    yield Overload("sets.intersects", (_LIST, _LIST), BOOL, _intersects, _sets(1), counted=True)
    key, value = param("K"), param("V")
    entries = map_of(key, value)
    yield Overload("cel.@mapInsert", (entries, key, value), entries, _insert, counted=True)
    yield Overload("cel.@mapInsert", (entries, entries), entries, _insert, counted=True)
