"""Conditions of a status. Source: meta/v1 Condition validation."""

from __future__ import annotations

import re
from typing import Final

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.metadata import Condition
from dra_sdk.wire.validation.names import label_key
from dra_sdk.wire.validation.problems import (
    Problems,
    duplicate,
    invalid,
    not_supported,
    required,
    show,
    too_long,
    too_many,
)

_FIRST_WITH_REQUIRED: Final = 37
MAX_REASON: Final = 1024
MAX_MESSAGE: Final = 32 * 1024
STATUSES: Final = ("False", "True", "Unknown")
_REASON = re.compile(r"[A-Za-z](?:[A-Za-z0-9_,:]*[A-Za-z0-9_])?")


def conditions(items: list[Condition] | None, field: str, profile: ServerProfile) -> Problems:
    """A list of conditions, each type once."""
    limit, newer = profile.limits.conditions, profile.minor >= _FIRST_WITH_REQUIRED
    if len(items or ()) > limit:
        yield too_many(field, len(items or ()), limit)
    seen: set[str] = set()
    for index, item in enumerate(items or ()):
        if item.type in seen:
            yield duplicate(f"{field}[{index}]" if newer else f"{field}[{index}].type", item.type)
        seen.add(item.type)
        yield from _condition(item, f"{field}[{index}]", newer)


def _condition(item: Condition, field: str, newer: bool) -> Problems:
    yield from label_key(item.type, f"{field}.type") if item.type or not newer else (required(f"{field}.type"),)
    if newer and not item.status:
        yield required(f"{field}.status", f"must be one of {', '.join(STATUSES)}")
    elif item.status not in STATUSES:
        yield not_supported(f"{field}.status", item.status, STATUSES)
    if item.observed_generation < 0:
        yield invalid(f"{field}.observedGeneration", f"must not be negative, is {item.observed_generation}")
    if item.last_transition_time is None:
        yield required(f"{field}.lastTransitionTime")
    if not item.reason:
        yield required(f"{field}.reason")
    elif not _REASON.fullmatch(item.reason):
        rule = "a letter, then letters, digits, '_', ',' and ':', the last no ',' or ':'"
        yield invalid(f"{field}.reason", f"must be {rule}, is {show(item.reason)}")
    yield from too_long(f"{field}.reason", item.reason, MAX_REASON)
    yield from too_long(f"{field}.message", item.message, MAX_MESSAGE)
