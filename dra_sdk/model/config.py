"""Opaque configuration: what a user may write under `config[].opaque.parameters` of a claim or DeviceClass.

Source: resource.k8s.io/v1 OpaqueDeviceConfiguration. A driver's configuration is an ordinary pydantic model. In a claim
it carries `apiVersion` and `kind` like every Kubernetes object, and its fields are camelCase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from reprlib import Repr
from typing import Annotated, Any, ClassVar, Final, Literal, Self, TypeVar, get_args

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    PlainValidator,
    TypeAdapter,
    ValidationError,
    WrapValidator,
)
from pydantic.alias_generators import to_camel
from pydantic.fields import FieldInfo
from pydantic.json_schema import GenerateJsonSchema, NoDefault, models_json_schema
from pydantic_core import ErrorDetails
from pydantic_core.core_schema import WithDefaultSchema

from dra_sdk.errors import ConfigError

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_OBJECTS: Final = frozenset({"model_type", "model_attributes_type", "dict_type", "dataclass_type"})
_AUTHOR: Final = frozenset({"value_error", "assertion_error"})  # raised by the author's own checks
_CONVERTERS: Final = (BeforeValidator, PlainValidator, WrapValidator)
_SUBJECT: Final = re.compile(r"^[A-Z]\w* should ")  # pydantic begins a sentence with Input, String or List
_LONGEST: Final = 200
_SHOWN: Final = Repr()  # like `_short`, and a few levels deep
_SHOWN.maxstring = _SHOWN.maxother = _LONGEST


@dataclass(frozen=True, slots=True)
class CelRule:
    """What a configuration must keep to beyond the types and limits of its fields, for an admission policy.

    rule: a CEL expression that is true of the configuration `self`. Its fields have the names of a claim and their
        defaults; one that is absent or null and has no default is not there: `has(self.size)` is false.
    message: what a user reads if it is false.
    """

    rule: str
    message: str


class OpaqueConfig(BaseModel):
    """Base of a driver's configuration classes.

    ```python
    class LightConfig(OpaqueConfig, api_version="lights.example.com/v1"):
        brightness: int = Field(default=100, ge=0, le=100)
    ```

    A field named `max_power` is `maxPower` in a claim. Unknown fields are an error in what a user writes. They are
    ignored in a checkpoint, which another version of the driver may have written.

    api_version: apiVersion in claims, such as `lights.example.com/v1`. Given in the class statement.
    kind: kind in claims. Given in the class statement, else the name of the class.
    cel_rules: what checks in the code of the class say, for an admission policy. The driver does not evaluate them.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    api_version: ClassVar[str] = ""
    kind: ClassVar[str] = ""
    cel_rules: ClassVar[Sequence[CelRule]] = ()

    def __init_subclass__(cls, api_version: str | None = None, kind: str | None = None, **kwargs: Any) -> None:
        """Take `api_version` and `kind` from the class statement."""
        super().__init_subclass__(**kwargs)
        if api_version is not None:
            cls.api_version = api_version
        cls.kind = kind or cls.__name__

    @classmethod
    def decode(cls, parameters: dict[str, Any], *, strict: bool = True) -> Self:
        """Check `parameters` except `apiVersion` and `kind`, and return an instance.

        Raises ConfigError with one sentence for each wrong field. `strict=False` ignores unknown fields.
        """
        try:
            return _validated(cls, parameters, strict=strict)
        except ValidationError as error:
            raise ConfigError("; ".join(_sentences(error, cls))) from error

    def encode(self) -> dict[str, Any]:
        """Return the parameters as in a claim, with `apiVersion` and `kind`."""
        body = self.model_dump(mode="json", by_alias=True)
        return {"apiVersion": self.api_version, "kind": self.kind, **body}


def config_class(configs: Sequence[type[OpaqueConfig]], parameters: Mapping[str, Any]) -> type[OpaqueConfig] | None:
    """Return the one of `configs` that has the apiVersion and kind of the parameters; None if there is none."""
    given = parameters.get("apiVersion"), parameters.get("kind")
    return next((config for config in configs if (config.api_version, config.kind) == given), None)


def wrong_fields(config: type[OpaqueConfig], parameters: dict[str, Any]) -> list[tuple[str, str]]:
    """Return the path and a sentence for each problem that `decode` would raise ConfigError for; empty if none.

    A path is as in a claim, such as `parts[0].width`; empty for the whole object. The sentence does not repeat it.
    """
    try:
        _validated(config, parameters, strict=True)
    except ValidationError as error:
        return [(_field_path(parameters, location), text) for location, text in _problems(error, config)]
    return []


_C = TypeVar("_C", bound=OpaqueConfig)


def _validated(config: type[_C], parameters: dict[str, Any], *, strict: bool) -> _C:
    fields = {key: value for key, value in parameters.items() if key not in {"apiVersion", "kind"}}
    return config.model_validate(fields, extra="forbid" if strict else "ignore", by_alias=True, by_name=not strict)


def json_schema(configs: Sequence[type[OpaqueConfig]], title: str) -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of the parameters that a driver accepts: one of `configs`, at least one.

    It contains what pydantic knows: field names, types, limits and defaults. Checks in code of a class are missing.
    """
    models: list[tuple[type[BaseModel], Literal["validation"]]] = [(config, "validation") for config in configs]
    references, together = models_json_schema(models, schema_generator=_SchemaWithDefaults)
    definitions = together.get("$defs", {})
    kinds = []
    for config in configs:
        reference = references[config, "validation"]
        kinds.append(reference)
        body = definitions[reference["$ref"].rpartition("/")[2]]
        head = {"apiVersion": {"const": config.api_version}, "kind": {"const": config.kind}}
        body["properties"] = {**head, **body.get("properties", {})}
        body["required"] = [*head, *body.get("required", [])]
    return {"$schema": _DIALECT, "title": title, "oneOf": kinds, "$defs": definitions}


class _SchemaWithDefaults(GenerateJsonSchema):
    """Writes the default of a factory, too, if it is always the same."""

    def get_default_value(self, schema: WithDefaultSchema) -> Any:
        factory: Any = schema.get("default_factory")
        if factory is None or schema.get("default_factory_takes_data"):
            return super().get_default_value(schema)
        default = factory()
        return default if default == factory() else NoDefault


def wrong_defaults(config: type[OpaqueConfig]) -> Iterator[str]:
    """Yield a sentence for each default that its own field would refuse or convert.

    pydantic does not check defaults, so every claim that leaves the field out would get a wrong one. Fields with a
    converter or a default factory are not checked.
    """
    for name, field in config.model_fields.items():
        converts = any(isinstance(item, _CONVERTERS) for item in field.metadata)
        if field.is_required() or field.default_factory or converts:
            continue
        if problem := _default_problem(field):
            yield f"default of {name} {problem} (is {_SHOWN.repr(field.default)})"


def _default_problem(field: FieldInfo) -> str:
    kind: Any = Annotated[field.annotation, *field.metadata] if field.metadata else field.annotation
    try:
        kept = TypeAdapter(kind).validate_python(field.default)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        return "" if first["type"] in _AUTHOR else broken_rule(first)
    except Exception:  # noqa: BLE001 (pydantic understands some types only within their class)
        return ""
    same = kept == field.default or type(kept) is type(field.default)
    problem = f"would be read as {type(kept).__name__} from a claim, and stays {type(field.default).__name__}"
    return "" if same else problem


def _sentences(error: ValidationError, config: type[BaseModel]) -> list[str]:
    return [f"{_short('.'.join(map(str, path)) or 'parameters')}: {text}" for path, text in _problems(error, config)]


def _problems(error: ValidationError, config: type[BaseModel]) -> Iterator[tuple[tuple[int | str, ...], str]]:
    """Yield pydantic's location and our sentence for each problem."""
    for problem in error.errors(include_url=False):
        path, text = problem["loc"], f"{broken_rule(problem)} (got {_SHOWN.repr(problem['input'])})"
        if problem["type"] == "extra_forbidden":
            text = f"unknown field ({_short(_known_fields(config, path[:-1]))})"
        elif problem["type"] == "missing":  # the input is the whole object here
            text = "is required"
        yield path, text


def _field_path(value: Any, location: Sequence[int | str]) -> str:
    """Return the path of a location in a value, without what pydantic adds for alternatives and keys of a type."""
    path = ""
    for number, part in enumerate(location):
        if isinstance(part, int) and isinstance(value, list) and part < len(value):
            path, value = f"{path}[{part}]", value[part]
        elif isinstance(value, dict) and (part in value or number == len(location) - 1):  # the last may be missing
            path, value = f"{path}.{part}", value.get(part)
    return _short(path.removeprefix("."))


def broken_rule(problem: ErrorDetails) -> str:
    """Turn pydantic's message into what the field must be. A message of the author's own check stays as it is."""
    if problem["type"] in _AUTHOR:
        return str(problem["ctx"]["error"])
    if problem["type"] in _OBJECTS:
        return "must be an object"
    return _SUBJECT.sub("must ", problem["msg"])


def _known_fields(config: type[BaseModel], path: tuple[int | str, ...]) -> str:
    """List the fields of the object at `path`. Keys and indexes in the path do not change the class."""
    for part in path:
        field = next((info for name, info in config.model_fields.items() if part == (info.alias or name)), None)
        config = next(_classes(field.annotation), config) if field else config
    fields = ", ".join(info.alias or name for name, info in config.model_fields.items())
    return f"known: {fields}" if fields else "there are none"


def _classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the model classes in an annotation such as `list[A] | dict[str, B] | None`."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _classes(inner)


def _short(text: str) -> str:
    """Cut a user's text, which may have 10 KiB, so that the sentence fits into an event."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
