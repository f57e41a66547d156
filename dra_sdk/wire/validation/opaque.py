"""Parameters that only a driver understands: their envelope and their size. Source: OpaqueDeviceConfiguration."""

from __future__ import annotations

import json
from typing import Any

from dra_sdk.wire.profile import ServerProfile
from dra_sdk.wire.resource.configuration import OpaqueDeviceConfiguration
from dra_sdk.wire.validation.names import driver_name
from dra_sdk.wire.validation.problems import Problem, Problems, ProblemType, byte_length, invalid, required, show


def opaque(
    config: OpaqueDeviceConfiguration | None, field: str, profile: ServerProfile, *, stored: bool = False
) -> Problems:
    """One configuration, found in the field `opaque`; what is `stored` already may be of any size."""
    if config is None:
        yield required(f"{field}.opaque")
        return
    yield from driver_name(config.driver, f"{field}.opaque.driver")
    limit = None if stored else profile.limits.opaque_length
    yield from json_object(config.parameters, f"{field}.opaque.parameters", limit)


def json_object(value: Any, field: str, limit: int | None) -> Problems:
    """A JSON object of at most `limit` bytes when written without spaces."""
    size = byte_length(json.dumps(value, separators=(",", ":"), ensure_ascii=False))
    if value is None:
        yield required(field)
    elif limit is not None and size > limit:
        yield Problem(field, ProblemType.TOO_LONG, f"must be at most {limit} bytes of JSON, has {size}")
    elif not isinstance(value, dict):
        yield invalid(field, f"must be a JSON object, is {show(value)}")
