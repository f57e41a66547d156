"""The CEL rules of a configuration class, compiled as an API server compiles them, and what they say of parameters.

A rule is checked against the types of the class's fields, so that a misspelt field has its position; a policy would
find it only when a claim has the field. Source: admissionregistration.k8s.io/v1; k8s.io/apiserver, apis/cel/config.go,
for the limit, which is on each expression of a policy: a rule is evaluated for every entry of a claim in one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from dra_sdk.cel import types
from dra_sdk.cel.checker import check, check_any
from dra_sdk.cel.environment import Environment, Shape, object_environment
from dra_sdk.cel.errors import CelCompileError, CelRuntimeError
from dra_sdk.cel.expression import MAX_COST, ObjectExpression
from dra_sdk.cel.types import Type, TypeKind
from dra_sdk.model import JSON
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.tools.configuration.schema import HEAD, ConfigSchema
from dra_sdk.tools.configuration.subject import subject

MAX_RULE_COST: Final = MAX_COST // 32
"""What a rule may cost at worst: a claim has at most 32 entries of configuration."""
_CHARACTERS: Final = 10 * 1024
_ITEMS, _ENTRIES = _CHARACTERS // 2, _CHARACTERS // 5
"""The most characters of a text, items of a list and entries of a map in parameters, which have at most 10 KiB."""
_TEXT: Final = Shape(_CHARACTERS)
_ANY: Final = Shape(_CHARACTERS, key=_TEXT, value=_TEXT, any_field=_TEXT)
_TYPES: Final = {"string": types.STRING, "boolean": types.BOOL, "integer": types.INT}
_TYPES_OF_VALUES: Final[Mapping[type, Type]] = {str: types.STRING, bool: types.BOOL, int: types.INT}


class ConfigRules:
    """The rules of one class.

    problems: a sentence for each rule that cannot be compiled, or costs too much.
    """

    def __init__(self, config: type[OpaqueConfig]) -> None:
        schema = ConfigSchema([config])
        (kind,) = schema.kinds
        parameters = object_environment("c", types.map_of(types.STRING, types.DYN), _ANY, {})
        self._subject = ObjectExpression(subject(schema, kind, "c"), parameters, check_any)
        self._compiled: list[tuple[str, str, ObjectExpression]] = []
        self.problems: list[str] = []
        environment = _Fields(schema).environment(config.kind, kind)
        for number, rule in enumerate(config.cel_rules):
            name = f"cel_rules[{number}]"
            try:
                expression = ObjectExpression(rule.rule, environment, check)
                expression.check_cost(MAX_RULE_COST)
            except CelCompileError as error:
                self.problems.append(f"{name}: {error.problem}")
            else:
                self._compiled.append((name, rule.message, expression))

    @property
    def names(self) -> list[str]:
        """The rules that can be compiled, such as `cel_rules[0]`."""
        return [name for name, _, _ in self._compiled]

    def broken(self, parameters: JSON) -> Iterator[tuple[str, str]]:
        """Yield the name of each rule that parameters break, and its message or why it has no value for them.

        The parameters must fit the schema of the class; rules with a problem are passed over.
        """
        if not self._compiled:
            return
        checked = self._subject.value({key: value for key, value in parameters.items() if key not in HEAD})
        for name, message, expression in self._compiled:
            try:
                if expression.value(checked) is not True:
                    yield name, message
            except CelRuntimeError as error:
                yield name, f"it has no value: {error.problem}"


class _Fields:
    """The types and sizes of the fields of `self`."""

    def __init__(self, schema: ConfigSchema) -> None:
        self._schema = schema
        self._structs: dict[Type, dict[str, Type]] = {}

    def environment(self, name: str, kind: JSON) -> Environment:
        """Return what a rule may refer to."""
        return object_environment("self", self._struct(name, kind), self._object_shape(kind, 0), self._structs)

    def _struct(self, name: str, schema: JSON) -> Type:
        struct = Type(TypeKind.STRUCT, name)
        if struct not in self._structs:
            fields = self._structs[struct] = {}
            fields.update((key, self._type(field)) for key, field in self._schema.fields(schema))
        return struct

    def _type(self, field: JSON) -> Type:
        plain = self._schema.plain(field)
        if values := _values(plain):
            kinds = {_TYPES_OF_VALUES.get(type(value), types.DYN) for value in values}
            return kinds.pop() if len(kinds) == 1 else types.DYN
        if "properties" in plain:
            return self._struct(plain["title"], plain)
        if plain.get("type") == "array":
            return types.list_of(self._type(plain.get("items", {})))
        if plain.get("type") == "object":
            others = plain.get("additionalProperties")
            return types.map_of(types.STRING, self._type(others) if isinstance(others, dict) else types.DYN)
        return _TYPES.get(plain.get("type", ""), types.DYN)

    def _shape(self, field: JSON, depth: int) -> Shape:
        self._schema.check_depth(depth)
        plain = self._schema.plain(field)
        if values := _values(plain):
            return Shape(max(len(str(value)) for value in values))
        if "properties" in plain:
            return self._object_shape(plain, depth)
        if plain.get("type") == "array":
            return Shape(plain.get("maxItems", _ITEMS), value=self._shape(plain.get("items", {}), depth + 1))
        if plain.get("type") == "object":
            others = plain.get("additionalProperties")
            value = self._shape(others, depth + 1) if isinstance(others, dict) else _ANY
            key = self._shape(plain.get("propertyNames", {"type": "string"}), depth + 1)
            return Shape(plain.get("maxProperties", _ENTRIES), key=key, value=value)
        if plain.get("type") == "string":
            return Shape(plain.get("maxLength", _CHARACTERS))
        return Shape(1) if plain.get("type") in {"boolean", "integer", "number"} else _ANY

    def _object_shape(self, schema: JSON, depth: int) -> Shape:
        return Shape(0, {key: self._shape(field, depth + 1) for key, field in self._schema.fields(schema)})


def _values(schema: JSON) -> list[Any]:
    """Return the values that a schema lists."""
    return list(schema.get("enum", [schema["const"]] if "const" in schema else []))
