"""Changes an object at random, so that the server may refuse it. Often it does not, which must agree as well."""

from __future__ import annotations

import copy
from typing import Any, Final

from tests.cluster.differential.case import JSON
from tests.cluster.differential.generate.draw import Draw

_STRINGS: Final = (
    "",
    "UPPER_case!",
    "x" * 70,
    "x" * 300,
    "a/b/c",
    "/a",
    "a.b",
    "-a",
    "example.com/a",
    "All",
    "0",
    "10Gi",
    "-1",
    "1.5",
    "true",
)
_NUMBERS: Final = (-1, 0, 1, 2, 33, 129, 1 << 31, 1 << 40)


def spoil(draw: Draw, obj: JSON) -> JSON:
    """Returns a copy of an object with one part below `spec` changed, doubled or removed."""
    changed = copy.deepcopy(obj)
    places = _places(changed["spec"])
    if not places:
        return changed
    holder, key = draw.one(*places)
    _change(draw, holder, key)
    return changed


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Returns every place below a value: its container, and its key or index."""
    pairs: list[tuple[Any, Any]] = list(value.items()) if isinstance(value, dict) else []
    if isinstance(value, list):
        pairs = list(enumerate(value))
    found: list[tuple[Any, Any]] = []
    for key, inner in pairs:
        found.append((value, key))
        found += _places(inner)
    return found


def _change(draw: Draw, holder: Any, key: Any) -> None:
    value = holder[key]
    if draw.chance(0.2):
        del holder[key]
    elif isinstance(value, dict):
        _change_map(draw, holder, key, value)
    elif isinstance(value, list):
        holder[key] = draw.one([], value * draw.one(2, 20), value + value[:1], list(reversed(value)))
    elif isinstance(value, bool):
        holder[key] = not value
    elif isinstance(value, int):
        holder[key] = draw.one(*_NUMBERS)
    else:
        holder[key] = draw.one(*_STRINGS)


def _change_map(draw: Draw, holder: Any, key: Any, value: JSON) -> None:
    kind = draw.number(0, 3)
    if kind == 0:
        holder[key] = {}
    elif kind == 1 and value:
        name = draw.one(*value)
        value[draw.one(*_STRINGS)] = copy.deepcopy(value[name])
    elif kind == 2 and isinstance(holder, list):
        holder.append(copy.deepcopy(value))
    elif value:
        name = draw.one(*value)
        value.update({f"{name}{number}": copy.deepcopy(value[name]) for number in range(40)})
