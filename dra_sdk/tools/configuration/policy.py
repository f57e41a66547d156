"""A ValidatingAdmissionPolicy that checks the opaque configuration of one driver, made from its JSON Schema.

Kubernetes stores opaque configuration unread, so a misspelt field is found only when a pod starts. The policy
(admissionregistration.k8s.io/v1) refuses it when a ResourceClaim, ResourceClaimTemplate or DeviceClass is created, or
the specification of a DeviceClass changes, with a sentence for each wrong field. It reads entries of its own driver
only. Objects that were stored before it are never stopped, so their claims can be deleted.

The rules of a class are in it, too. The driver checks again when it prepares a claim, because checks that are only in
the code of a class are not in its schema; nor is `format` checked here. In one respect the policy is stricter: a number
or a boolean must not be text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dra_sdk.errors import SettingsError
from dra_sdk.model import JSON
from dra_sdk.model.class_fields import CLASS_ONLY, unknown
from dra_sdk.model.config import OpaqueConfig
from dra_sdk.model.driver import DriverInfo
from dra_sdk.tools.configuration.rules import ConfigRules
from dra_sdk.tools.configuration.schema import HEAD, ConfigSchema, literal
from dra_sdk.tools.configuration.subject import subject

_SPEC: Final = "has(object.spec.spec) ? object.spec.spec : object.spec"  # of a template, or of the others
_ENTRIES: Final = (
    "has(variables.spec.devices) ? (has(variables.spec.devices.config) ? variables.spec.devices.config : [])"
    " : (has(variables.spec.config) ? variables.spec.config : [])"
)
_WITHOUT_EFFECT: Final = frozenset({"title", "description", "default", "examples", "deprecated", "format"})
_TYPES: Final = {
    "string": ("string", "text"),
    "boolean": ("bool", "true or false"),
    "null": ("null_type", "null"),
    "array": ("list", "a list"),
    "object": ("map", "an object"),
    "integer": ("int", "an integer"),
}
"""The type in JSON Schema → the type in CEL, and how a message says it. `number` has two types in CEL."""
_LIMITS: Final = {
    "minimum": ("{0} >= {1}", "at least {}"),
    "maximum": ("{0} <= {1}", "at most {}"),
    "exclusiveMinimum": ("{0} > {1}", "more than {}"),
    "exclusiveMaximum": ("{0} < {1}", "less than {}"),
    "minLength": ("size({0}) >= {1}", "with at least {} characters"),
    "maxLength": ("size({0}) <= {1}", "with at most {} characters"),
    "pattern": ("{0}.matches({1})", "like {}"),
    "minItems": ("size({0}) >= {1}", "of at least {} items"),
    "maxItems": ("size({0}) <= {1}", "of at most {} items"),
    "minProperties": ("size({0}) >= {1}", "of at least {} keys"),
    "maxProperties": ("size({0}) <= {1}", "of at most {} keys"),
}
"""The keyword of JSON Schema → CEL for a value and the limit, and how a message says it."""
_CHECKED: Final = frozenset(
    [
        "type",
        "properties",
        "required",
        "additionalProperties",
        "propertyNames",
        "items",
        "anyOf",
        "oneOf",
        "allOf",
        "const",
        "enum",
    ]
)
"""Other keywords that a policy checks."""


def config_policy(info: DriverInfo) -> list[JSON]:
    """Return the policy for `opaque.parameters` of a driver, and its binding, both named `dra-config-` and the driver.

    SettingsError if the driver takes no configuration, if its schema has a keyword that the policy cannot check, or if
    a rule of a class cannot be compiled or costs too much.
    """
    if not info.configs:
        raise SettingsError(f"driver {info.name} takes no configuration, so there is nothing to check")
    schema = ConfigSchema(info.configs)
    checks = _FieldChecks(schema)
    heads = [(config.api_version, config.kind) for config in info.configs]
    own = f"has(e.opaque) && e.opaque.driver == {literal(info.name)}"
    is_kind = [f'c["apiVersion"] == {literal(version)} && c["kind"] == {literal(kind)}' for version, kind in heads]
    has_head = 'type(c) == map && "apiVersion" in c && "kind" in c'
    variables = [
        {"name": "spec", "expression": _SPEC},
        {"name": "entries", "expression": _ENTRIES},
        {"name": "configs", "expression": f"variables.entries.filter(e, {own}).map(e, e.opaque.parameters)"},
    ]
    known = " or ".join(f"{version} {kind}" for version, kind in heads)
    any_kind = " || ".join(f"({condition})" for condition in is_kind)
    validations = [_validation(info, "configs", f"{has_head} && ({any_kind})", f"apiVersion and kind must be {known}")]
    unknown_fields: list[str] = []
    for number, (kind, config) in enumerate(zip(schema.kinds, info.configs, strict=True)):
        variable = f"kind{number}"
        expression = f"variables.configs.filter(c, {has_head} && {is_kind[number]})"
        variables.append({"name": variable, "expression": expression})
        fields = list(checks.fields(kind, "c", ()))
        validations += [
            _validation(info, variable, check.expression, f"{config.kind}: {check.message}") for check in fields
        ]
        unknown_fields += [f"variables.{variable}.map(c, {check.unknown})" for check in fields if check.unknown]
        validations += [
            _validation(info, variable, _of_class_or_absent(path), f"{config.kind}: {path} {CLASS_ONLY}")
            for path in info.class_only
            if not unknown([config], [path])
        ]
        if config.cel_rules:
            _check_rules(config)
            subjects = f"variables.{variable}.map(c, {subject(schema, kind, 'c')})"
            variables.append({"name": f"self{number}", "expression": subjects})
            validations += [
                _validation(info, f"self{number}", _closed(rule.rule), f"{config.kind}: {rule.message}", "self")
                for rule in config.cel_rules
            ]
    variables += _told_together(info, validations, unknown_fields)
    return _objects(f"dra-config-{info.name}", variables, validations)


def _told_together(info: DriverInfo, validations: Sequence[JSON], unknown_fields: Sequence[str]) -> list[JSON]:
    """Have each validation tell of all that fail, because a server answers with one alone; return what it needs.

    Variables are evaluated once, and each has a limit of its own of what it may cost. A message that is too long, or of
    which a part has no value, gives way to that of the validation.
    """
    head = f"configuration of driver {info.name}: "
    variables: list[JSON] = []
    for number, validation in enumerate(validations):
        told = literal(validation["message"].removeprefix(head))
        variables.append({"name": f"wrong{number}", "expression": f"{validation['expression']} ? [] : [{told}]"})
        validation["expression"] = f"size(variables.wrong{number}) == 0"
    found: list[JSON] = [
        {"name": f"unknown{number}", "expression": names} for number, names in enumerate(unknown_fields)
    ]
    sentences = " + ".join(f"variables.wrong{number}" for number in range(len(validations)))
    lists = " + ".join(f"variables.unknown{number}" for number in range(len(found))) or "[]"
    variables += [*found, {"name": "wrong", "expression": sentences}, {"name": "unknown", "expression": lists}]
    names = 'variables.unknown.filter(names, size(names) > 0).map(names, names.join(", ")).join(", ")'
    told = f'(variables.unknown.exists(names, size(names) > 0) ? " (unknown: " + {names} + ")" : "")'
    for validation in validations:
        validation["messageExpression"] = f'{literal(head)} + variables.wrong.join("; ") + {told}'
    return variables


def _of_class_or_absent(path: str) -> str:
    """Return CEL that is true if the object is a DeviceClass, or the configuration `c` has no value at a path."""
    values, parts = "c", []
    for name in path.split("."):
        values, owner = f"{values}[{literal(name)}]", values
        parts += [f"type({owner}) == map", f"{literal(name)} in {owner}"]
    present = " && ".join([*parts, f"type({values}) != null_type"])
    return f"!has(variables.spec.devices) || !({present})"  # a claim has them, a DeviceClass has none


def _check_rules(config: type[OpaqueConfig]) -> None:
    if problems := ConfigRules(config).problems:
        raise SettingsError(*(f"{config.kind}.{problem}" for problem in problems))


def _closed(rule: str) -> str:
    """Return a rule after which a parenthesis is not part of its comment."""
    return f"{rule}\n" if "//" in rule else rule


@dataclass(frozen=True)
class _FieldCheck:
    """What one field must be.

    expression: CEL that is true if the configuration `c` keeps to it.
    message: the field and what it must be.
    unknown: CEL of the names that the object should not have; empty if it may have any, or if this is of another kind.
    """

    expression: str
    message: str
    unknown: str = ""


class _FieldChecks:
    """Makes CEL of JSON Schema."""

    def __init__(self, schema: ConfigSchema) -> None:
        self._schema = schema

    def fields(self, schema: JSON, value: str, path: tuple[str, ...]) -> Iterator[_FieldCheck]:
        """Yield a check of each field of the object that the CEL expression `value` is, and of objects within it."""
        self._check_keywords(schema)
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        at = ".".join(path)
        if others is False:
            listed = ", ".join(key for key in properties if path or key not in HEAD) or "none"
            where = f"{at} has an unknown field" if path else "unknown field"
            names = f"{value}.filter(k, !(k in {literal(list(properties))}))"
            yield _FieldCheck(_keys(value, properties), f"{where}; known: {listed}", names)
        elif isinstance(others, dict):
            yield _FieldCheck(
                self._others(others, value, properties, len(path)), f"each {at} must be {self.words(others)}"
            )
        for key, field in properties.items():
            if not path and key in HEAD:
                continue
            name, inner, present = ".".join((*path, key)), f"{value}[{literal(key)}]", f"{literal(key)} in {value}"
            if key in schema.get("required", ()):
                yield _FieldCheck(present, f"{name} is required")
            within = self._schema.plain(field)
            if "properties" not in within:
                yield _FieldCheck(
                    f"!({present}) || {self.matches(field, inner)}", f"{name} must be {self.words(field)}"
                )
                continue
            is_right = f"type({inner}) == map"
            if self._schema.resolved(field) is not within:
                is_right += f" || type({inner}) == null_type"
            yield _FieldCheck(f"!({present}) || {is_right}", f"{name} must be an object")
            for check in self.fields(within, inner, (*path, key)):
                there = f"{present} && type({inner}) == map"
                names = check.unknown and f"({there} ? {check.unknown} : [])"
                yield _FieldCheck(f"{there} ? ({check.expression}) : true", check.message, names)

    def matches(self, schema: JSON, value: str, depth: int = 0) -> str:
        """Return CEL that is true if the value of the expression `value` fits; `depth` makes variables unique."""
        self._schema.check_depth(depth)
        resolved = self._schema.resolved(schema)
        self._check_keywords(resolved)
        if alternatives := resolved.get("anyOf") or resolved.get("oneOf"):
            return "(" + " || ".join(self.matches(alternative, value, depth + 1) for alternative in alternatives) + ")"
        parts = [self.matches(part, value, depth + 1) for part in resolved.get("allOf", ())]
        if "const" in resolved or "enum" in resolved:
            return _one_of(value, resolved["enum"] if "enum" in resolved else [resolved["const"]])
        kind = resolved.get("type")
        number = f"double({value})" if kind == "number" else value
        given = {key: resolved[key] for key in _LIMITS if key in resolved}
        limits = {key: float(limit) if kind == "number" else limit for key, limit in given.items()}
        parts += [_LIMITS[key][0].format(number, literal(limit)) for key, limit in limits.items()]
        if "items" in resolved:
            item = f"i{depth}"
            parts.append(f"{value}.all({item}, {self.matches(resolved['items'], item, depth + 1)})")
        if "propertyNames" in resolved:
            key = f"n{depth}"
            parts.append(f"{value}.all({key}, {self.matches(resolved['propertyNames'], key, depth + 1)})")
        if kind == "object":
            parts += self._object(resolved, value, depth)
        of_type = "true"
        if kind == "number":
            of_type = f"type({value}) == int || type({value}) == double"
        elif kind is not None:
            of_type = f"type({value}) == {_TYPES[kind][0]}"
        return f"({of_type} ? {' && '.join(parts)} : false)" if parts else f"({of_type})"

    def words(self, schema: JSON) -> str:
        """Return what a value must be, for a message."""
        resolved = self._schema.resolved(schema)
        if alternatives := resolved.get("anyOf") or resolved.get("oneOf"):
            said = [self.words(alternative) for alternative in alternatives if alternative.get("type") != "null"]
            return " or ".join(dict.fromkeys(said))
        if "enum" in resolved or "const" in resolved:
            return " or ".join(map(literal, resolved.get("enum", [resolved.get("const")])))
        limits = [_LIMITS[key][1].format(literal(resolved[key])) for key in _LIMITS if key in resolved]
        name = resolved.get("type", "")
        kind = "a number" if name == "number" else _TYPES.get(name, ("", "a value"))[1]
        if "items" in resolved:
            kind += f" in which each is {self.words(resolved['items'])}"
        if "propertyNames" in resolved:
            kind += f" in which each key is {self.words(resolved['propertyNames'])}"
        return ", ".join([kind, *limits])

    def _object(self, schema: JSON, value: str, depth: int) -> Iterator[str]:
        properties, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        if others is False:
            yield _keys(value, properties)
        elif isinstance(others, dict):
            yield self._others(others, value, properties, depth)
        yield from (f"{literal(key)} in {value}" for key in schema.get("required", ()))
        for key, field in properties.items():
            inner = self.matches(field, f"{value}[{literal(key)}]", depth + 1)
            yield f"(!({literal(key)} in {value}) || {inner})"

    def _others(self, schema: JSON, value: str, properties: Mapping[str, Any], depth: int) -> str:
        key = f"k{depth}"
        fits = self.matches(schema, f"{value}[{key}]", depth + 1)
        return f"{value}.all({key}, {key} in {literal(list(properties))} || {fits})"

    def _check_keywords(self, schema: JSON) -> None:
        known = _WITHOUT_EFFECT | _LIMITS.keys() | _CHECKED
        known |= {"discriminator"} if "oneOf" in schema else set()
        if unknown := schema.keys() - known:
            raise SettingsError(f"a policy cannot check {', '.join(sorted(unknown))} of JSON Schema: {schema!r:.200}")


def _keys(value: str, properties: Mapping[str, Any]) -> str:
    return f"{value}.all(k, k in {literal(list(properties))})"


def _one_of(value: str, allowed: Sequence[Any]) -> str:
    """Return CEL that is true if `value` is among these. A list in CEL has items of one type."""
    types = {str: "string", bool: "bool", int: "int", float: "double", type(None): "null_type"}
    by_type = {kind: [option for option in allowed if type(option) is kind] for kind in types}
    parts = [
        f"(type({value}) == {types[kind]} ? {value} in {literal(literals)} : false)"
        for kind, literals in by_type.items()
        if literals
    ]
    return "(" + " || ".join(parts) + ")"


def _validation(info: DriverInfo, variable: str, expression: str, message: str, item: str = "c") -> JSON:
    text = f"configuration of driver {info.name}: {message}"
    return {"expression": f"variables.{variable}.all({item}, {expression})", "message": text, "reason": "Invalid"}


def _objects(name: str, variables: Sequence[JSON], validations: Sequence[JSON]) -> list[JSON]:
    """Return the policy and its binding. Claims and templates cannot change, so only their creation is checked."""
    rules = [
        {"operations": ["CREATE"], "resources": ["resourceclaims", "resourceclaimtemplates"]},
        {"operations": ["CREATE", "UPDATE"], "resources": ["deviceclasses"]},
    ]
    every: JSON = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["*"]}
    spec: JSON = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": [{**every, **rule} for rule in rules]},
        "matchConditions": [
            {"name": "is-changed", "expression": 'request.operation == "CREATE" || object.spec != oldObject.spec'}
        ],
        "variables": list(variables),
        "validations": list(validations),
    }
    binding: JSON = {"policyName": name, "validationActions": ["Deny"]}
    kinds = {"ValidatingAdmissionPolicy": spec, "ValidatingAdmissionPolicyBinding": binding}
    version = "admissionregistration.k8s.io/v1"
    return [
        {"apiVersion": version, "kind": kind, "metadata": {"name": name}, "spec": content}
        for kind, content in kinds.items()
    ]
