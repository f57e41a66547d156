"""ResourceClaims and their templates: requests, selectors, constraints and opaque configuration.

Source: resource.k8s.io validation of DeviceClaim, DeviceRequest and OpaqueDeviceConfiguration; KEP-4816 (alternatives),
KEP-6080 (derived attributes).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dra_sdk.model.claim import base_request
from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.claims import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceDerivedAttribute,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_sdk.wire.validation.devices import toleration
from dra_sdk.wire.validation.metadata import new_metadata, template_metadata, updated_metadata
from dra_sdk.wire.validation.names import dns_label, driver_name, fully_qualified_name, required_subdomain
from dra_sdk.wire.validation.problems import (
    Problem,
    Problems,
    ProblemType,
    Uncompiled,
    byte_length,
    invalid,
    not_supported,
    required,
    show,
    too_long,
    too_many,
)
from dra_sdk.wire.validation.rules import check_list, check_set, immutable

Names = Mapping[str, Set[str]]
"""The alternatives of each request, by the request's name."""

MODES: Final = ("All", "ExactCount")
_LAST_TO_RECHECK: Final = 36
_LOWER_CASE_SINCE: Final = 37
"""The minor release that checks the names of constraints by the declarative rules of the API."""


@dataclass(frozen=True, slots=True)
class _Context:
    """What the check of a request needs to know about its claim.

    profile: release and feature gates of the server.
    constrained: attributes that constraints compare, by request: `name`, `name/alternative`, or an empty string for
        all requests.
    """

    profile: ServerProfile
    constrained: Mapping[str, Set[str]]


def resource_claim(value: ResourceClaim, old: ResourceClaim | None, profile: ServerProfile) -> Problems:
    """Check a claim, without its status: the server clears that of a new one. An update must not change the spec."""
    yield from new_metadata(value.metadata, profile, namespaced=True)
    if old is None or profile.minor == OLDEST:
        yield from device_claim(value.spec.devices, "spec.devices", profile)
    if old is not None:
        yield from updated_metadata(value.metadata, old.metadata, profile)
        yield from immutable(value.spec, old.spec, "spec")


def claim_template(value: ResourceClaimTemplate, old: ResourceClaimTemplate | None, profile: ServerProfile) -> Problems:
    """Check a template. An update is checked like a new one, and must not change the spec."""
    yield from new_metadata(value.metadata, profile, namespaced=True)
    yield from template_metadata(value.spec.metadata, "spec.metadata")
    yield from device_claim(value.spec.spec.devices, "spec.spec.devices", profile)
    if old is not None:
        yield from updated_metadata(value.metadata, old.metadata, profile)
        yield from immutable(value.spec, old.spec, "spec")


def device_claim(claim: DeviceClaim, field: str, profile: ServerProfile) -> Problems:
    """Check requests, constraints and configuration."""
    names, limits = request_names(claim), profile.limits
    one = partial(_request, context=_Context(profile, _constrained_attributes(claim.constraints or [])))

    def constraint(value: DeviceConstraint, where: str) -> Problems:
        yield from references(value.requests, f"{where}.requests", names, profile)
        yield from _attribute(value, where, profile)

    def config(value: DeviceClaimConfiguration, where: str) -> Problems:
        yield from references(value.requests, f"{where}.requests", names, profile)
        yield from opaque(value.opaque, where, profile)

    where, limit = f"{field}.requests", limits.requests
    yield from check_set(claim.requests, where, one, profile, key_field="name", at_most=limit)
    yield from check_list(claim.constraints, f"{field}.constraints", constraint, profile, at_most=limits.constraints)
    yield from check_list(claim.config, f"{field}.config", config, profile, at_most=limits.configs)


def request_names(claim: DeviceClaim) -> Names:
    """Return the names to which constraints, configuration and results of a claim may refer."""
    return {request.name: {choice.name for choice in request.first_available or ()} for request in claim.requests or ()}


def references(requests: list[str] | None, field: str, names: Names, profile: ServerProfile) -> Problems:
    """Check a set of references to requests."""
    return check_set(requests, field, partial(reference, names=names), profile, at_most=profile.limits.requests)


def reference(name: str, field: str, names: Names) -> Problems:
    """Check a reference to a request or to one of its alternatives (`request/alternative`)."""
    parts = name.split("/")
    if len(parts) <= 2:  # noqa: PLR2004 (a request and an alternative)
        for part in parts:
            yield from dns_label(part, field)
    if parts[0] not in names or parts[1:] not in ([], *([alternative] for alternative in names[parts[0]])):
        yield invalid(field, f"must be a request of the claim, or request/subrequest, is {show(name)}")


def _attribute(value: DeviceConstraint, field: str, profile: ServerProfile) -> Problems:
    if value.match_attribute is not None:
        yield from _lower_case_name(value.match_attribute, f"{field}.matchAttribute", profile)
    elif value.distinct_attribute is not None:
        yield from _lower_case_name(value.distinct_attribute, f"{field}.distinctAttribute", profile)
    elif profile.enabled("DRAConsumableCapacity"):
        yield required(field, "must have matchAttribute or distinctAttribute")
    else:
        yield required(f"{field}.matchAttribute")


def _lower_case_name(value: str, field: str, profile: ServerProfile) -> Problems:
    """Check the name of an attribute with its domain, which since 1.37 must be in lower case in a constraint."""
    yield from fully_qualified_name(value, field, profile)
    domain, slash, rest = value.partition("/")
    if profile.minor >= _LOWER_CASE_SINCE and slash and "/" not in rest and domain != domain.lower():
        yield invalid(field, f"the domain must be in lower case, is {show(domain)}")


def _constrained_attributes(constraints: Sequence[DeviceConstraint]) -> Mapping[str, Set[str]]:
    """Return the attributes that the constraints of a claim compare, by request."""
    attributes: dict[str, set[str]] = {}
    for constraint in constraints:
        name = constraint.match_attribute if constraint.match_attribute is not None else constraint.distinct_attribute
        if name is not None:
            for request in constraint.requests or [""]:
                attributes.setdefault(request, set()).add(name)
    return attributes


def _request(value: DeviceRequest, field: str, context: _Context) -> Problems:
    """Check one request."""
    profile = context.profile
    yield from dns_label(value.name, f"{field}.name")
    exactly, alternatives = value.exactly, value.first_available or []
    if exactly is None and not alternatives:
        yield required(field, "must have exactly or firstAvailable")
    elif exactly is not None and alternatives:
        yield invalid(field, "must have exactly or firstAvailable, not both")
        if profile.minor > OLDEST:
            return

    def alternative(item: DeviceSubRequest, where: str) -> Problems:
        yield from dns_label(item.name, f"{where}.name")
        yield from _devices(item, where, f"{value.name}/{item.name}", context)

    where, limit = f"{field}.firstAvailable", profile.limits.alternatives
    yield from check_set(alternatives, where, alternative, profile, key_field="name", at_most=limit)
    if exactly is not None:
        yield from _devices(exactly, f"{field}.exactly", value.name, context)


def selectors(
    items: list[DeviceSelector] | None, field: str, profile: ServerProfile, *, stored: bool = False
) -> Problems:
    """Check CEL selectors, and yield their expressions to compile. Since 1.37 the server trusts `stored` selectors."""

    def check(item: DeviceSelector, where: str) -> Problems:
        if item.cel is None:
            yield required(f"{where}.cel")
        elif not stored or profile.minor <= _LAST_TO_RECHECK:
            yield from _cel(item.cel.expression, f"{where}.cel.expression", profile, stored=stored)

    yield from check_list(items, field, check, profile, at_most=profile.limits.selectors)


def _cel(
    expression: str, field: str, profile: ServerProfile, *, stored: bool = False, derives: bool = False
) -> Problems:
    problems = list(too_long(field, expression, profile.limits.expression_length))
    if not expression.strip():
        problems.append(invalid(field, "must not be empty"))
    yield from problems
    if not problems:
        yield Uncompiled(field, ProblemType.INVALID, expression, stored, derives)


def _devices(value: ExactDeviceRequest | DeviceSubRequest, field: str, name: str, context: _Context) -> Problems:
    profile = context.profile
    tolerate = partial(toleration, profile=profile)
    yield from required_subdomain(value.device_class_name, f"{field}.deviceClassName")
    yield from selectors(value.selectors, f"{field}.selectors", profile)
    yield from _amount(value.allocation_mode, value.count, field)
    yield from check_list(value.tolerations, f"{field}.tolerations", tolerate, profile)
    yield from _derived(value.derived_attributes, f"{field}.derivedAttributes", name, context)


def _amount(mode: str, count: int, field: str) -> Problems:
    if mode not in MODES:
        yield not_supported(f"{field}.allocationMode", mode, MODES)
    elif mode == "All" and count:
        yield invalid(f"{field}.count", f"must not be set for allocationMode All, is {count}")
    elif mode == "ExactCount" and count <= 0:
        yield invalid(f"{field}.count", f"must be greater than zero, is {count}")


def _derived(items: list[DeviceDerivedAttribute] | None, field: str, request_name: str, context: _Context) -> Problems:
    profile = context.profile
    base = base_request(request_name)
    used = {name for key in ("", request_name, base) for name in context.constrained.get(key, ())}

    def check(item: DeviceDerivedAttribute, where: str) -> Problems:
        if not item.name:
            yield required(f"{where}.name")
        else:
            yield from fully_qualified_name(item.name, f"{where}.name", profile)
            if item.name not in used:
                yield invalid(f"{where}.name", f"{show(item.name)} is in no constraint on this request")
        if not item.expression:
            yield required(f"{where}.expression")
        else:
            yield from _cel(item.expression, f"{where}.expression", profile, derives=True)

    # Unlike other lists, one that is too long is looked at to its end.
    yield from check_set(items, field, check, profile, key_field="name")
    if (length := len(items or ())) > (limit := profile.limits.derived_attributes):
        yield too_many(field, length, limit)


def opaque(
    config: OpaqueDeviceConfiguration | None, field: str, profile: ServerProfile, *, stored: bool = False
) -> Problems:
    """Check one configuration in the field `opaque`. A `stored` one may have any size."""
    if config is None:
        yield required(f"{field}.opaque")
        return
    yield from driver_name(config.driver, f"{field}.opaque.driver")
    limit = None if stored else profile.limits.opaque_length
    yield from json_object(config.parameters, f"{field}.opaque.parameters", limit)


def json_object(value: Any, field: str, limit: int | None) -> Problems:
    """Check that a value is a JSON object of at most `limit` bytes without spaces. None: no limit."""
    size = byte_length(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    if value is None:
        yield required(field)
    elif limit is not None and size > limit:
        yield Problem(field, ProblemType.TOO_LONG, f"must be at most {limit} bytes of JSON, has {size}")
    elif not isinstance(value, dict):
        yield invalid(field, f"must be a JSON object, is {show(value)}")
