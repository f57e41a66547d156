"""`self` of a rule: CEL that makes it of the parameters in a claim.

What pydantic fills in is not there on the wire. As with a custom resource, `self` has the defaults of all fields, also
of objects within it, and a field that is null is like one that is absent. `apiVersion` and `kind` are left out. A value
that may be one of several objects is as it stands in the claim. Parameters that break the schema become anything,
because a policy refuses them before.
"""

from __future__ import annotations

from typing import Any

from dra_sdk.model import JSON
from dra_sdk.tools.configuration.schema import ConfigSchema, literal


def subject(schema: ConfigSchema, kind: JSON, value: str) -> str:
    """Return CEL for `self` of a class whose object schema is `kind`, of the parameters that `value` is."""
    return _object(schema, kind, value, 0)


def _object(schema: ConfigSchema, plain: JSON, value: str, depth: int) -> str:
    return "{" + ", ".join(_field(schema, key, field, value, depth) for key, field in schema.fields(plain)) + "}"


def _field(schema: ConfigSchema, key: str, field: JSON, value: str, depth: int) -> str:
    name, inner, default = literal(key), f"{value}[{literal(key)}]", field.get("default")
    given = f"optional.of(dyn({_filled(schema, field, inner, depth)}))"
    absent = "optional.none()" if default is None else f"optional.of({_default(default)})"
    return f"?{name}: {name} in {value} && {inner} != null ? {given} : {absent}"


def _filled(schema: ConfigSchema, field: JSON, value: str, depth: int) -> str:
    """Return CEL for a value that is not null, with the defaults of objects within it."""
    schema.check_depth(depth)
    plain, item = schema.plain(field), f"v{depth}"
    if "properties" in plain:
        return f"type({value}) == map ? dyn({_object(schema, plain, value, depth + 1)}) : {value}"
    if (items := plain.get("items")) and (inner := _filled(schema, items, item, depth + 1)) != item:
        return f"type({value}) == list ? dyn({value}.map({item}, {inner})) : {value}"
    others = plain.get("additionalProperties")
    if isinstance(others, dict) and (inner := _filled(schema, others, item, depth + 1)) != item:
        return f"type({value}) == map ? dyn({value}.transformMap(k{depth}, {item}, {inner})) : {value}"
    return value


def _default(value: Any) -> str:
    """Return a default as CEL; without a type, because literals of Kubernetes' CEL have values of one type."""
    if isinstance(value, dict):
        entries = ", ".join(f"{literal(key)}: {_default(item)}" for key, item in value.items() if item is not None)
        return f"dyn({{{entries}}})"
    return f"dyn([{', '.join(map(_default, value))}])" if isinstance(value, list) else f"dyn({literal(value)})"
