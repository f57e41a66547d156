"""Rules for fields of any kind: the size of lists and maps, unique items, and fields that must not change.

The releases differ in the path that they report. 1.34 still checks the items of a list that is too long, and names the
field that occurs twice. Up to 1.35 a wrong key of a map is reported at that key, since 1.36 at the map.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, Final, TypeVar

from pydantic import BaseModel
from pydantic.alias_generators import to_snake

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.base import Time
from dra_sdk.wire.validation.problems import Problems, duplicate, invalid, required, too_many

Item = TypeVar("Item")
_FIRST_KEYS_AT_MAP: Final = 36
_SHORTEST_CUT: Final = 16


def check_list(
    items: Sequence[Item] | None,
    field: str,
    check: Callable[[Item, str], Problems],
    profile: ServerProfile,
    *,
    at_most: int | None = None,
) -> Problems:
    """Check the size of a list, then each item."""
    if at_most is not None and len(items or ()) > at_most:
        yield too_many(field, len(items or ()), at_most)
        if profile.minor > OLDEST:
            return
    for index, item in enumerate(items or ()):
        yield from check(item, f"{field}[{index}]")


def check_set(
    items: Sequence[Item] | None,
    field: str,
    check: Callable[[Item, str], Problems],
    profile: ServerProfile,
    *,
    key_field: str = "",
    key: Callable[[Item], Hashable] | None = None,
    at_most: int | None = None,
) -> Problems:
    """Check a list whose items are unique: by the field `key_field`, or as they are.

    1.34 reports duplicates at `key_field`. `key`: returns what is unique, if that is not just the value of a field.
    """
    yield from check_list(items, field, check, profile, at_most=at_most)
    if at_most is not None and len(items or ()) > at_most and profile.minor > OLDEST:
        return
    seen: set[Hashable] = set()
    read = key or (_reader(key_field) if key_field else None)
    for index, item in enumerate(items or ()):
        if (identity := read(item) if read else item) in seen:
            part = f".{key_field}" if key_field and profile.minor == OLDEST else ""
            yield duplicate(f"{field}[{index}]{part}", identity)
        seen.add(identity)


@cache
def _reader(key_field: str) -> Callable[[Any], Hashable]:
    return attrgetter(to_snake(key_field))


def check_map(
    items: Mapping[str, Item] | None,
    field: str,
    check_key: Callable[[str, str], Problems],
    check: Callable[[Item, str], Problems],
    profile: ServerProfile,
    *,
    longest_key: int,
    at_most: int | None = None,
) -> Problems:
    """Check the size of a map, then each key and value.

    Paths show a key that is longer than `longest_key` without its middle, as the API server writes it.
    """
    if at_most is not None and len(items or {}) > at_most:
        yield too_many(field, len(items or {}), at_most)
        if profile.minor > OLDEST:
            return
    for key, item in (items or {}).items():
        value_field = f"{field}[{_cut(key, longest_key)}]"
        yield from check_key(key, field if profile.minor >= _FIRST_KEYS_AT_MAP else value_field)
        yield from check(item, value_field)


def if_set(check: Callable[[Item, str], Problems], value: Item | None, field: str) -> Problems:
    """Check a value that may be unset."""
    return iter(()) if value is None else check(value, field)


def if_given(check: Callable[[str, str], Problems], value: str, field: str) -> Problems:
    """Check a text that must not be empty."""
    return check(value, field) if value else iter((required(field),))


def accept(_item: object, _field: str) -> Problems:
    """Accept every item."""
    return iter(())


def immutable(new: Any, old: Any, field: str) -> Problems:
    """Yield a problem if a field was changed."""
    if not semantically_equal(new, old):
        yield invalid(field, "must not be changed once it is set")


def semantically_equal(left: Any, right: Any) -> bool:
    """Return whether two values mean the same to the API server (apimachinery `Semantic.DeepEqual`).

    Unset equals empty, 1000m equals 1, and 12:00Z equals 13:00+01:00.
    """
    return bool(_meaning(left) == _meaning(right))


def _meaning(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {name: _meaning(item) for name, item in value if not _is_unset(item, fields[name].default)}
    if isinstance(value, Time):
        return value.instant
    if isinstance(value, list):
        return [_meaning(item) for item in value] or None
    if isinstance(value, dict):
        return {key: _meaning(item) for key, item in value.items()} or None
    return value


def _is_unset(value: Any, default: Any) -> bool:
    return value is None or value == default or (isinstance(value, (list, dict)) and not value)


def _cut(key: str, longest: int) -> str:
    longest = max(longest, _SHORTEST_CUT)
    if len(key) <= longest:
        return key
    rest = longest - len("...")
    return f"{key[: (rest + 1) // 2]}...{key[len(key) - rest // 2 :]}"
