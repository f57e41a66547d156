"""Functions on strings: cel-go's own and its extension library in version 2, and Kubernetes' regular expressions.

Indices count characters. Source: cel-go ext/strings.go, Kubernetes apiserver library/regex.go. `format` and
`strings.quote` are not offered. Patterns are those of RE2, which Go shares.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from math import ceil
from typing import Any, Final

from dra_sdk.cel.cost import MAX, NOMINAL, Price, Quote, Range, Site, exactly, search, walk
from dra_sdk.cel.cost import STRING as PER_CHARACTER
from dra_sdk.cel.library.functions import Overload, function, method
from dra_sdk.cel.types import BOOL, INT, STRING, list_of
from dra_sdk.cel.values import EvaluationError, bounded, size

_SPACES: Final = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_TEXTS: Final = list_of(STRING)
_LOWER: Final = {each: each + 32 for each in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {lower: upper for upper, lower in _LOWER.items()}


@lru_cache(maxsize=256)
def pattern(text: str) -> Any:
    """A compiled RE2 pattern; EvaluationError says what is wrong with it."""
    import re2  # type: ignore[import-untyped]  # noqa: PLC0415 (only expressions with a pattern need it)

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


def _find(text: str, regex: str) -> str:
    match = pattern(regex).search(text)
    return match.group() if match else ""


def _find_all(text: str, regex: str, limit: int = -1) -> list[str]:
    found: list[str] = []
    end = -1
    for match in pattern(regex).finditer(text):
        if len(found) == limit:
            break
        # Go leaves out an empty match right after another match.
        if match.end() > match.start() or match.start() != end:
            found.append(match.group())
        end = match.end()
    return found


def _index(position: int, length: int) -> int:
    if not 0 <= position <= length:
        raise EvaluationError(f"index out of range: {position}")
    return position


def _char_at(text: str, position: int) -> str:
    return text[_index(position, len(text)) :][:1]


def _substring(text: str, start: int, end: int | None = None) -> str:
    last = len(text) if end is None else end
    if start > last and end is not None:
        raise EvaluationError(f"invalid substring range. start: {start}, end: {end}")
    return text[_index(start, len(text)) : _index(last, len(text))]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if part == "":
        return start
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(text: str, part: str, start: int | None = None) -> int:
    if part == "":
        return len(text) if start is None else start
    if start is None:
        return text.rfind(part)
    if start < 0:
        raise EvaluationError(f"index out of range: {start}")
    return -1 if start >= len(text) else text.rfind(part, 0, start + len(part))


def _split(text: str, separator: str, limit: int = -1) -> list[str]:
    if limit == 0:
        return []
    if separator == "":
        pieces = list(text)
        return pieces if limit < 0 or limit >= len(pieces) else [*pieces[: limit - 1], text[limit - 1 :]]
    return text.split(separator, -1 if limit < 0 else limit - 1)


def _replace(text: str, old: str, new: str, limit: int = -1) -> str:
    bounded(len(text) + text.count(old) * len(new))
    return text.replace(old, new, max(limit, -1))


def _join(texts: Sequence[Any], separator: str = "") -> str:
    for each in texts:
        if not isinstance(each, str):
            raise EvaluationError(f"join: invalid input: {each!r}")
    bounded(sum(map(len, texts)) + len(texts) * len(separator))
    return separator.join(texts)


def _estimate_replace(site: Site) -> Quote:
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
    return Quote(text.scaled(2 * PER_CHARACTER), Range(min(shortest, MAX), min(longest, MAX)))


def _estimate_split(site: Site) -> Quote:
    limit = site.constant(2) if site.count > 2 else None  # noqa: PLR2004 (text, separator, limit)
    most = limit if isinstance(limit, int) and limit >= 0 else MAX if limit is not None else site.size(0).high
    return Quote(site.size(0).scaled(2 * PER_CHARACTER), Range(0, most))


def _estimate_join(site: Site) -> Quote:
    items = site.size(0)
    # Where the type does not say that it is a list, the items themselves are not counted.
    total = items.times(site.item_size(0)) if site.type(0).params else exactly(0)
    if site.count > 1:
        gaps = Range(max(items.low - 1, 0), max(items.high - 1, 0))
        total = total.plus(site.size(1).times(gaps))
    return Quote(total.scaled(PER_CHARACTER), total)


def _estimate_find(site: Site) -> Quote:
    return search().estimate(site)._replace(size=Range(0, site.size(0).high))


def _estimate_contains(site: Site) -> Quote:
    return Quote(site.size(0).scaled(PER_CHARACTER).times(site.size(1).scaled(PER_CHARACTER)))


def _price_contains(args: Sequence[Any], _result: Any) -> int:
    return ceil(size(args[0]) * PER_CHARACTER) * ceil(size(args[1]) * PER_CHARACTER)


def _estimate_index(site: Site) -> Quote:
    return Quote(site.size(0).scaled(PER_CHARACTER))


def price_index(args: Sequence[Any], _result: Any) -> int:
    """The price of a walk through a list or string that compares what it meets."""
    return _walked(args[0])


def _walked(value: Any) -> int:
    if isinstance(value, str | bytes):
        return int(len(value.encode() if isinstance(value, str) else value) * PER_CHARACTER)
    if isinstance(value, dict):
        return sum(_walked(key) + _walked(each) for key, each in value.items())
    return sum(map(_walked, value)) if isinstance(value, Sequence) else 1


def declared(*, since_1_37: bool) -> Iterator[Overload]:
    """All functions on strings, at the prices of 1.36 and before, or of 1.37."""
    # The estimate counts the part that is looked for, up to 1.36 the evaluation the text it is looked for in.
    affix = Price(walk(1).estimate, walk(1 if since_1_37 else 0).actual)
    yield method("startsWith", (STRING, STRING), BOOL, str.startswith, affix)
    yield method("endsWith", (STRING, STRING), BOOL, str.endswith, affix)
    contains = Price(_estimate_contains, _price_contains)
    yield method("contains", (STRING, STRING), BOOL, lambda text, part: part in text, contains)
    yield method("matches", (STRING, STRING), BOOL, _matches, search())
    yield function("matches", (STRING, STRING), BOOL, _matches, search() if since_1_37 else NOMINAL)
    find = Price(_estimate_find, search().actual)
    yield method("find", (STRING, STRING), STRING, _find, find)
    yield method("findAll", (STRING, STRING), _TEXTS, _find_all, find)
    yield method("findAll", (STRING, STRING, INT), _TEXTS, _find_all, find)
    yield method("charAt", (STRING, INT), STRING, _char_at)
    index = Price(_estimate_index, price_index)
    for name, run in (("indexOf", _index_of), ("lastIndexOf", _last_index_of)):
        yield method(name, (STRING, STRING), INT, run, index)
        yield method(name, (STRING, STRING, INT), INT, run, index)
    walked = walk(keeps=True)
    yield method("lowerAscii", (STRING,), STRING, lambda text: text.translate(_LOWER), walked)
    yield method("upperAscii", (STRING,), STRING, lambda text: text.translate(_UPPER), walked)
    yield method("trim", (STRING,), STRING, lambda text: text.strip(_SPACES), walked)
    yield method("substring", (STRING, INT), STRING, _substring, walked)
    yield method("substring", (STRING, INT, INT), STRING, _substring, walked)
    twice = walk(0, 2 * PER_CHARACTER).actual
    replace, split = Price(_estimate_replace, twice), Price(_estimate_split, twice)
    yield method("replace", (STRING, STRING, STRING), STRING, _replace, replace)
    yield method("replace", (STRING, STRING, STRING, INT), STRING, _replace, replace)
    yield method("split", (STRING, STRING), _TEXTS, _split, split)
    yield method("split", (STRING, STRING, INT), _TEXTS, _split, split)
    join = Price(_estimate_join, lambda _args, result: ceil(size(result) * 2 * PER_CHARACTER))
    yield method("join", (_TEXTS,), STRING, _join, join)
    yield method("join", (_TEXTS, STRING), STRING, _join, join)
