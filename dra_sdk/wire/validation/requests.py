"""The requests of a claim. Source: DeviceRequest validation, KEP-4816 (alternatives), KEP-6080 (derived attributes)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from dra_sdk.model.claim import base_request
from dra_sdk.wire.profile import OLDEST, ServerProfile
from dra_sdk.wire.resource.claims import (
    DeviceConstraint,
    DeviceDerivedAttribute,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ExactDeviceRequest,
)
from dra_sdk.wire.resource.device import DeviceToleration
from dra_sdk.wire.validation.lists import check_list, check_set
from dra_sdk.wire.validation.names import dns_label, fully_qualified_name, required_subdomain
from dra_sdk.wire.validation.problems import (
    Problems,
    ProblemType,
    Uncompiled,
    invalid,
    not_supported,
    required,
    show,
    too_long,
)
from dra_sdk.wire.validation.taints import toleration

MODES: Final = ("All", "ExactCount")
_LAST_TO_RECHECK: Final = 36


@dataclass(frozen=True, slots=True)
class Context:
    """What the check of a request must know of its claim.

    `constrained` holds the attributes that constraints compare, by the request (`name`, `name/alternative` or, for
    all, an empty string) they are about.
    """

    profile: ServerProfile
    constrained: Mapping[str, Set[str]]


def constrained_attributes(constraints: Sequence[DeviceConstraint]) -> Mapping[str, Set[str]]:
    """Which attributes the constraints of a claim compare, by request."""
    found: dict[str, set[str]] = {}
    for constraint in constraints:
        name = constraint.match_attribute if constraint.match_attribute is not None else constraint.distinct_attribute
        if name is not None:
            for request in constraint.requests or [""]:
                found.setdefault(request, set()).add(name)
    return found


def request(value: DeviceRequest, field: str, context: Context) -> Problems:
    """One request."""
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

    limit = profile.limits.alternatives
    where = f"{field}.firstAvailable"
    yield from check_set(
        alternatives, where, alternative, profile, key=lambda item: item.name, key_field="name", at_most=limit
    )
    if exactly is not None:
        yield from _devices(exactly, f"{field}.exactly", value.name, context)


def selectors(
    items: list[DeviceSelector] | None, field: str, profile: ServerProfile, *, stored: bool = False
) -> Problems:
    """CEL selectors: number, length, and the expressions to compile. Newer servers trust what is `stored` already."""

    def check(item: DeviceSelector, where: str) -> Problems:
        if item.cel is None:
            yield required(f"{where}.cel")
        elif not stored or profile.minor <= _LAST_TO_RECHECK:
            yield from _cel(item.cel.expression, f"{where}.cel.expression", profile, stored=stored)

    yield from check_list(items, field, check, profile, at_most=profile.limits.selectors)


def _cel(
    expression: str, field: str, profile: ServerProfile, *, stored: bool = False, derives: bool = False
) -> Problems:
    problems = list(_expression(expression, field, profile))
    yield from problems
    if not problems:
        yield Uncompiled(field, ProblemType.INVALID, expression, stored, derives)


def _devices(value: ExactDeviceRequest | DeviceSubRequest, field: str, name: str, context: Context) -> Problems:
    profile = context.profile

    def tolerate(item: DeviceToleration, where: str) -> Problems:
        return toleration(item, where, profile)

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


def _derived(items: list[DeviceDerivedAttribute] | None, field: str, request_name: str, context: Context) -> Problems:
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

    limit = profile.limits.derived_attributes
    yield from check_set(items, field, check, profile, key=lambda item: item.name, at_most=limit)


def _expression(expression: str, field: str, profile: ServerProfile) -> Problems:
    if not expression.strip():
        yield invalid(field, "must not be empty")
    yield from too_long(field, expression, profile.limits.expression_length)
