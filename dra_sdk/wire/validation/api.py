"""Check whether an API server would accept an object. The package says what is checked and what cannot be."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from dra_sdk.errors import InvalidObjectError
from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource import Device
from dra_sdk.wire.resource.metadata import TopLevel
from dra_sdk.wire.validation import claims, classes, pool_status, slices, status
from dra_sdk.wire.validation.availability import Dropped, dropped_fields, remove_unknown
from dra_sdk.wire.validation.decoding import read_as, read_object, set_defaults, set_device_defaults
from dra_sdk.wire.validation.devices import device as device_problems
from dra_sdk.wire.validation.names import driver_name
from dra_sdk.wire.validation.problems import Problem, Problems, Uncompiled, duplicate, sentence

CompileCel = Callable[[Uncompiled], Problem | None]
"""Compiles a CEL expression and checks its cost. Returns the problem, None if the server would accept it."""
_Check = Callable[[Any, Any, ServerProfile], Problems]
"""Checks an object; the second one is what is stored, None for an object that is created."""
_CHECKS: Final[Mapping[str, _Check]] = {
    "DeviceClass": classes.device_class,
    "DeviceTaintRule": classes.taint_rule,
    "ResourceClaim": claims.resource_claim,
    "ResourceClaimTemplate": claims.claim_template,
    "ResourcePoolStatusRequest": pool_status.pool_status_request,
    "ResourceSlice": slices.resource_slice,
}
_STATUS_CHECKS: Final[Mapping[str, _Check]] = {
    "DeviceTaintRule": classes.taint_rule_status,
    "ResourceClaim": status.claim_status,
    "ResourcePoolStatusRequest": pool_status.pool_status,
}


def validate(
    obj: Mapping[str, Any],
    *,
    old: Mapping[str, Any] | None = None,
    profile: ServerProfile | None = None,
    subresource: str = "",
    compile_cel: CompileCel | None = None,
) -> list[Problem]:
    """Return what an API server would refuse in an object of resource.k8s.io.

    Default values are filled in first, as the server does. Fields that the server would drop are checked like all
    others; see `dropped`. Raises ValueError for a subresource that a kind does not have.

    obj: the object as JSON.
    old: the stored object, for an update. None: `obj` is created.
    profile: release and feature gates of the server. None: the newest known release.
    subresource: empty, or `status` for an update of the status.
    compile_cel: compiles CEL expressions (see `dra_sdk.tools.scheduling.cel_validation`). None: only their length is
        checked.
    """
    profile = profile or ServerProfile.of()
    value, problems = read_object(obj, profile)
    if value is None:
        return problems
    set_defaults(value)
    if subresource and (subresource != "status" or value.kind not in _STATUS_CHECKS or old is None):
        raise ValueError(f"an update of {value.kind} has no subresource {subresource!r}, or lacks the old object")
    check = (_STATUS_CHECKS if subresource else _CHECKS)[value.kind]
    broken = check(value, None if old is None else _stored(value, old, profile), profile)
    return list(dict.fromkeys([*problems, *_compiled(broken, compile_cel)]))


def _compiled(problems: Iterable[Problem], compile_cel: CompileCel | None) -> Problems:
    for problem in problems:
        if not isinstance(problem, Uncompiled):
            yield problem
        elif compile_cel is not None and (cel_problem := compile_cel(problem)):
            yield cel_problem


def check(obj: Mapping[str, Any], profile: ServerProfile | None = None) -> None:
    """Raise InvalidObjectError with a sentence for each problem if a server would refuse to create the object."""
    if problems := validate(obj, profile=profile):
        raise InvalidObjectError(title(obj), [sentence(problem, obj) for problem in problems])


def check_device(device: Mapping[str, Any], driver: str, profile: ServerProfile | None = None) -> None:
    """Raise InvalidObjectError if `device` cannot be part of a ResourceSlice of `driver`.

    The name of an attribute or capacity must not occur both without a domain and in the driver's domain. The server
    accepts that, but both names mean the same, and it is undefined which value applies.
    """
    profile = profile or ServerProfile.of()
    value, problems = read_as(Device, device, profile)
    if value is not None:
        set_device_defaults(value)
        selects_nodes = bool({"nodeName", "nodeSelector", "allNodes"} & set(device))
        problems += device_problems(value, "", profile, old=None, selects_nodes=selects_nodes)
        problems += _ambiguous(value, driver)
    problems += driver_name(driver, "driver")
    if problems:
        name = device.get("name") or "without a name"
        sentences = [sentence(_relative(problem), device) for problem in problems]
        raise InvalidObjectError(f"device {name} of driver {driver}", sentences)


def dropped(obj: Mapping[str, Any], profile: ServerProfile | None = None) -> list[Dropped]:
    """Return the fields of an object that a server would silently drop because their feature gates are off."""
    profile = profile or ServerProfile.of()
    value, _ = read_object(obj, profile)
    return [] if value is None else list(dropped_fields(value, profile))


def title(obj: Any) -> str:
    """Return kind and name of an object, for messages."""
    if not isinstance(obj, dict):
        return "object"
    metadata = obj.get("metadata")
    known = metadata if isinstance(metadata, dict) else {}
    name = known.get("name") or f"{known.get('generateName') or ''}*"
    return f"{obj.get('kind') or 'object'} {name}"


def _stored(value: TopLevel, old: Mapping[str, Any], profile: ServerProfile) -> TopLevel:
    """Read the stored object leniently: the server accepted it once."""
    stored = type(value).model_validate(old, extra="ignore")
    remove_unknown(stored, profile)
    set_defaults(stored)
    return stored


def _ambiguous(value: Device, driver: str) -> Problems:
    for field, names in (("attributes", value.attributes or {}), ("capacity", value.capacity or {})):
        for name in names:
            if "/" not in name and f"{driver}/{name}" in names:
                yield duplicate(f"{field}[{driver}/{name}]", name)


def _relative(problem: Problem) -> Problem:
    return Problem(problem.field.removeprefix("."), problem.type, problem.detail)
