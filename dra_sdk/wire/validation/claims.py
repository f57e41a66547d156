"""ResourceClaims and their templates: what is asked for. Source: resource.k8s.io DeviceClaim validation."""

from __future__ import annotations

from collections.abc import Mapping, Set

from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.claims import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceConstraint,
    DeviceRequest,
    ResourceClaim,
    ResourceClaimTemplate,
)
from dra_sdk.wire.validation.equality import immutable
from dra_sdk.wire.validation.lists import check_list, check_set, text
from dra_sdk.wire.validation.metadata import changed_metadata, new_metadata, template_metadata
from dra_sdk.wire.validation.names import dns_label, fully_qualified_name
from dra_sdk.wire.validation.opaque import opaque
from dra_sdk.wire.validation.problems import Problems, invalid, required, show
from dra_sdk.wire.validation.requests import Context, constrained_attributes, request

#: The names of requests, and of the alternatives of each.
Names = Mapping[str, Set[str]]


def new_claim(value: ResourceClaim, profile: ServerProfile) -> Problems:
    """A claim that is created; its status does not count then."""
    yield from new_metadata(value.metadata, profile, namespaced=True)
    yield from device_claim(value.spec.devices, "spec.devices", profile)


def changed_claim(value: ResourceClaim, old: ResourceClaim, profile: ServerProfile) -> Problems:
    """A claim that is updated: its spec may not change."""
    if profile.minor == OLDEST:
        yield from new_claim(value, profile)
    else:
        yield from new_metadata(value.metadata, profile, namespaced=True)
    yield from changed_metadata(value.metadata, old.metadata, profile)
    yield from immutable(value.spec, old.spec, "spec")


def new_template(value: ResourceClaimTemplate, profile: ServerProfile) -> Problems:
    """A template that is created."""
    yield from new_metadata(value.metadata, profile, namespaced=True)
    yield from template_metadata(value.spec.metadata, "spec.metadata")
    yield from device_claim(value.spec.spec.devices, "spec.spec.devices", profile)


def changed_template(value: ResourceClaimTemplate, old: ResourceClaimTemplate, profile: ServerProfile) -> Problems:
    """A template that is updated: checked like a new one, and its spec may not change."""
    yield from new_template(value, profile)
    yield from changed_metadata(value.metadata, old.metadata, profile)
    yield from immutable(value.spec, old.spec, "spec")


def device_claim(claim: DeviceClaim, field: str, profile: ServerProfile) -> Problems:
    """Requests, constraints and configuration."""
    names, limits = request_names(claim), profile.limits
    context = Context(profile, constrained_attributes(claim.constraints or []))

    def one(value: DeviceRequest, where: str) -> Problems:
        return request(value, where, context)

    def constraint(value: DeviceConstraint, where: str) -> Problems:
        yield from references(value.requests, f"{where}.requests", names, profile)
        yield from _attribute(value, where, profile)

    def config(value: DeviceClaimConfiguration, where: str) -> Problems:
        yield from references(value.requests, f"{where}.requests", names, profile)
        yield from opaque(value.opaque, where, profile)

    where, limit = f"{field}.requests", limits.requests
    yield from check_set(
        claim.requests, where, one, profile, key=lambda value: value.name, key_field="name", at_most=limit
    )
    yield from check_list(claim.constraints, f"{field}.constraints", constraint, profile, at_most=limits.constraints)
    yield from check_list(claim.config, f"{field}.config", config, profile, at_most=limits.configs)


def request_names(claim: DeviceClaim) -> Names:
    """The names that constraints, configuration and results of a claim may refer to."""
    return {value.name: {each.name for each in value.first_available or ()} for value in claim.requests or ()}


def references(requests: list[str] | None, field: str, names: Names, profile: ServerProfile) -> Problems:
    """A set of references to requests."""

    def check(name: str, where: str) -> Problems:
        return reference(name, where, names)

    yield from check_set(requests, field, check, profile, key=text, at_most=profile.limits.requests)


def reference(name: str, field: str, names: Names) -> Problems:
    """A reference to a request, or to one of its alternatives (`request/alternative`)."""
    parts = name.split("/")
    if len(parts) <= 2:  # noqa: PLR2004 (a request and an alternative)
        for part in parts:
            yield from dns_label(part, field)
    if parts[0] not in names or parts[1:] not in ([], *([each] for each in names[parts[0]])):
        yield invalid(field, f"must be a request of the claim, or request/subrequest, is {show(name)}")


def _attribute(value: DeviceConstraint, field: str, profile: ServerProfile) -> Problems:
    if value.match_attribute is not None:
        yield from fully_qualified_name(value.match_attribute, f"{field}.matchAttribute", profile)
    elif value.distinct_attribute is not None:
        yield from fully_qualified_name(value.distinct_attribute, f"{field}.distinctAttribute", profile)
    elif profile.enabled("DRAConsumableCapacity"):
        yield required(field, "must have matchAttribute or distinctAttribute")
    else:
        yield required(f"{field}.matchAttribute")
