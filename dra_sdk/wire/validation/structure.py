"""From JSON to models: wrong types and unknown fields, in the terms of the API server.

A wrong type ends the matter, as the server cannot read such an object at all; unknown fields are reported and left
out, as servers do that are not asked to be strict.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final, TypeVar

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceClaimTemplate, ResourceSlice
from dra_sdk.wire.resource.base import Object
from dra_sdk.wire.resource.metadata import TopLevel
from dra_sdk.wire.validation.availability import remove_unknown
from dra_sdk.wire.validation.fields import join
from dra_sdk.wire.validation.problems import Problem, ProblemType, not_supported, required, show

Model = TypeVar("Model", bound=Object)

GROUP: Final = "resource.k8s.io"
KINDS: Final[Mapping[str, type[TopLevel]]] = {
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "ResourceSlice": ResourceSlice,
}
_WANTED: Final[Mapping[str, str]] = {
    "string_type": "a string",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "bool_type": "true or false",
    "list_type": "a list",
    "dict_type": "an object",
    "model_type": "an object",
    "model_attributes_type": "an object",
}


def read_object(obj: Any, profile: ServerProfile) -> tuple[TopLevel | None, list[Problem]]:
    """The model of an object of any kind, None where it has none, and what is wrong with its structure."""
    if not isinstance(obj, dict):
        return None, [Problem("", ProblemType.TYPE_INVALID, f"must be an object, is {show(obj)}")]
    problems = list(_version_problems(obj.get("apiVersion"), obj.get("kind"), profile))
    if problems:
        return None, problems
    return read_as(KINDS[obj["kind"]], obj, profile)


def read_as(model: type[Model], obj: Any, profile: ServerProfile) -> tuple[Model | None, list[Problem]]:
    """The object as `model`, None where a type is wrong, and what is wrong with its structure."""
    problems: list[Problem] = []
    try:
        value = model.model_validate(obj)
    except ValidationError as error:
        problems = [_problem(each) for each in error.errors(include_url=False)]
        if any(problem.type is not ProblemType.UNKNOWN for problem in problems):
            return None, problems
        value = model.model_validate(obj, extra="ignore")
    return value, [*problems, *remove_unknown(value, profile)]


def api_versions(kind: str, profile: ServerProfile) -> tuple[str, ...]:
    """The API versions in which a server serves a kind, as far as they are the same as v1."""
    versions = profile.taint_rule_versions() if kind == "DeviceTaintRule" else ("v1", "v1beta2")
    return tuple(f"{GROUP}/{version}" for version in versions)


def _version_problems(api_version: Any, kind: Any, profile: ServerProfile) -> Iterator[Problem]:
    if not kind:
        yield required("kind", f"must be one of {', '.join(KINDS)}")
    elif not isinstance(kind, str) or kind not in KINDS:
        yield not_supported("kind", str(kind), tuple(KINDS))
    elif not api_version:
        yield required("apiVersion", f"must be {api_versions(kind, profile)[0]}")
    elif api_version not in (known := api_versions(kind, profile)):
        yield not_supported("apiVersion", str(api_version), known)


def _problem(error: ErrorDetails) -> Problem:
    field = join([part for part in error["loc"] if part != "[key]"])
    if error["type"] == "extra_forbidden":
        return Problem(field, ProblemType.UNKNOWN, "unknown field")
    if error["type"] in _WANTED:
        detail = f"must be {_WANTED[error['type']]}, is {show(error['input'])}"
    elif error["type"] == "value_error":
        detail = f"{error['msg'].removeprefix('Value error, ')}, is {show(error['input'])}"
    else:
        detail = f"{error['msg'][:1].lower()}{error['msg'][1:]}, is {show(error['input'])}"
    return Problem(field, ProblemType.TYPE_INVALID, detail)
