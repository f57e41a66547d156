"""Fields of opaque configuration that only a DeviceClass may set: what an administrator decides, and no user.

A driver names them in `DriverInfo.class_only`, as paths in a claim such as `vf.vlan`. A claim that sets one is refused.
What a class sets there also holds where the claim has a configuration of its own, which otherwise takes its place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel

from dra_sdk.model.config import OpaqueConfig

CLASS_ONLY = "may be set in a DeviceClass only"
"""What messages say of such a field."""


def given(parameters: Mapping[str, Any], paths: Iterable[str]) -> list[str]:
    """Return those of the paths at which there is a value; null is none."""
    return [path for path in paths if _value(parameters, path) is not None]


def inherited(parameters: Mapping[str, Any], of_class: Mapping[str, Any], paths: Iterable[str]) -> dict[str, Any]:
    """Return the parameters of a claim, with the values that those of its class have at the paths."""
    result = copy.deepcopy(dict(parameters))
    for path in given(of_class, paths):
        *sections, last = path.split(".")
        inner = result
        for section in sections:
            if not isinstance(inner.get(section), dict):
                inner[section] = {}
            inner = inner[section]
        inner[last] = _value(of_class, path)
    return result


def unknown(configs: Sequence[type[OpaqueConfig]], paths: Iterable[str]) -> list[str]:
    """Return those of the paths that no configuration class has."""
    return [path for path in paths if not any(_has(config, path.split(".")) for config in configs)]


def _value(parameters: Any, path: str) -> Any:
    for part in path.split("."):
        parameters = parameters.get(part) if isinstance(parameters, Mapping) else None
    return parameters


def _has(model: type[BaseModel], parts: Sequence[str]) -> bool:
    first, *others = parts
    field = next((field for name, field in model.model_fields.items() if first == (field.alias or name)), None)
    if field is None or not others:
        return field is not None
    return any(_has(inner, others) for inner in _models(field.annotation))


def _models(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models that a value of this type may be."""
    for kind in (annotation, *get_args(annotation)):
        if isinstance(kind, type) and issubclass(kind, BaseModel):
            yield kind
