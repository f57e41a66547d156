"""Lists and maps of an object: their size, their items, and what must not occur twice.

Releases differ in details that show in the field of a problem: 1.34 goes on after a list that is too long and names
the field that occurs twice, and up to 1.35 a wrong key of a map is reported at that key, later at the map.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Final, TypeVar

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.validation.problems import Problems, duplicate, too_many

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
    """Size, then each item."""
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
    key: Callable[[Item], Hashable],
    key_field: str = "",
    at_most: int | None = None,
) -> Problems:
    """Size, each item, and no `key` (found in `key_field` of an item) twice."""
    yield from check_list(items, field, check, profile, at_most=at_most)
    if at_most is not None and len(items or ()) > at_most and profile.minor > OLDEST:
        return
    seen: set[Hashable] = set()
    for index, item in enumerate(items or ()):
        if (found := key(item)) in seen:
            part = f".{key_field}" if key_field and profile.minor == OLDEST else ""
            yield duplicate(f"{field}[{index}]{part}", found)
        seen.add(found)


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
    """Size, then each key and value; keys longer than `longest_key` are cut in the middle in fields."""
    if at_most is not None and len(items or {}) > at_most:
        yield too_many(field, len(items or {}), at_most)
        if profile.minor > OLDEST:
            return
    for key, item in (items or {}).items():
        value_field = f"{field}[{_cut(key, longest_key)}]"
        yield from check_key(key, field if profile.minor >= _FIRST_KEYS_AT_MAP else value_field)
        yield from check(item, value_field)


def text(item: str) -> Hashable:
    """The key of a set of strings."""
    return item


def anything(_item: object, _field: str) -> Problems:
    """Nothing is wrong with it."""
    return iter(())


def _cut(key: str, longest: int) -> str:
    longest = max(longest, _SHORTEST_CUT)
    if len(key) <= longest:
        return key
    rest = longest - len("...")
    return f"{key[: (rest + 1) // 2]}...{key[len(key) - rest // 2 :]}"
