"""Functions on lists: Kubernetes' own, cel-go's extension library in version 3, sets, and `includes`.

Source: Kubernetes apiserver library/lists.go, cel-go ext/lists.go and ext/sets.go, and the environment of device
selectors (k8s.io/dynamic-resource-allocation, cel), where `includes` comes with list attributes (KEP-5491).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cmp_to_key
from itertools import pairwise
from typing import Any, Final

from dra_sdk.cel.cost import (
    MAX,
    ONE,
    Price,
    Quote,
    Range,
    Site,
    allocated,
    allocating,
    exactly,
)
from dra_sdk.cel.cost import (
    STRING as PER_CHARACTER,
)
from dra_sdk.cel.library.functions import Overload, function, method
from dra_sdk.cel.library.operators import integer, unsigned
from dra_sdk.cel.library.strings import price_index
from dra_sdk.cel.types import BOOL, BYTES, DOUBLE, DYN, INT, STRING, UINT, Type, list_of, map_of, param
from dra_sdk.cel.values import EvaluationError, bounded, compare, fits, same, size

MAX_INCLUDES: Final = 48
"""How many values `includes` of 1.36 looks at: as many as a device's attributes may have together."""

_T = param("T")
_LIST: Final = list_of(_T)
_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, STRING, BYTES)


def _is_list(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str | bytes)


def _includes(target: Any, wanted: Any) -> bool:
    if not _is_list(target):
        return same(target, wanted)
    if any(same(each, wanted) for each in target[:MAX_INCLUDES]):
        return True
    if len(target) > MAX_INCLUDES:
        raise EvaluationError(f"'includes' function cannot be applied to lists longer than {MAX_INCLUDES} values")
    return False


def _includes_any(target: Any, wanted: Any) -> bool:
    return any(same(each, wanted) for each in target) if _is_list(target) else same(target, wanted)


def _is_sorted(items: Sequence[Any]) -> bool:
    return all(compare(left, right) <= 0 for left, right in pairwise(items))


def _extreme(items: Sequence[Any], name: str, sign: int) -> Any:
    if not items:
        raise EvaluationError(f"{name} called on empty list")
    best = items[0]
    for each in items[1:]:
        if compare(each, best) == sign:
            best = each
    return best


def _sum(kind: Type, result: Callable[[Any], Any]) -> Callable[[Sequence[Any]], Any]:
    def run(items: Sequence[Any]) -> Any:
        if not all(fits(each, kind) for each in items):
            raise EvaluationError("no such overload: sum(list)")
        return result(sum(items))

    return run


def _max(items: Sequence[Any]) -> Any:
    return _extreme(items, "max", 1)


def _min(items: Sequence[Any]) -> Any:
    return _extreme(items, "min", -1)


def _index_of(items: Sequence[Any], wanted: Any) -> int:
    return next((index for index, each in enumerate(items) if same(each, wanted)), -1)


def _last_index_of(items: Sequence[Any], wanted: Any) -> int:
    return next((index for index in reversed(range(len(items))) if same(items[index], wanted)), -1)


def _slice(items: Sequence[Any], start: int, end: int) -> list[Any]:
    if not 0 <= start <= end <= len(items):
        raise EvaluationError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return list(items[start:end])


def _flatten(items: Any, levels: int = 1) -> list[Any]:
    if not _is_list(items):
        raise EvaluationError("no such overload: flatten")
    if levels < 0:
        raise EvaluationError("level must be non-negative")
    flat: list[Any] = []
    for each in items:
        flat.extend(_flatten(each, levels - 1) if _is_list(each) and levels else [each])
    return flat


def _distinct(items: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for each in items:
        if not any(same(each, other) for other in found):
            found.append(each)
    return found


def _sort(items: Sequence[Any], keys: Sequence[Any] | None = None) -> list[Any]:
    keys = items if keys is None else keys
    if not _is_list(items) or not _is_list(keys) or len(items) != len(keys):
        raise EvaluationError("no such overload: sort")
    if any(type(each) is not type(keys[0]) for each in keys):
        raise EvaluationError("list elements must have the same type")
    order: list[tuple[Any, Any]] = sorted(zip(keys, items, strict=True), key=cmp_to_key(_by_key))
    return [item for _, item in order]


def _by_key(left: tuple[Any, Any], right: tuple[Any, Any]) -> int:
    return compare(left[0], right[0])


def _range(count: int) -> list[int]:
    bounded(count)
    return list(range(count))


def _range_of_1_37(count: int) -> list[int]:
    if count < 0:
        raise EvaluationError(f"lists.range: size must be non-negative, got {count}")
    return _range(count)


def _contains(items: Sequence[Any], wanted: Sequence[Any]) -> bool:
    return all(any(same(each, item) for each in items) for item in wanted)


def _insert(container: Mapping[Any, Any], *entry: Any) -> dict[Any, Any]:
    new = dict(entry[0]) if len(entry) == 1 else {entry[0]: entry[1]}
    for key in new:
        if key in container:
            raise EvaluationError(f"insert failed: key {key!r} already exists")
    return {**container, **new}


def _estimate_walk(site: Site) -> Quote:
    items = site.type(0).params
    if not items:
        return Quote(site.size(0).scaled(PER_CHARACTER))
    each = ONE
    if items[0] in {STRING, BYTES}:
        each = each.plus(site.item_size(0).scaled(PER_CHARACTER))
    return Quote(site.size(0).times(each))


def _estimate_includes(site: Site) -> Quote:
    return _estimate_walk(site) if site.type(0).params else Quote(site.size(0))


def _estimate_slice(site: Site) -> Quote:
    start, end = (site.constant(index) for index in (1, 2))
    first = max(start, 0) if isinstance(start, int) else 0
    last = max(end, 0) if isinstance(end, int) else site.size(0).high
    return allocating(exactly((last - first) % (MAX + 1)), 1)


def _estimate_range(site: Site) -> Quote:
    count = site.constant(0)
    return allocating(exactly(max(count, 0) if isinstance(count, int) else MAX), 1)


def _estimate_flatten(site: Site) -> Quote:
    levels = site.constant(1) if site.count > 1 else 1
    return allocating(site.size(0), float(max(levels, 0) if isinstance(levels, int) else MAX))


def _price_flatten(args: Sequence[Any], _result: Any) -> int:
    return allocated(size(args[0]), float(args[1]) if len(args) > 1 else 1.0)


def _compared(index: int, kind: Type | None = None) -> Price:
    """The price of comparing every item of a list with every other."""
    factor = 2 + PER_CHARACTER if kind in {STRING, BYTES} else 2.0

    def actual(args: Sequence[Any], _result: Any) -> int:
        items = args[index]
        texts = bool(items) and isinstance(items[0], str | bytes)
        return allocated(len(items) ** 2, 2 + PER_CHARACTER if texts else 2.0)

    def estimate(site: Site) -> Quote:
        return allocating(site.size(index).times(site.size(index)), factor)

    return Price(estimate, actual)


def _sets(factor: int) -> Price:
    def estimate(site: Site) -> Quote:
        return Quote(site.size(0).times(site.size(1)).scaled(factor).plus(ONE))

    return Price(estimate, lambda args, _result: 1 + size(args[0]) * size(args[1]) * factor)


def includes(*, since_1_37: bool) -> Overload:
    """The method that DRAListTypeAttributes adds; since 1.37 for lists of any length, and priced by it."""
    if since_1_37:
        return method("includes", (DYN, DYN), BOOL, _includes_any, Price(_estimate_includes, price_index))
    return method("includes", (DYN, DYN), BOOL, _includes, Price(lambda _site: Quote(Range(0, MAX_INCLUDES)), 1))


def declared(*, since_1_37: bool) -> Iterator[Overload]:
    """All functions on lists, without `includes`."""
    walked = Price(_estimate_walk, price_index)
    for kind in _COMPARABLE:
        yield method("isSorted", (list_of(kind),), BOOL, _is_sorted, walked)
        yield method("max", (list_of(kind),), kind, _max, walked)
        yield method("min", (list_of(kind),), kind, _min, walked)
        sort = method("sort", (list_of(kind),), list_of(kind), _sort, _compared(0, kind))
        sort_by = method("@sortByAssociatedKeys", (_LIST, list_of(kind)), _LIST, _sort, _compared(1, kind))
        yield from (replace(sort, loose=True), replace(sort_by, loose=True))
    for kind, result in ((INT, integer), (UINT, unsigned), (DOUBLE, float)):
        yield method("sum", (list_of(kind),), kind, _sum(kind, result), walked)
    yield method("indexOf", (_LIST, _T), INT, _index_of, walked)
    yield method("lastIndexOf", (_LIST, _T), INT, _last_index_of, walked)
    whole = Price(lambda site: allocating(site.size(0), 1), lambda _args, result: allocated(len(result), 1))
    yield method("slice", (_LIST, INT, INT), _LIST, _slice, Price(_estimate_slice, whole.actual))
    flatten = method("flatten", (list_of(_LIST),), _LIST, _flatten, Price(_estimate_flatten, _price_flatten))
    yield replace(flatten, loose=True)
    yield method("flatten", (list_of(DYN), INT), list_of(DYN), _flatten, Price(_estimate_flatten, _price_flatten))
    make = _range_of_1_37 if since_1_37 else _range
    yield function("lists.range", (INT,), list_of(INT), make, Price(_estimate_range, whole.actual))
    yield method("reverse", (_LIST,), _LIST, lambda items: list(reversed(items)), whole)
    yield method("distinct", (_LIST,), _LIST, _distinct, _compared(0))
    yield function("sets.contains", (_LIST, _LIST), BOOL, _contains, _sets(1))
    both = lambda left, right: _contains(left, right) and _contains(right, left)  # noqa: E731
    yield function("sets.equivalent", (_LIST, _LIST), BOOL, both, _sets(2))
    meet = lambda left, right: any(_contains(right, [each]) for each in left)  # noqa: E731
    yield function("sets.intersects", (_LIST, _LIST), BOOL, meet, _sets(1))
    key, value = param("K"), param("V")
    entries = map_of(key, value)
    yield function("cel.@mapInsert", (entries, key, value), entries, _insert)
    yield function("cel.@mapInsert", (entries, entries), entries, _insert)
