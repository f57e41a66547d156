"""Functions on strings: cel-go's own, its extension library in version 2, and Kubernetes' regular expressions.

Indices count characters. Patterns are those of RE2, which Go shares; they need the package google-re2, which is
imported when the first pattern is compiled. Source: cel-go, ext/strings.go; Kubernetes apiserver, library/regex.go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import ceil
from typing import Any, Final

from dra_sdk.cel.comparison import Count
from dra_sdk.cel.library.overloads import (
    MAX,
    NOMINAL,
    SEARCH,
    CallEstimate,
    CallSite,
    Cost,
    Overload,
    Range,
    exactly,
    method,
    walk,
)
from dra_sdk.cel.library.overloads import STRING as PER_CHARACTER
from dra_sdk.cel.types import BOOL, INT, STRING, list_of
from dra_sdk.cel.values import EvaluationError, MissingPackageError, check_size, size

_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_TEXTS: Final = list_of(STRING)
_LOWER: Final = {capital: capital + 32 for capital in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {lower: upper for upper, lower in _LOWER.items()}
ESCAPES: Final = str.maketrans(
    {"\a": r"\a", "\b": r"\b", "\f": r"\f", "\n": r"\n", "\r": r"\r", "\t": r"\t", "\v": r"\v", "\\": r"\\", '"': r"\""}
)
#: RE2 looks at this many characters in the time of one step, as a power of two.
_SEARCH_SHIFT: Final = 6


@lru_cache(maxsize=256)
def pattern(text: str) -> Any:
    """Return a compiled RE2 pattern; EvaluationError says what is wrong with it."""
    try:
        import re2  # type: ignore[import-untyped]  # noqa: PLC0415 (optional, and only a pattern needs it)
    except ImportError:
        raise MissingPackageError(
            "regular expressions need the package google-re2, which is not installed: pip install google-re2"
        ) from None
    options = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise EvaluationError(
            f"error parsing regexp {text!r}: {reason.decode() if isinstance(reason, bytes) else reason}"
        ) from None


def _matches(text: str, regex: str) -> bool:
    return pattern(regex).search(text) is not None


def _matches_counted(count: Count, text: str, regex: str) -> bool:
    count(len(text) >> _SEARCH_SHIFT)
    return _matches(text, regex)


def _find(text: str, regex: str) -> str:
    match = pattern(regex).search(text)
    return match.group() if match else ""


def _find_all(text: str, regex: str, limit: int = -1) -> list[str]:
    texts: list[str] = []
    end = -1
    for match in pattern(regex).finditer(text):
        if len(texts) == limit:
            break
        # Go leaves out an empty match right after another match.
        if match.end() > match.start() or match.start() != end:
            texts.append(match.group())
        end = match.end()
    return texts


def _index(position: int, length: int) -> int:
    if not 0 <= position <= length:
        raise EvaluationError(f"index out of range: {position}")
    return position


def _char_at(text: str, position: int) -> str:
    start = _index(position, len(text))
    return text[start : start + 1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if start > last and end is not None:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[_index(start, len(text)) : _index(last, len(text))]


def _index_of(text: str, part: str, start: int = 0) -> int:
    return start if part == "" else _index_of_1_37(text, part, start)


def _index_of_1_37(text: str, part: str, start: int = 0) -> int:
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return min(start, len(text)) if part == "" else text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    return start if part == "" and start is not None else _last_index_of_1_37(text, part, start)


def _last_index_of_1_37(text: str, part: str, start: int | None = None) -> int:
    if start is None:
        return len(text) if part == "" else _found_last(text, part)
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    if part == "":
        return min(start, len(text))
    return -1 if start >= len(text) else _found_last(text[: start + len(part)], part)


def _found_last(text: str, part: str) -> int:
    """Return the index of the last occurrence; unlike `str.rfind`, `str.find` takes linear time at worst."""
    reversed_index = text[::-1].find(part[::-1])
    return -1 if reversed_index < 0 else len(text) - reversed_index - len(part)


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator == "":
        pieces = list(text)
        return pieces if limit < 0 or limit >= len(pieces) else [*pieces[: limit - 1], text[limit - 1 :]]
    return text.split(separator, -1 if limit < 0 else limit - 1)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    check_size(len(text) + text.count(old) * len(new))
    return text.replace(old, new, max(limit, -1))


def _join(texts: Sequence[Any], separator: str = "") -> str:
    for item in texts:
        if not isinstance(item, str):
            raise EvaluationError(f"join: invalid input: {item!r}")
    check_size(sum(map(len, texts)) + len(texts) * len(separator))
    return separator.join(texts)


def _quote(text: str) -> str:
    return f'"{text.translate(ESCAPES)}"'


def _estimate_quote(site: CallSite) -> CallEstimate:
    length = site.size(0)
    return CallEstimate(length.scaled(PER_CHARACTER), Range(_sum(length.low), _sum(2 * length.high)))


def _sum(length: int) -> int:
    """Return the length of a quoted text, in the 64 bits of cel-go."""
    return (length + 2) % (MAX + 1)


def _estimate_replace(site: CallSite) -> CallEstimate:
    text, old, new = (site.size(index) for index in range(3))
    most = text.high
    if old.low == 0:
        longest = (text.high + 1) * new.high + text.high
    else:
        longest = most if new.high <= old.low else ceil(float(most) / old.low) * new.high
    if old.high == 0:
        shortest = (text.low + 1) * new.low + text.low
    else:
        shortest = text.low if old.high <= new.low else ceil(float(text.low) / old.high) * new.low
    return CallEstimate(text.scaled(2 * PER_CHARACTER), Range(min(shortest, MAX), min(longest, MAX)))


def _estimate_split(site: CallSite) -> CallEstimate:
    limit = site.constant(2) if site.count > 2 else None  # noqa: PLR2004 (text, separator, limit)
    most = limit if isinstance(limit, int) and limit >= 0 else MAX if limit is not None else site.size(0).high
    return CallEstimate(site.size(0).scaled(2 * PER_CHARACTER), Range(0, most))


def _estimate_join(site: CallSite) -> CallEstimate:
    items = site.size(0)
    # Where the type does not say that it is a list, the items themselves are not counted.
    total = items.times(site.item_size(0)) if site.type(0).params else exactly(0)
    if site.count > 1:
        gaps = Range(max(items.low - 1, 0), max(items.high - 1, 0))
        total = total.plus(site.size(1).times(gaps))
    return CallEstimate(total.scaled(PER_CHARACTER), total)


def _estimate_find(site: CallSite) -> CallEstimate:
    return SEARCH.estimate(site)._replace(size=Range(0, site.size(0).high))


def _estimate_contains(site: CallSite) -> CallEstimate:
    return CallEstimate(site.size(0).scaled(PER_CHARACTER).times(site.size(1).scaled(PER_CHARACTER)))


def _price_contains(args: Sequence[Any], _result: Any) -> int:
    return ceil(size(args[0]) * PER_CHARACTER) * ceil(size(args[1]) * PER_CHARACTER)


def _estimate_index(site: CallSite) -> CallEstimate:
    return CallEstimate(site.size(0).scaled(PER_CHARACTER))


def cost_of_traversal(args: Sequence[Any], _result: Any) -> int:
    """Return the cost of a walk through everything in a list or string.

    A list that occurs many times is walked once and counted as often as it occurs.
    """
    known: dict[int, int] = {}
    pending = [args[0]]
    while pending:
        total, unknown = 0, []
        for item in _inside(pending[-1]):
            if not _is_container(item):
                total += _traversal(item)
            elif id(item) in known:
                total += known[id(item)]
            else:
                unknown.append(item)
        if unknown:
            pending += unknown
        else:
            known[id(pending.pop())] = total
    return min(known[id(args[0])], MAX)


def _is_container(value: Any) -> bool:
    return isinstance(value, Mapping | Sequence) and not isinstance(value, str | bytes)


def _inside(value: Any) -> list[Any]:
    if isinstance(value, Mapping):
        return [*value.keys(), *value.values()]
    return list(value) if _is_container(value) else [value]


def _traversal(value: Any) -> int:
    if isinstance(value, str):
        return int(len(value.encode()) * PER_CHARACTER)
    return int(len(value) * PER_CHARACTER) if isinstance(value, bytes) else 1


def declared(*, since_1_37: bool) -> Iterator[Overload]:
    """Declare all functions on strings, at the costs of 1.36 and before, or of 1.37."""
    # The estimate counts the prefix or suffix; up to 1.36 the evaluation counts the text.
    affix = Cost(walk(1).estimate, walk(1 if since_1_37 else 0).actual)
    yield method("startsWith", (STRING, STRING), BOOL, str.startswith, affix)
    yield method("endsWith", (STRING, STRING), BOOL, str.endswith, affix)
    contains = Cost(_estimate_contains, _price_contains)
    yield method("contains", (STRING, STRING), BOOL, lambda text, part: part in text, contains)
    yield method("matches", (STRING, STRING), BOOL, _matches, SEARCH)
    cost = SEARCH if since_1_37 else NOMINAL
    yield Overload("matches", (STRING, STRING), BOOL, _matches_counted, cost, counted=True)
    find = Cost(_estimate_find, SEARCH.actual)
    yield method("find", (STRING, STRING), STRING, _find, find)
    yield method("findAll", (STRING, STRING), _TEXTS, _find_all, find)
    yield method("findAll", (STRING, STRING, INT), _TEXTS, _find_all, find)
    yield method("charAt", (STRING, INT), STRING, _char_at)
    index = Cost(_estimate_index, cost_of_traversal)
    searches: dict[str, Callable[..., int]] = {
        "indexOf": _index_of_1_37 if since_1_37 else _index_of,
        "lastIndexOf": _last_index_of_1_37 if since_1_37 else _last_index_of,
    }
    for name, run in searches.items():
        yield method(name, (STRING, STRING), INT, run, index)
        yield method(name, (STRING, STRING, INT), INT, run, index)
    walked = walk(keeps_size=True)
    yield method("lowerAscii", (STRING,), STRING, lambda text: text.translate(_LOWER), walked)
    yield method("upperAscii", (STRING,), STRING, lambda text: text.translate(_UPPER), walked)
    yield method("trim", (STRING,), STRING, lambda text: text.strip(_SPACES), walked)
    yield method("substring", (STRING, INT), STRING, _substring, walked)
    yield method("substring", (STRING, INT, INT), STRING, _substring, walked)
    twice = walk(0, 2 * PER_CHARACTER).actual
    replace, split = Cost(_estimate_replace, twice), Cost(_estimate_split, twice)
    yield method("replace", (STRING, STRING, STRING), STRING, _replace, replace)
    yield method("replace", (STRING, STRING, STRING, INT), STRING, _replace, replace)
    yield method("split", (STRING, STRING), _TEXTS, _split, split)
    yield method("split", (STRING, STRING, INT), _TEXTS, _split, split)
    join = Cost(_estimate_join, lambda _args, result: ceil(size(result) * 2 * PER_CHARACTER))
    yield method("join", (_TEXTS,), STRING, _join, join)
    yield method("join", (_TEXTS, STRING), STRING, _join, join)
    yield Overload("strings.quote", (STRING,), STRING, _quote, Cost(_estimate_quote, walk().actual))
