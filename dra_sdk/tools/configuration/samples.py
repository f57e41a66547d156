"""Parameters that the schema of a configuration class allows, made from it: the same ones each time.

The first has what the class requires and no more. Then each field has each of its values: limits, the members of an
enumeration, true and false, null where it may be null, lists and maps with none, one and two items; text is that of
`examples` if the field has some. Then every two fields have every two of their values but null, also within objects,
and within the first item of a list or map. All other fields are absent.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from copy import deepcopy
from itertools import combinations
from typing import Any, Final

from dra_sdk.errors import SettingsError
from dra_sdk.model import JSON
from dra_sdk.tools.configuration.schema import ConfigSchema

Path = tuple[str | int, ...]
"""Where a value stands: names of fields and keys, and 0 for the first item of a list."""
_TEXTS: Final = ("a", "b", "0", "A", "")
_NUMBERS: Final = (0, 1, 2)
_LIMITS: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "minimum": lambda value, limit: value >= limit,
    "exclusiveMinimum": lambda value, limit: value > limit,
    "maximum": lambda value, limit: value <= limit,
    "exclusiveMaximum": lambda value, limit: value < limit,
    "minLength": lambda value, limit: len(value) >= limit,
    "maxLength": lambda value, limit: len(value) <= limit,
    "minItems": lambda value, limit: len(value) >= limit,
    "maxItems": lambda value, limit: len(value) <= limit,
    "minProperties": lambda value, limit: len(value) >= limit,
    "maxProperties": lambda value, limit: len(value) <= limit,
    "pattern": lambda value, limit: re.search(limit, value) is not None,
}


def samples(schema: ConfigSchema, kind: JSON) -> Iterator[JSON]:
    """Yield parameters of a class, without apiVersion and kind.

    SettingsError if no value is known for a field that is required.
    """
    made = _Samples(schema)
    yield made.least(kind)
    singles = list(made.singles(kind))
    yield from (parameters for _, _, parameters in singles)
    given = [(path, parameters) for path, value, parameters in singles if value is not None]
    for (path, parameters), (other, source) in combinations(given, 2):
        if path[: len(other)] != other[: len(path)]:
            yield _with(parameters, source, other)


class _Samples:
    def __init__(self, schema: ConfigSchema) -> None:
        self._schema = schema

    def least(self, kind: JSON) -> JSON:
        """Return an object with what it must have."""
        required = kind.get("required", ())
        return {key: self._first(key, field) for key, field in self._schema.fields(kind) if key in required}

    def singles(self, kind: JSON, depth: int = 0) -> Iterator[tuple[Path, Any, JSON]]:
        """Yield each value of each field, also of objects within it, with its path and an object that has it."""
        self._schema.check_depth(depth)
        least = self.least(kind)
        for key, field in self._schema.fields(kind):
            yield from (((key,), value, {**least, key: value}) for value in self._values(field))
            plain = self._schema.plain(field)
            step: Path = ()
            if "items" in plain:
                plain, step = self._schema.plain(plain["items"]), (0,)
            elif isinstance(plain.get("additionalProperties"), dict):
                names = self._values(plain.get("propertyNames", {"type": "string"}))
                plain, step = self._schema.plain(plain["additionalProperties"]), tuple(names[:1])
            if "properties" in plain:
                for path, value, inner in self.singles(plain, depth + 1):
                    held = [inner] if step == (0,) else {step[0]: inner} if step else inner
                    yield (key, *step, *path), value, {**least, key: held}

    def _first(self, key: str, field: JSON) -> Any:
        values = self._values(field)
        if not values:
            raise SettingsError(f"no value is known that {key} may have: give it Field(examples=[…])")
        return values[0]

    def _values(self, field: JSON) -> list[Any]:
        """Return the values to try of a field, null last."""
        return [*self._given(field), *([None] if self._schema.is_nullable(field) else ())]

    def _given(self, field: JSON) -> list[Any]:
        resolved = self._schema.resolved(field)
        if examples := field.get("examples", resolved.get("examples")):
            return list(examples)
        if kinds := resolved.get("anyOf", resolved.get("oneOf")):
            return [value for kind in kinds for value in self._given(kind)]
        return self._of_kind(resolved)

    def _of_kind(self, kind: JSON) -> list[Any]:
        if "enum" in kind or "const" in kind:
            return list(kind.get("enum", [kind.get("const")]))
        values: list[Any] = []
        match kind.get("type"):
            case "boolean":
                values = [True, False]
            case "integer" | "number":
                values = _numbers(kind)
            case "string":
                values = [text * max(kind.get("minLength", 1), 1) for text in _TEXTS]
            case "array":
                items = self._values(kind.get("items", {"type": "string"}))
                values = [[], items[:1], items[:1] * 2, items[:2]]
            case "object" if "properties" in kind:
                values = [self.least(kind)]
            case "object":
                values = self._maps(kind)
        return [value for value in values if _fits(kind, value)]

    def _maps(self, kind: JSON) -> list[Any]:
        names = self._values(kind.get("propertyNames", {"type": "string"}))[:2]
        others = kind.get("additionalProperties")
        items = self._values(others)[:2] if isinstance(others, dict) else ["a"]
        entries = [(name, items[index % len(items)]) for index, name in enumerate(names)] if items else []
        return [dict(entries[:count]) for count in range(len(entries) + 1)]


def _numbers(kind: JSON) -> list[Any]:
    limits = [kind[key] for key in list(_LIMITS)[:4] if key in kind]
    near = {*_NUMBERS, *(limit + step for limit in limits for step in (-1, 0, 1))}
    if kind["type"] == "number":
        return sorted({*near, 0.5, sum(limits) / 2})
    return sorted(near)


def _fits(kind: JSON, value: Any) -> bool:
    with suppress(re.error):  # a pattern that pydantic understands and Python does not
        return all(check(value, kind[key]) for key, check in _LIMITS.items() if key in kind)
    return False


def _with(parameters: JSON, source: Any, path: Path) -> JSON:
    """Return parameters with the value at a path of other ones, and with what is around it unless they have that."""
    made = deepcopy(parameters)
    target: Any = made
    *above, last = path
    for step in above:
        if isinstance(target, dict) and step not in target:
            last = step
            break
        target, source = target[step], source[step]
    target[last] = deepcopy(source[last])
    return made
