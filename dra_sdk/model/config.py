"""Opaque configuration: what a user may write under `config[].opaque.parameters` of a claim or DeviceClass.

Source: resource.k8s.io/v1 OpaqueDeviceConfiguration. A driver's configuration is an ordinary pydantic model; on the
wire it carries `apiVersion` and `kind` like every Kubernetes object, and its fields are camelCase.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from reprlib import Repr
from typing import Annotated, Any, ClassVar, Final, Literal, Self, get_args

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
from pydantic.json_schema import models_json_schema
from pydantic_core import ErrorDetails

from dra_sdk.errors import ConfigError

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_OBJECTS: Final = frozenset({"model_type", "model_attributes_type", "dict_type", "dataclass_type"})
_OWN: Final = frozenset({"value_error", "assertion_error"})
"""Of an author's own checks."""
_CONVERTERS: Final = (BeforeValidator, PlainValidator, WrapValidator)
_SUBJECT: Final = re.compile(r"^[A-Z]\w* should ")  # of a sentence of pydantic's: Input, String, List
_LONGEST: Final = 200
_SHOWN: Final = Repr()  # as `_short`, and no deeper than a few levels
_SHOWN.maxstring = _SHOWN.maxother = _LONGEST


class OpaqueConfig(BaseModel):
    """Base of a driver's configuration classes.

    ```python
    class LightConfig(OpaqueConfig, api_version="lights.example.com/v1"):
        brightness: int = Field(default=100, ge=0, le=100)
    ```

    `kind` is the class's name unless given. Unknown fields are refused in what a user writes, and ignored in what an
    earlier version of the driver checkpointed.
    """

    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True, extra="forbid", frozen=True)

    api_version: ClassVar[str] = ""
    kind: ClassVar[str] = ""

    def __init_subclass__(cls, api_version: str | None = None, kind: str | None = None, **kwargs: Any) -> None:
        """Take `api_version` and `kind` from the class statement."""
        super().__init_subclass__(**kwargs)
        if api_version is not None:
            cls.api_version = api_version
        cls.kind = kind or cls.__name__

    @classmethod
    def decode(cls, parameters: dict[str, Any], *, strict: bool = True) -> Self:
        """Check `parameters` without their `apiVersion` and `kind`, and make an instance.

        Raises ConfigError with one sentence per wrong field. `strict=False` drops unknown fields instead.
        """
        fields = {key: value for key, value in parameters.items() if key not in {"apiVersion", "kind"}}
        try:
            return cls.model_validate(fields, extra="forbid" if strict else "ignore", by_alias=True, by_name=not strict)
        except ValidationError as error:
            raise ConfigError("; ".join(_sentences(error, cls))) from error

    def encode(self) -> dict[str, Any]:
        """The parameters as they stand in a claim, with `apiVersion` and `kind`."""
        body = self.model_dump(mode="json", by_alias=True)
        return {"apiVersion": self.api_version, "kind": self.kind, **body}


def json_schema(configs: Sequence[type[OpaqueConfig]], title: str) -> dict[str, Any]:
    """JSON Schema (draft 2020-12) of the parameters that a driver takes: one of these kinds, at least one.

    It tells what pydantic tells: field names, types, limits, defaults; checks that a class makes in code are not in it.
    """
    models: list[tuple[type[BaseModel], Literal["validation"]]] = [(each, "validation") for each in configs]
    references, together = models_json_schema(models)
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


def wrong_defaults(config: type[OpaqueConfig]) -> Iterator[str]:
    """A sentence for each default that its own field would not take, or not keep as it is.

    pydantic leaves defaults unchecked, so every claim that says nothing would get them. Fields that convert what they
    are given, or make their default, are passed over.
    """
    for name, field in config.model_fields.items():
        converts = any(isinstance(each, _CONVERTERS) for each in field.metadata)
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
        return "" if first["type"] in _OWN else _rule(first)
    except Exception:  # noqa: BLE001 (a type that pydantic knows within its class only)
        return ""
    same = kept == field.default or type(kept) is type(field.default)
    told = f"would be read as {type(kept).__name__} from a claim, and stays {type(field.default).__name__}"
    return "" if same else told


def _sentences(error: ValidationError, config: type[BaseModel]) -> list[str]:
    found = []
    for problem in error.errors(include_url=False):
        place, told = problem["loc"], f"{_rule(problem)} (got {_SHOWN.repr(problem['input'])})"
        if problem["type"] == "extra_forbidden":
            told = f"unknown field ({_short(_known(config, place[:-1]))})"
        elif problem["type"] == "missing":  # the input is the whole object then
            told = "is required"
        found.append(f"{_short('.'.join(map(str, place)) or 'parameters')}: {told}")
    return found


def _rule(problem: ErrorDetails) -> str:
    """What pydantic says, as what the field must be; of the author's own checks their words alone."""
    if problem["type"] in _OWN:
        return str(problem["ctx"]["error"])
    if problem["type"] in _OBJECTS:
        return "must be an object"
    return _SUBJECT.sub("must ", problem["msg"])


def _known(config: type[BaseModel], place: tuple[int | str, ...]) -> str:
    """Which fields there are at this place; keys and indices in it lead to no other class."""
    for part in place:
        field = next((each for name, each in config.model_fields.items() if part == (each.alias or name)), None)
        config = next(_classes(field.annotation), config) if field else config
    fields = ", ".join(each.alias or name for name, each in config.model_fields.items())
    return f"known: {fields}" if fields else "there are none"


def _classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """The classes of objects that a field can hold, in whatever they are wrapped."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for inner in get_args(annotation):
        yield from _classes(inner)


def _short(text: str) -> str:
    """What a user wrote, which may be 10 KiB, so that what is wrong with it still fits into an event."""
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
