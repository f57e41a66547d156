"""From JSON to models as the API server decodes: types, unknown fields, default values, and what it stores.

A wrong type ends the decoding, because the server cannot read such an object at all. Unknown fields are reported and
left out, as a server does with `fieldValidation=Warn`. Source: the defaulting functions of resource.k8s.io, its
registry strategies in Kubernetes 1.36, and apiserver pkg/endpoints/handlers for duplicate owner references.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar, get_args

from pydantic import ValidationError
from pydantic_core import ErrorDetails

from dra_sdk.model import JSON
from dra_sdk.model.quantity import Quantity
from dra_sdk.texts import did_you_mean
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourcePoolStatusRequest,
    ResourceSlice,
)
from dra_sdk.wire.resource.base import Object
from dra_sdk.wire.resource.claims import DeviceClaim, DeviceSubRequest, ExactDeviceRequest
from dra_sdk.wire.resource.metadata import TopLevel
from dra_sdk.wire.resource.slices import Counter, Device, DeviceCapacity, DeviceTaint, DeviceToleration
from dra_sdk.wire.validation.availability import drop_disabled, remove_unknown
from dra_sdk.wire.validation.problems import Problem, ProblemType, join_path, not_supported, required, show

Model = TypeVar("Model", bound=Object)

GROUP: Final = "resource.k8s.io"
DEFAULT_LIMIT: Final = 100
"""The pools in the answer to a ResourcePoolStatusRequest that names no limit."""
KINDS: Final[Mapping[str, type[TopLevel]]] = {
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "ResourcePoolStatusRequest": ResourcePoolStatusRequest,
    "ResourceSlice": ResourceSlice,
}
_EXPECTED: Final[Mapping[str, str]] = {
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
    """Decode an object of any kind. Return its model and the problems of its structure.

    The model is None if the kind is unknown or a value has the wrong type.
    """
    if not isinstance(obj, dict):
        return None, [Problem("", ProblemType.TYPE_INVALID, f"must be an object, is {show(obj)}")]
    problems = list(_version_problems(obj.get("apiVersion"), obj.get("kind"), profile))
    if problems:
        return None, problems
    return read_as(KINDS[obj["kind"]], obj, profile)


def read_as(model: type[Model], obj: Any, profile: ServerProfile) -> tuple[Model | None, list[Problem]]:
    """Decode an object as `model`. Return it, None if a value has the wrong type, and the problems of its structure."""
    problems: list[Problem] = []
    try:
        value = model.model_validate(obj)
    except ValidationError as error:
        problems = [_problem(detail, model) for detail in error.errors(include_url=False)]
        if any(problem.type is not ProblemType.UNKNOWN for problem in problems):
            return None, problems
        value = model.model_validate(obj, extra="ignore")
    return value, [*problems, *remove_unknown(value, profile)]


def top_level_problems(obj: Mapping[str, Any]) -> list[Problem]:
    """Return the wrong types in what objects of all groups have: apiVersion, kind and metadata."""
    try:
        TopLevel.model_validate(obj, extra="ignore")
    except ValidationError as error:
        return [_problem(detail, TopLevel) for detail in error.errors(include_url=False)]
    return []


def api_versions(kind: str, profile: ServerProfile) -> tuple[str, ...]:
    """Return the API versions of a kind that a server serves and whose fields are those of v1."""
    match kind:
        case "DeviceTaintRule":
            versions = profile.taint_rule_versions()
        case "ResourcePoolStatusRequest":
            versions = ("v1alpha3",)
        case _:
            versions = ("v1", "v1beta2")
    return tuple(f"{GROUP}/{version}" for version in versions)


def decoded(obj: Mapping[str, Any], profile: ServerProfile, now: str) -> tuple[JSON | None, list[Problem]]:
    """Return the object as a server decodes it: without unknown fields, with defaults, quantities in canonical form.

    Taints without a time get `now` (RFC 3339, whole seconds). The object is None if a value has the wrong type. The
    problems are those of the structure only: wrong types and unknown fields.
    """
    value, problems = read_object(obj, profile)
    if value is None:
        return None, problems
    set_defaults(value)
    for taint in _taints(value):
        taint.time_added = taint.time_added or now
    return value.to_json(), problems


def without_disabled(obj: Mapping[str, Any], old: Mapping[str, Any] | None, profile: ServerProfile) -> JSON:
    """Return a decoded object without the fields whose feature gates are off. Those that the stored `old` uses stay."""
    value, _ = read_object(obj, profile)
    before = read_object(old, profile)[0] if old is not None else None
    if value is None or not drop_disabled(value, before, profile):
        return dict(obj)
    return value.to_json()


def set_defaults(value: TopLevel) -> None:
    """Fill in the default values. The time of a taint stays unset: the server sets it to the current second."""
    if owners := value.metadata.owner_references:
        value.metadata.owner_references = [owner for index, owner in enumerate(owners) if owner not in owners[:index]]
    match value:
        case ResourceSlice():
            _slice(value)
        case ResourceClaim():
            _claim(value.spec.devices)
            allocation = value.status.allocation
            for result in (allocation and allocation.devices.results) or ():
                _tolerations(result.tolerations or ())
        case ResourceClaimTemplate():
            _claim(value.spec.spec.devices)
        case ResourcePoolStatusRequest():
            value.spec.limit = DEFAULT_LIMIT if value.spec.limit is None else value.spec.limit
        case DeviceClass() | DeviceTaintRule():
            pass  # they have no defaults


def _slice(value: ResourceSlice) -> None:
    if "generation" not in value.spec.pool.model_fields_set:
        value.spec.pool.generation = 0  # the server stores it even if it is zero
    for device in value.spec.devices or ():
        set_device_defaults(device)
    for counters in value.spec.shared_counters or ():
        _amounts((counters.counters or {}).values())


def set_device_defaults(device: Device) -> None:
    """Fill in the default values of one device."""
    for mapping in (device.node_allocatable_resource_mappings or {}).values():
        if mapping.allocation_multiplier is None:
            mapping.allocation_multiplier = Quantity(1)
    _amounts((device.capacity or {}).values())
    for consumed in device.consumes_counters or ():
        _amounts((consumed.counters or {}).values())


def _amounts(holders: Iterable[Counter | DeviceCapacity]) -> None:
    """Set missing amounts to zero, as the server stores them."""
    for holder in holders:
        if "value" not in holder.model_fields_set:
            holder.value = Quantity(0)


def _claim(claim: DeviceClaim) -> None:
    for request in claim.requests or ():
        for alternative in (request.exactly, *(request.first_available or ())):
            if alternative is not None:
                _request(alternative)


def _request(request: ExactDeviceRequest | DeviceSubRequest) -> None:
    request.allocation_mode = request.allocation_mode or "ExactCount"
    if request.allocation_mode == "ExactCount" and not request.count:
        request.count = 1
    _tolerations(request.tolerations or ())


def _tolerations(tolerations: Iterable[DeviceToleration]) -> None:
    for toleration in tolerations:
        toleration.operator = toleration.operator or "Equal"


def _taints(value: object) -> list[DeviceTaint]:
    if isinstance(value, ResourceSlice):
        return [taint for device in value.spec.devices or () for taint in device.taints or ()]
    return [value.spec.taint] if isinstance(value, DeviceTaintRule) else []


def _version_problems(api_version: Any, kind: Any, profile: ServerProfile) -> Iterator[Problem]:
    if not kind:
        yield required("kind", f"must be one of {', '.join(KINDS)}")
    elif not isinstance(kind, str) or kind not in KINDS:
        yield not_supported("kind", str(kind), tuple(KINDS))
    elif not api_version:
        yield required("apiVersion", f"must be {api_versions(kind, profile)[0]}")
    elif api_version not in (known := api_versions(kind, profile)):
        yield not_supported("apiVersion", str(api_version), known)


def _problem(error: ErrorDetails, model: type[Object]) -> Problem:
    field = join_path([part for part in error["loc"] if part != "[key]"])
    if error["type"] == "extra_forbidden":
        return Problem(field, ProblemType.UNKNOWN, f"unknown field{_similar_field(error['loc'], model)}")
    if error["type"] in _EXPECTED:
        detail = f"must be {_EXPECTED[error['type']]}, is {show(error['input'])}"
    elif error["type"] == "value_error":
        detail = f"{error['msg'].removeprefix('Value error, ')}, is {show(error['input'])}"
    else:
        detail = f"{error['msg'][:1].lower()}{error['msg'][1:]}, is {show(error['input'])}"
    return Problem(field, ProblemType.TYPE_INVALID, detail)


def _similar_field(location: Sequence[str | int], model: type[Object]) -> str:
    """Return, as the end of a sentence, the field that is most like an unknown one or has its name below it."""
    current: type[Object] | None = model
    for part in location[:-1]:
        if current is not None and part in (fields := _fields(current)):
            current = fields[str(part)]
    fields, name = _fields(current) if current else {}, str(location[-1])
    if hint := did_you_mean(name, fields):
        return hint
    inner = next((field for field, inside in fields.items() if inside is not None and name in _fields(inside)), None)
    return f"; did you mean {inner}.{name}?" if inner else ""


def _fields(model: type[Object]) -> dict[str, type[Object] | None]:
    """Return the fields of a model in JSON with the model of the value or of its items, if it has one."""
    return {str(field.alias): _model_in(field.annotation) for field in model.model_fields.values()}


def _model_in(annotation: Any) -> type[Object] | None:
    if isinstance(annotation, type) and issubclass(annotation, Object):
        return annotation
    return next((model for argument in get_args(annotation) if (model := _model_in(argument)) is not None), None)
