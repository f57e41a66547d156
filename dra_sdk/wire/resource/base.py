"""The base of all models of API objects: camelCase in JSON, strict types, and the releases that have a field.

As for the API server, null means that a field is absent, and it is an empty value in a list or a map. A number is not a
string. An unknown field is an error. A field that some servers do not know or do not store has an `Available`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache, lru_cache
from typing import Annotated, Any, Final

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    PlainValidator,
    model_validator,
)
from pydantic.alias_generators import to_camel

from dra_sdk.model.quantity import Quantity

#: The server reads a quantity without digits, such as `.` or `Gi`, as zero.
_NO_NUMBER: Final = re.compile(r"[-+]?\.?(?:[KMGT]i|[numkMGTPE]?|[eE](?:\+?[0-9]+|-0*[0-9]))")
_RFC3339 = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d+)?(Z|[+-]\d{2}:\d{2})")


class Object(BaseModel):
    """Base of all API types."""

    model_config = ConfigDict(alias_generator=to_camel, extra="forbid", strict=True, defer_build=True)

    @model_validator(mode="before")
    @classmethod
    def _without_nulls(cls, value: Any) -> Any:
        if value is None:  # only an item of a list or map can be None, because fields that are null are left out
            return {}
        if not isinstance(value, dict):
            return value
        if None not in value.values():
            return value
        return {key: item for key, item in value.items() if item is not None or key not in _aliases(cls)}

    def to_json(self) -> dict[str, Any]:
        """Return the object as JSON, without fields that are not set."""
        return self.model_dump(mode="json", by_alias=True, exclude_unset=True, exclude_none=True)


@dataclass(frozen=True, slots=True)
class Available:
    """When the API server has a field.

    gates: feature gates that must be on for the server to store it. Empty: it always does.
    since: first minor release with the field, such as 36 for 1.36.
    until: last minor release with the field. None: the newest has it.
    """

    gates: tuple[str, ...] = ()
    since: int = 34
    until: int | None = None


@cache
def _aliases(model: type[Object]) -> frozenset[str]:
    """Return the names of the fields in JSON."""
    return frozenset(str(field.alias) for field in model.model_fields.values())


class Time(str):
    """A time as text (RFC 3339)."""

    __slots__ = ()

    @property
    def instant(self) -> datetime:
        """The time for comparisons."""
        return datetime.fromisoformat(self)


def _time(text: str) -> Time:
    if not _RFC3339.fullmatch(text):
        raise ValueError("must be a time such as 2026-01-31T12:00:00Z")
    datetime.fromisoformat(text)
    return Time(text)


def _stored_time(text: str) -> str:
    """Return the time as the API server stores it: in UTC and whole seconds."""
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except OverflowError:  # the first or last day of the calendar, in another time zone
        return text
    return f"{moment.replace(microsecond=0, tzinfo=None).isoformat()}Z"


def _quantity(value: Any) -> Quantity:
    """Read a quantity as the server does: it ignores spaces around it, and a missing number is zero."""
    text = value.strip(" ") if isinstance(value, str) else repr(value) if isinstance(value, float) else value
    return _quantity_of_text(text) if isinstance(text, str) else _quantity_of(text)


def _quantity_of(text: Any) -> Quantity:
    if isinstance(text, str) and text and _NO_NUMBER.fullmatch(text):
        return Quantity(0)
    try:
        return Quantity(text)
    except ValueError as error:
        raise ValueError("must be a quantity such as 4, 500m or 80Gi") from error


#: The amounts of a cluster are few, and occur often.
_quantity_of_text = lru_cache(maxsize=4096)(_quantity_of)


def _or_empty(empty: object) -> BeforeValidator:
    return BeforeValidator(lambda value: empty if value is None else value)


Timestamp = Annotated[str, AfterValidator(_time), PlainSerializer(_stored_time)]
Amount = Annotated[Quantity, PlainValidator(_quantity), PlainSerializer(lambda amount: amount.stored, return_type=str)]
Int64 = Annotated[int, Field(ge=-(2**63), le=2**63 - 1)]
#: Items of lists and maps: null is an empty value.
TextItem = Annotated[str, _or_empty("")]
IntItem = Annotated[Int64, _or_empty(0)]
BoolItem = Annotated[bool, _or_empty(False)]
AmountItem = Annotated[Amount, _or_empty(0)]

TAINTS: Final = Available(("DRADeviceTaints",))
PARTITIONS: Final = Available(("DRAPartitionableDevices",))
CONSUMABLE: Final = Available(("DRAConsumableCapacity",))
BINDING: Final = Available(("DRADeviceBindingConditions", "DRAResourceClaimDeviceStatus"))
ADMIN_ACCESS: Final = Available(("DRAAdminAccess",))
LISTS: Final = Available(("DRAListTypeAttributes",), since=36)
SKIP_OPERATIONS: Final = Available(("DRAOptionalNodeOperations",), since=37)
