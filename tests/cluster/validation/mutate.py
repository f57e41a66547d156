"""Changes an object in up to three places at random, most often at a limit."""

from __future__ import annotations

import copy
import random
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

JSON = dict[str, Any]
Place = tuple[str | int, ...]
_Chance = random.Random

TEXTS: Final = (
    "", " ", "a", "A", "a.b", "a/b", "a/b/c", "/a", "a/", "-a", "a-", "a_b", "A_b", "_a", "9a", "9", "a b", "a\n",
    "é", "*",
    *("a" * length for length in (32, 33, 63, 64, 65, 128, 129, 253, 254, 256, 257)), "é" * 32, "é" * 33,
    f"{'a' * 63}/{'b' * 32}", f"{'a' * 63}/{'b' * 33}", f"{'a' * 64}/b", "a." * 31 + "a", "a." * 32 + "a",
    "Example.COM", "example.com", "example.com/Lamp", "lamps.example.com/colour", "lamps.example.com/",
    "kubernetes.io/x",
    "x.kubernetes.io/y", "requests.example.com/y", "1.2.3", "v1.2.3", "01.2.3", "1.2", "1.2.3-rc.1+b", "1.2.3-01",
    "1.2.3-",
    f"1.2.3-{'a' * 58}", f"1.2.3-{'a' * 59}", "NoSchedule", "NoExecute", "None", "Exists", "Equal", "All", "ExactCount",
    "In", "NotIn", "DoesNotExist", "Gt", "FromClass", "FromClaim", "True", "False", "Unknown", "metadata.name", "true",
    "device.driver", 'device.attributes["a.b"].c', "1 +", "r", "s", "s/big", "s/none", "r/x", "admin", "lamp-0",
    "lamp-1",
    "0a1b2c3d-0000-4000-8000-000000000001", "0A1B2C3D-0000-4000-8000-000000000001", "0a1b2c3d00004000800000000000000a",
    "10.9.8.7/24", "10.9.8.7", "010.9.8.7/24", "10.9.8.7/33", "10.9.8.7/024", "::1/128", "2001:DB8::1/64",
    "fe80::1%eth0/64",
    "::ffff:1.2.3.4/120", "1:0:0:0:0:0:0:1/64", "2026-01-01T00:00:00Z", "2026-01-01T00:00:00.5Z",
    "2026-01-01T00:00:00+01:00", "2026-01-01", "NodePrepareResources", "NodeUnprepareResources", "cpu", "memory",
    "hugepages-2Mi", "fuse-0", "fuse-1", "amps",
)  # fmt: skip
AMOUNTS: Final = (
    "0", "1", "-1", "1Ki", "2Ki", "4Ki", "5Ki", "10Ki", "11Ki", "1500m", "1.5", "1e3", "16Ei", "10E", "1n", "0.1n",
    "abc", "", "1K", "9223372036854775807", "9223372036854775808", 5, 2.5, "1u", "0.5Ki", "1025",
)  # fmt: skip
NUMBERS: Final = (0, 1, -1, 2, 3, 32, 33, 2**31, 2**63 - 1, -(2**63), 2**63, 1.5, "1")
SIZES: Final = (4, 5, 8, 9, 10, 11, 16, 17, 32, 33, 48, 49, 64, 65, 128, 129, 256, 257)
#: What is part of the request's address.
_NAMESPACE: Final = ("metadata", "namespace")
_NAME: Final = ("metadata", "name")
_NAMED: Final = ("name", "counterSet", "device", "type", "uid")


def mutated(good: JSON, chance: _Chance, below: Place = (), *, keeps_name: bool = False) -> JSON:
    """Returns a copy with one to three changes, below `below` only."""
    obj = copy.deepcopy(good)
    for _ in range(chance.choice((1, 1, 1, 2, 2, 3))):
        left_alone = {_NAMESPACE, _NAME} if keeps_name else {_NAMESPACE}
        inside = (place for place in _places(obj) if len(place) > 1 and place not in left_alone)
        places = [place for place in inside if place[: len(below)] == below]
        if not places:  # the changes before this one removed everything
            break
        place = chance.choice(places)
        # Without this, lists of many equal items would be chosen nearly always.
        for _ in range(2):
            if len(place) > 6:
                place = min(place, chance.choice(places), key=len)
        _change(obj, place, chance)
    return obj


def _places(value: Any, above: Place = ()) -> Iterator[Place]:
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, item in items:
        yield (*above, key)
        yield from _places(item, (*above, key))


def _change(obj: JSON, place: Place, chance: _Chance) -> None:
    holder: Any = obj
    for token in place[:-1]:
        holder = holder[token]
    key = place[-1]
    change = chance.choice(_CHANGES if len(place) > 2 else (_replace, _drop, _grow))
    change(holder, key, chance)


def _replace(holder: Any, key: Any, chance: _Chance) -> None:
    holder[key] = _other(holder[key], chance)


def _other(value: Any, chance: _Chance) -> Any:
    """Returns another value, most often of the same type."""
    if chance.random() < 0.03:
        return chance.choice((None, [], {}, 1, "a", True, [1], {"a": 1}))
    if isinstance(value, bool):
        return chance.choice((not value, not value, None))
    if isinstance(value, (int, float)):
        return chance.choice(NUMBERS)
    if isinstance(value, str):
        return chance.choice(AMOUNTS if value[:1].isdigit() and "." not in value and chance.random() < 0.7 else TEXTS)
    return None if chance.random() < 0.2 else type(value)()


def _drop(holder: Any, key: Any, _chance: _Chance) -> None:
    del holder[key]


def _grow(holder: Any, key: Any, chance: _Chance) -> None:
    """Returns a list or map with as many items as a limit allows, or one more."""
    value, size = holder[key], chance.choice(SIZES)
    if isinstance(value, list) and value:
        model = chance.choice(value)
        value.extend(_like(model, f"n-{number}") for number in range(len(value), size))
    elif isinstance(value, dict) and value:
        model = chance.choice(list(value.values()))
        value.update({f"n{number}": copy.deepcopy(model) for number in range(len(value), size)})
    elif isinstance(value, str):
        long = (32 * 1024, 32 * 1024 + 1) if key == "message" else (1024, 1025, 10 * 1024, 10 * 1024 + 1)
        holder[key] = "x" * chance.choice((63, 64, 253, 254, *long))


def _like(model: Any, name: str) -> Any:
    made = copy.deepcopy(model)
    if isinstance(made, dict):
        made.update({field: name for field in _NAMED if isinstance(made.get(field), str)})
        return made
    return name if isinstance(made, str) else made


def _repeat(holder: Any, key: Any, chance: _Chance) -> None:
    """Returns the list with one item twice."""
    if isinstance(holder, list):
        holder.insert(chance.randrange(len(holder) + 1), copy.deepcopy(holder[key]))
    elif isinstance(holder[key], list) and holder[key]:
        holder[key].append(copy.deepcopy(chance.choice(holder[key])))
    else:
        _rename(holder, key, chance)


def _rename(holder: Any, key: Any, chance: _Chance) -> None:
    """Returns the map with another key, or an unknown field."""
    if isinstance(holder, dict):
        value = holder.pop(key)
        others = [*list(holder)[:1], re.sub("[A-Z]", lambda match: f"_{match[0].lower()}", key), key.lower(), f"{key}s"]
        holder[chance.choice(TEXTS) if chance.random() < 0.6 else chance.choice(others)] = value


def _borrow(holder: Any, key: Any, chance: _Chance) -> None:
    """Returns the value of a sibling of the same type."""
    siblings = [
        item for item in (holder.values() if isinstance(holder, dict) else holder) if type(item) is type(holder[key])
    ]
    holder[key] = copy.deepcopy(chance.choice(siblings))


_Change = Callable[[Any, Any, _Chance], None]
_CHANGES: Final[tuple[_Change, ...]] = (
    *[_replace] * 8, *[_drop] * 3, *[_grow] * 3, *[_repeat] * 2, _rename, _borrow,
)  # fmt: skip
