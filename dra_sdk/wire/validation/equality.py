"""Whether two objects mean the same: what is unset equals what is empty, 1000m equals 1, 12:00Z equals 13:00+01:00."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from dra_sdk.wire.resource.base import Time
from dra_sdk.wire.validation.problems import Problems, invalid


def same(left: Any, right: Any) -> bool:
    """Semantic equality, as the API server uses to tell whether a field was changed."""
    return bool(_meaning(left) == _meaning(right))


def immutable(new: Any, old: Any, field: str) -> Problems:
    """A problem if a field was changed."""
    if not same(new, old):
        yield invalid(field, "must not be changed once it is set")


def _meaning(value: Any) -> Any:
    if isinstance(value, BaseModel):
        fields = type(value).model_fields
        return {name: _meaning(item) for name, item in value if not _is_unset(item, fields[name].default)}
    if isinstance(value, Time):
        return value.instant
    if isinstance(value, list):
        return [_meaning(item) for item in value] or None
    if isinstance(value, dict):
        return {key: _meaning(item) for key, item in value.items()} or None
    return value


def _is_unset(value: Any, default: Any) -> bool:
    return value is None or value == default or (isinstance(value, (list, dict)) and not value)
